"""Invalid requests to every operation of the advertising API: each is refused, and the answer names the problem.

The requests are made from the contract, not from the sandbox's declarations.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

CONTRACT = Path(__file__).parents[1] / "contract"
NOT_SERVED = {"custom_audiences.batch"}
"""Public facts that the sandbox leaves out: closed betas."""
OPERATIONS = [
    row
    for path in (CONTRACT / "operations.toml", *sorted(CONTRACT.glob("beyond/*.toml")))
    for row in tomllib.loads(path.read_text(encoding="utf-8")).get("operation", ())
    if row["surface"].startswith("ads") and row["id"] not in NOT_SERVED
]
IDS = {
    "account_id": "18ce54d4x5t",
    "account_media_id": "2wrdq",
    "card_id": "5rkb1",
    "curated_category_id": "9ddrgesiap6o",
    "custom_audience_id": "1nmth",
    "do_not_reach_list_id": "dnr7k1",
    "line_item_curated_category_id": "43853bhii885",
    "line_item_id": "9cqi0",
    "media_key": "7_880301",
    "product_catalog_id": "2mb9xk41",
    "tailored_audience_id": "tq4k1",
}
JSON = {"Content-Type": "application/json"}
NOT_OF_THE_TYPE = {
    "int": ["ten", "1.5", "", "0x10", "1e3"],
    "long": ["ten", "1.5", "", "9" * 40],
    "boolean": ["True", "1", "yes", ""],
    "timestamp": ["yesterday", "2026-13-01T00:00:00Z", "2026-06-10", "1781092800"],
    "date_hours": ["yesterday", "2026-06-10T12:30:00Z", "2026-06-10T12:00:01Z"],
}
BOUNDS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "min": lambda bound: (bound, bound - 1),
    "max": lambda bound: (bound, bound + 1),
    "exclusive_min": lambda bound: (bound + 1, bound),
    "min_length": lambda bound: ("é" * bound, "é" * (bound - 1)),
    "max_length": lambda bound: ("é" * bound, "é" * (bound + 1)),
}
"""The last value that is taken, and the first that is not, for each kind of bound."""

RULES = {
    ("cards", "q"): "CARD-10b",
    ("custom_audiences", "q"): "CA-05",
    ("line_items", "bid_amount_local_micro"): "LI-07b",
    ("media_library", "q"): "ML-01b",
    **{("media_library", name): "ML-02b" for name in ("description", "file_name", "name", "title")},
    ("poll_cards", "duration_in_minutes"): "POLL-01",
    ("poll_cards", "first_choice"): "POLL-02",
    ("poll_cards", "second_choice"): "POLL-02",
    ("posts", "name"): "POST-05",
    ("posts", "video_description"): "POST-10",
    ("posts", "video_title"): "POST-10",
    ("video_conversation_cards", "first_cta"): "VCC-01",
    ("video_conversation_cards", "second_cta"): "VCC-01d",
    ("video_conversation_cards", "third_cta"): "VCC-01e",
    ("video_conversation_cards", "fourth_cta"): "VCC-01e",
    ("video_conversation_cards", "title"): "VCC-01c",
    ("video_conversation_cards", "thank_you_text"): "VCC-01b",
}
"""The rules that a value beyond a bound breaks, by family and parameter."""


Operations = Sequence[dict[str, Any]]


@pytest.fixture(params=[6, pytest.param(1, marks=pytest.mark.long)], ids=["every sixth", "every one"])
def operations(request: pytest.FixtureRequest) -> Operations:
    return OPERATIONS[:: request.param]


def list_operations(operations: Operations, body: str) -> Operations:
    return [row for row in operations if row["body"] == body]


def list_params(operations: Operations, kind: str) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield the operations with the names and rows of their query parameters of a kind."""
    for row in operations:
        for parameter in row.get("parameter", []):
            if parameter["in"] == "query" and kind in (
                parameter["type"],
                *(key for key in parameter if parameter[key] is not False),
            ):
                yield row, parameter["name"], parameter


def path(row: dict[str, Any]) -> str:
    names = [parameter["name"] for parameter in row.get("parameter", []) if parameter["in"] == "path"]
    return str(row["path"]).format_map({name: IDS.get(name, "nothing") for name in names})


async def send(raw: RawClient, row: dict[str, Any], query: Any = (), *, where: str | None = None, **given: Any) -> Any:
    """Make the call; a body that is needed is there, and is JSON."""
    if row["body"] == "json":
        given = {"data": b"[]" if row.get("body_shape") == "array" else b"{}", "headers": JSON, **given}
    base = raw.sandbox.ads_sandbox_url if row["surface"] == "ads_sandbox" else None
    return await raw(row["method"], where or path(row), query, base=base, **given)


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig(rate_limits=False)


@pytest.mark.rule("GEN-15")
async def test_an_unknown_parameter_is_refused_and_named(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row in operations:
        with subtests.test(row["id"]):
            got = await send(raw, row, {"colour": "red"})
            assert got.status == 400
            assert ("INVALID_PARAMETER", "colour") in got.codes


@pytest.mark.rule("GEN-01")
async def test_another_version_has_no_such_call(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row in operations:
        with subtests.test(row["id"]):
            for version in ("/11/", "/13/", "/", "/v12/"):
                got = await send(raw, row, where=path(row).replace(f"/{row['path'].split('/')[1]}/", version, 1))
                assert (got.status, got.codes) == (404, [("ROUTE_NOT_FOUND", None)])


async def test_a_nonce_serves_once(raw: RawClient, operations: Operations, subtests: pytest.Subtests) -> None:
    for row in operations:
        with subtests.test(row["id"]):
            base = raw.sandbox.ads_sandbox_url if row["surface"] == "ads_sandbox" else raw.sandbox.ads_url
            header = raw.sign(row["method"], base + path(row))
            first = await send(raw, row, authorization=header)
            again = await send(raw, row, authorization=header)
            assert (first.status == 401, again.status) == (False, 401)


@pytest.mark.rule("AUTH-01f")
async def test_nobody_is_let_in_unsigned(raw: RawClient, operations: Operations, subtests: pytest.Subtests) -> None:
    for row in operations:
        with subtests.test(row["id"]):
            for authorization in ("Bearer nothing", "Basic eDp5", "OAuth oauth_token=x"):
                assert (await send(raw, row, authorization=authorization)).status in {401, 403}


@pytest.mark.rule("GEN-16")
async def test_json_is_accepted_only_with_its_content_type(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row in list_operations(operations, "json"):
        for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/jsonl"}):
            with subtests.test(row["id"], headers=headers):
                got = await send(raw, row, headers=headers)
                assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "Content-Type")])


@pytest.mark.rule("GEN-16")
async def test_a_body_that_is_no_json_is_refused(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row in list_operations(operations, "json"):
        for body in (b"", b"{", b"null", b"7", b'"a"', b"\xff", b"[" * 5_000, json.dumps({"colour": 1}).encode()):
            with subtests.test(row["id"], body=body[:10]):
                assert (await send(raw, row, data=body)).status == 400


@pytest.mark.rule("GEN-15")
async def test_a_call_of_the_query_takes_no_body(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row in list_operations(operations, "none"):
        with subtests.test(row["id"]):
            assert (await send(raw, row, data=b"{}", headers=JSON)).status == 400


@pytest.mark.rule("GEN-11", "GEN-06", "GEN-08b", "GEN-12b")
async def test_a_value_of_another_type_is_refused(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row, name, parameter in (param for kind in NOT_OF_THE_TYPE for param in list_params(operations, kind)):
        # Unspecified: an empty value of a change unsets the field (ASM-101).
        for value in [value for value in NOT_OF_THE_TYPE[parameter["type"]] if value or row["method"] != "PUT"]:
            with subtests.test(row["id"], name=name, value=value):
                got = await send(raw, row, {name: value})
                assert (got.status, ("INVALID_PARAMETER", name) in got.codes) == (400, True)


@pytest.mark.rule("GEN-17", "LIM-07")
async def test_one_id_too_many_is_refused(raw: RawClient, operations: Operations, subtests: pytest.Subtests) -> None:
    for row, name, parameter in list_params(operations, "max_items"):
        with subtests.test(row["id"], name=name):
            values = ",".join(str(number) for number in range(parameter["max_items"] + 1))
            got = await send(raw, row, {name: values})
            assert (got.status, ("INVALID_PARAMETER", name) in got.codes) == (400, True)


@pytest.mark.rule("CA-05", "CARD-10b", "LI-07b", "ML-01b", "ML-02b", "POLL-01", "POLL-02", "POST-05", "POST-10")
@pytest.mark.rule("VCC-01", "VCC-01b", "VCC-01c", "VCC-01d", "VCC-01e", "GEN-06")
async def test_a_bound_is_the_last_value_that_is_taken(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for kind, make in BOUNDS.items():
        for row, name, parameter in list_params(operations, kind):
            right, wrong = make(parameter[kind])
            with subtests.test(row["id"], name=name, wrong=wrong):
                got = await send(raw, row, {name: wrong})
                assert (got.status, ("INVALID_PARAMETER", name) in got.codes) == (400, True)
                assert got.rule == RULES.get((row["id"].partition(".")[0], name), got.rule)
                taken = await send(raw, row, {name: right})
                assert taken.status == 200 or name not in {parameter for _, parameter in taken.codes}


async def test_what_is_required_is_missed_by_name(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row, name, _ in list_params(operations, "required"):
        with subtests.test(row["id"], name=name):
            got = await send(raw, row)
            assert (got.status, ("MISSING_PARAMETER", name) in got.codes) == (400, True)


async def test_a_value_that_is_not_listed_is_refused(
    raw: RawClient, operations: Operations, subtests: pytest.Subtests
) -> None:
    for row, name, _ in list_params(operations, "enum"):
        with subtests.test(row["id"], name=name):
            got = await send(raw, row, {name: "PURPLE"})
            assert (got.status, ("INVALID_PARAMETER", name) in got.codes) == (400, True)
