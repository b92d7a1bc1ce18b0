"""A report of drift says where answers differ from what the SDK knows, and never what is in them."""

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from aioresponses import aioresponses
from hypothesis import given
from hypothesis import strategies as st

from svc_async import BadRequest, DriftReport, InvalidArgument
from svc_async.ads.accounts import Account
from svc_async.ads.cards import Card
from svc_async.drift import DriftFinding, DriftKind
from svc_async.governor.limits import LIMITS
from svc_async.wire.envelope import Answer
from svc_async.wire.route import Reply, Request, Surface
from tests.support.contract import ENUMS, RECORDS, build_record
from tests.support.fake_http import answer_any_method, make_session, service
from tests.support.properties import examples

__all__ = ["examples", "service"]

ACCOUNT = {**build_record("Account"), "timezone": "Europe/Vienna"}
ACCOUNTS = "GET /12/accounts"
LISTING: Request[Any] = Request(
    method="GET", surface=Surface.ADS, template="/12/accounts", path="/12/accounts", reply=Reply.PAGE, into=Account
)
PLANTED = ["ada@example.org", "+351912345678", "756201191646691328", "Ada Lovelace", "18ce54d4x5t", 912345678, 1.25e77]


def see(report: DriftReport, body: Any, headers: Mapping[str, str] | None = None, **changes: Any) -> None:
    request = LISTING if not changes else Request(**{**vars_of(LISTING), **changes})
    report.see(request, Answer(status=200, headers=headers or {}, body=json.dumps(body).encode()))


def vars_of(request: Request[Any]) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("method", "surface", "template", "path", "reply", "into")}


def keys(report: DriftReport) -> list[tuple[DriftKind, str, str]]:
    return [(each.kind, each.place, each.found) for each in report.findings]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ACCOUNT.items() if key != name}


async def test_an_answer_to_the_letter_has_no_drift(service: aioresponses) -> None:
    answer_any_method(service, {"data": [ACCOUNT], "next_cursor": None, "request": {"params": {"q": "x"}}})
    drift = DriftReport()
    async with make_session(drift=drift) as session:
        await session.accounts.list()
    assert drift.findings == ()
    assert drift.to_dict()["operations"] == [{"operation": ACCOUNTS, "answers": 1, "compared": 1, "dropped": 0}]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({**ACCOUNT, "tier": 1}, (DriftKind.UNKNOWN_FIELD, "data[].tier", "")),
        (without("business_name"), (DriftKind.MISSING_FIELD, "data[].business_name", "")),
        ({**ACCOUNT, "approval_status": "ON_HOLD"}, (DriftKind.UNKNOWN_VALUE, "data[].approval_status", "ON_HOLD")),
        (without("name"), (DriftKind.OTHER_TYPE, "data[].name", "absent")),
        ({**ACCOUNT, "deleted": "no"}, (DriftKind.OTHER_TYPE, "data[].deleted", "string")),
        ({**ACCOUNT, "created_at": "yesterday"}, (DriftKind.OTHER_TYPE, "data[].created_at", "string")),
        ({**ACCOUNT, "name": None}, (DriftKind.OTHER_TYPE, "data[].name", "null")),
        ({**ACCOUNT, "approval_status": "a b"}, (DriftKind.UNKNOWN_VALUE, "data[].approval_status", "…")),
        ({**ACCOUNT, "a b": 1}, (DriftKind.UNKNOWN_FIELD, "data[].…", "")),
        ({**ACCOUNT, "d41d8cd98f00": 1}, (DriftKind.UNKNOWN_FIELD, "data[].…", "")),
        (7, (DriftKind.OTHER_TYPE, "data[]", "integer")),
    ],
)
def test_each_difference_of_a_record_is_one_finding(record: Any, expected: tuple[DriftKind, str, str]) -> None:
    report = DriftReport()
    see(report, {"data": [record]})
    assert keys(report) == [expected]
    assert report.findings[0].operation == ACCOUNTS


def test_a_field_that_came_once_is_not_missing() -> None:
    report = DriftReport()
    see(report, {"data": [without("business_name")] * 3})
    assert [(each.place, each.count) for each in report.findings] == [("data[].business_name", 3)]
    see(report, {"data": [{**ACCOUNT, "business_name": None}]})
    see(report, {"data": [without("business_name")]})
    assert report.findings == ()


def test_nested_records_unions_and_what_is_around_them_are_compared() -> None:
    media = {"type": "MEDIA", "media_key": "3_1", "crop": 1}
    card = {**build_record("Card"), "components": [media, {"type": "QUIZ"}, {"type": "Ada"}]}
    report = DriftReport()
    see(report, {"data": [card], "next": 1}, template="/12/accounts/{account_id}/cards", into=Card)
    assert keys(report) == [
        (DriftKind.UNKNOWN_FIELD, "data[].components[][MEDIA].crop", ""),
        (DriftKind.UNKNOWN_FIELD, "next", ""),
        (DriftKind.UNKNOWN_VALUE, "data[].components[].type", "QUIZ"),
        (DriftKind.UNKNOWN_VALUE, "data[].components[].type", "…"),
    ]


def test_headers_and_limits_are_compared() -> None:
    report = DriftReport()
    headers = {"Content-Type": "application/json", "X-Region": "eu", "X-4711": "x", "x-rate-limit-limit": "900"}
    see(report, {"data": []}, headers, template="/12/accounts/{account_id}/cards", into=Card)
    table = next(row for row in LIMITS if row.name == "ads.reads.account")
    assert keys(report) == [
        (DriftKind.OTHER_LIMIT, table.name, "900"),
        (DriftKind.UNKNOWN_HEADER, "x-region", ""),
        (DriftKind.UNKNOWN_HEADER, "…", ""),
    ]
    assert report.findings[0].expected == str(table.requests)


def test_a_limit_that_is_as_in_the_table_or_may_be_that_of_the_total_count_is_no_drift() -> None:
    report = DriftReport()
    row = next(row for row in LIMITS if row.name == "ads.reads.global")
    see(report, {"data": [ACCOUNT]}, {"x-rate-limit-limit": str(row.requests)})
    see(report, {"data": [ACCOUNT]}, {"x-rate-limit-limit": "200"}, query=(("with_total_count", "true"),))
    assert report.findings == ()


async def test_codes_of_refusals_are_compared(service: aioresponses) -> None:
    errors = [{"code": code, "message": "m"} for code in ("INVALID_PARAMETER", "CAMPAIGN_NOT_FOUND", "NEW_CODE", 999)]
    answer_any_method(service, {"errors": [*errors, {"code": "Ada Lovelace"}]}, status=400)
    drift = DriftReport()
    async with make_session(drift=drift) as session:
        with pytest.raises(BadRequest):
            await session.accounts.get("a")
    assert keys(drift) == [(DriftKind.UNKNOWN_CODE, "HTTP 400", code) for code in ("999", "NEW_CODE", "…")]


def test_the_codes_of_the_contract_are_known() -> None:
    report = DriftReport()
    errors = [{"code": code} for name in ("ErrorCode", "StreamErrorName") for code in ENUMS[name]["values"]]
    see(report, {"errors": errors, "data": []}, surface=Surface.BASE)
    assert report.findings == ()


def test_fields_that_the_contract_calls_occasional_are_not_missed() -> None:
    stated = {field["name"] for field in RECORDS["Account"]["field"] if "presence" in field}
    assert stated == {*Account.occasional}


async def test_calls_that_are_not_listed_have_no_contract(service: aioresponses) -> None:
    answer_any_method(service, {"data": {"more": 1}})
    drift = DriftReport()
    async with make_session(drift=drift) as session:
        await session.request("GET", "/12/accounts/secret/more")
    assert drift.to_dict() == {"operations": [], "findings": []}


async def test_one_report_serves_several_sessions_and_those_made_from_them(service: aioresponses) -> None:
    answer_any_method(service, {"data": [ACCOUNT]}, repeat=True)
    drift = DriftReport()
    async with make_session(drift=drift) as one, make_session(drift=drift) as other:
        for session in (one, other, one.but(timeout=5)):
            await session.accounts.list()
    assert drift.to_dict()["operations"][0]["answers"] == 3


def test_a_session_with_a_report_can_be_pickled() -> None:
    drift = DriftReport()
    see(drift, {"data": [7]})
    copied = pickle.loads(pickle.dumps(make_session(drift=drift)))
    assert (copied._settings.drift.findings, len(drift.findings)) == ((), 1)


def test_anything_else_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        make_session(drift={})  # type: ignore[arg-type]  # a caller without types
    assert caught.value.parameter == "drift"


def test_findings_are_bounded_and_the_others_are_counted() -> None:
    report = DriftReport()
    see(report, {"data": [{**ACCOUNT, **{f"f{number}": 1 for number in range(1_000)}}]})
    assert len(report.findings) == 200
    assert report.to_dict()["operations"][0]["dropped"] == 800


def test_of_many_answers_some_are_compared() -> None:
    report = DriftReport()
    for _ in range(300):
        see(report, {"data": [ACCOUNT] * 300})
    (operation,) = report.to_dict()["operations"]
    assert (operation["answers"], operation["compared"]) == (300, 9)


def test_findings_are_equal_by_what_they_say() -> None:
    first = DriftFinding(operation=ACCOUNTS, kind=DriftKind.UNKNOWN_FIELD, place="data[].x", count=1)
    again = DriftFinding(operation=ACCOUNTS, kind=DriftKind.UNKNOWN_FIELD, place="data[].x", count=2, expected="y")
    assert len({first, again}) == 1


planted = st.sampled_from(PLANTED)
names = st.sampled_from([*ACCOUNT, "data", "errors", "code", "type", "meta", *map(str, PLANTED)])
anything = st.recursive(planted, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))
records = st.dictionaries(names, anything, max_size=12).map(lambda changes: {**copy.deepcopy(ACCOUNT), **changes})


@given(
    body=anything | st.fixed_dictionaries({"data": st.lists(records | anything, max_size=3), "errors": anything}),
    reply=st.sampled_from([Reply.PAGE, Reply.META_PAGE, Reply.RECORD, Reply.BODY, Reply.FORM]),
    surface=st.sampled_from([Surface.ADS, Surface.BASE]),
    header=planted,
)
@pytest.mark.usefixtures("examples")
def test_no_value_is_in_a_report(body: Any, reply: Reply, surface: Surface, header: Any) -> None:
    report = DriftReport()
    see(report, body, {"x-new": str(header), str(header): "1"}, reply=reply, surface=surface)
    written = report.to_json() + report._repr_html_()
    assert [each for each in PLANTED if str(each) in written] == []
