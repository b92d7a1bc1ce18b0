"""What each call sends, how it reads the answer, and the bounds that it checks: all from the contract."""

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from aioresponses import aioresponses
from yarl import URL

from svc_async import InvalidArgument, Session
from svc_async.engine.paging import Pager
from tests.support.client_calls import CALLS, bind, read_parameters
from tests.support.contract import (
    OPERATIONS,
    build_answer,
    build_arguments,
    format_query_value,
    list_bounds,
    list_parameters,
)
from tests.support.fake_http import ENDPOINTS, answer_next, make_session

HOST = {"ads": ENDPOINTS.ads_url, "ads_sandbox": ENDPOINTS.ads_sandbox_url}


async def make_call(session: Session, operation: str, values: Mapping[str, Any]) -> list[Any]:
    """Make a call and return the records of its answer."""
    accepted = read_parameters(operation, session)
    call = bind(operation, session)(**{name: value for name, value in values.items() if name in accepted})
    if isinstance(call, Pager):
        return await call.collect()
    result = await call
    return [*result] if isinstance(result, list | tuple) else [result]


def find_request(service: aioresponses) -> tuple[str, URL, Any]:
    """Return the one request that was sent: method, URL, body."""
    (((method, url), (request,)),) = service.requests.items()
    body = request.kwargs.get("data")
    return method, url, body if body is None else json.loads(body.decode())


def to_plain(value: Any) -> Any:
    """Return a record in the form of JSON, with all its fields."""
    return json.loads(json.dumps(_list_fields(value), default=format_query_value))


def _list_fields(value: Any) -> Any:
    if attrs.has(type(value)):
        names = [field.name for field in attrs.fields(type(value)) if field.name != "_extra"]
        return {name: _list_fields(getattr(value, name)) for name in names}
    return [_list_fields(element) for element in value] if isinstance(value, list | tuple) else value


@pytest.mark.rule("GEN-01", "GEN-11", "GEN-12", "GEN-13", "GEN-15", "GEN-16", "GEN-17", "FEAT-02", "ACC-03", "ACC-05")
async def test_every_parameter_is_sent_as_the_contract_says(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for operation, row in CALLS.items():
        values = build_arguments(operation)
        with subtests.test(operation):
            answer_next(service, build_answer(row)[0])
            await make_call(session, operation, values)
            method, url, body = find_request(service)
            placed = {
                place: {p["name"] for p in list_parameters(row) if p["in"] == place}
                for place in ("path", "query", "json")
            }

            assert (method, f"{url.origin()}{url.path}") == (
                row["method"],
                HOST[row["surface"]] + row["path"].format_map(values),
            )
            assert dict(url.query) == {name: format_query_value(values[name]) for name in placed["query"]}
            sent = {name: values[name] for name in placed["json"] & values.keys()}
            assert body == (sent if row["body"] == "json" else None)


@pytest.mark.rule("GEN-15", "LI-01", "LICC-04", "ML-03", "POST-11", "PSET-04b", "VCC-05")
async def test_omitted_parameters_are_not_sent(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for operation, row in CALLS.items():
        needed = {p["name"] for p in list_parameters(row) if p["required"]} | {"text", "title", "product_keys"}
        values = {name: value for name, value in build_arguments(operation).items() if name in needed}
        with subtests.test(operation):
            answer_next(service, build_answer(row)[0])
            await make_call(session, operation, values)
            _, url, body = find_request(service)

            assert {*url.query, *(body or {})} <= needed


@pytest.mark.rule(
    *("GEN-03", "GEN-04", "GEN-12b", "ACC-07", "CARD-11", "CAT-01", "EST-01", "FEAT-03", "HIST-05", "KW-05", "LI-19"),
    *("LI-20", "ML-05", "PC-03", "PLC-01", "POLL-01b", "POLL-07", "POLL-08", "POST-14", "PROD-08c", "PROD-10"),
    *("PROD-11", "PSET-03", "PSET-06", "TGT-02", "VCC-06", "DNR-06", "CARD-12", "AM-03"),
)
@pytest.mark.parametrize("keep_unknown", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_every_field_is_read(subtests: pytest.Subtests, service: aioresponses, *, keep_unknown: bool) -> None:
    async with make_session(keep_unknown=keep_unknown) as session:
        for operation, row in CALLS.items():
            payload, records = build_answer(row)
            with subtests.test(operation):
                answer_next(service, payload)
                found = await make_call(session, operation, build_arguments(operation))

                if row["response"]["record"] != "unspecified":
                    assert to_plain(found) == records


@pytest.mark.rule("CARD-11", "ACC-03")
async def test_a_record_in_an_array_of_one_is_the_record(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for operation, row in CALLS.items():
        payload, records = build_answer(row)
        if row["response"]["shape"] == "single":
            with subtests.test(operation):
                answer_next(service, {**payload, "data": records})
                assert to_plain(await make_call(session, operation, build_arguments(operation))) == records


BOUNDS = [
    (operation, row["name"], kind, *values)
    for operation in CALLS
    for row in list_parameters(OPERATIONS[operation])
    for kind, values in list_bounds(row).items()
]


@pytest.mark.rule(
    *("ACC-01b", "ACC-08", "AM-01", "CARD-02", "CARD-10", "GEN-06", "GEN-17", "LI-07b", "LICC-01", "LIM-07", "LIM-09"),
    *("ML-01", "ML-02b", "POLL-01", "POLL-02", "POLL-09", "POST-05", "POST-10", "POST-11", "PROD-01", "PROD-10"),
    *("TAP-01b", "VCC-01", "VCC-01b", "VCC-01c", "VCC-01d", "VCC-01e", "VCC-07"),
)
async def test_bounds_are_the_contract_s(subtests: pytest.Subtests, service: aioresponses, session: Session) -> None:
    for operation, name, kind, within, beyond in BOUNDS:
        values = build_arguments(operation)
        with subtests.test(f"{operation} {name} {kind}"):
            answer_next(service, build_answer(OPERATIONS[operation])[0])
            with pytest.raises(InvalidArgument) as caught:
                await make_call(session, operation, {**values, name: beyond})
            assert caught.value.parameter == name
            assert re.search(r"\d", caught.value.rule), "the rule names its bound"
            assert not service.requests
            await make_call(session, operation, {**values, name: within})
