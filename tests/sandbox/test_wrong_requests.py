"""Invalid requests to every operation of the advertising API: each is refused, and the answer names the problem.

The requests are made from the contract, not from the sandbox's declarations.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_client import RawClient

CONTRACT = Path(__file__).parents[1] / "contract"
OPERATIONS = [
    row
    for row in tomllib.loads((CONTRACT / "operations.toml").read_text(encoding="utf-8"))["operation"]
    if row["surface"].startswith("ads")
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
    "media_key": "3_880101",
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


def list_params(kind: str) -> list[Any]:
    """List the query parameters of a kind with their operations."""
    return [
        pytest.param(row, parameter, id=f"{row['id']} {parameter['name']}")
        for row in OPERATIONS
        for parameter in row.get("parameter", [])
        if parameter["in"] == "query" and (parameter["type"] == kind or parameter.get(kind))
    ]


def path(row: dict[str, Any]) -> str:
    names = [parameter["name"] for parameter in row.get("parameter", []) if parameter["in"] == "path"]
    return str(row["path"]).format_map({name: IDS.get(name, "nothing") for name in names})


async def send(raw: RawClient, row: dict[str, Any], query: Any = (), *, where: str | None = None, **given: Any) -> Any:
    """Make the call; a body that is needed is there, and is JSON."""
    if row["body"] == "json":
        given = {"data": b"[]" if row.get("body_shape") == "array" else b"{}", "headers": JSON, **given}
    base = raw.sandbox.ads_sandbox_url if row["surface"] == "ads_sandbox" else None
    return await raw(row["method"], where or path(row), query, base=base, **given)


BY_ID = pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row["id"])


@BY_ID
@pytest.mark.rule("GEN-15")
async def test_an_unknown_parameter_is_refused_and_named(raw: RawClient, row: dict[str, Any]) -> None:
    got = await send(raw, row, {"colour": "red"})
    assert got.status == 400
    assert ("INVALID_PARAMETER", "colour") in got.codes


@BY_ID
@pytest.mark.rule("GEN-01")
async def test_another_version_has_no_such_call(raw: RawClient, row: dict[str, Any]) -> None:
    for version in ("/11/", "/13/", "/", "/v12/"):
        got = await send(raw, row, where=path(row).replace(f"/{row['path'].split('/')[1]}/", version, 1))
        assert (got.status, got.codes) == (404, [("ROUTE_NOT_FOUND", None)])


@BY_ID
async def test_a_nonce_serves_once(raw: RawClient, row: dict[str, Any]) -> None:
    base = raw.sandbox.ads_sandbox_url if row["surface"] == "ads_sandbox" else raw.sandbox.ads_url
    header = raw.sign(row["method"], base + path(row))
    first = await send(raw, row, authorization=header)
    again = await send(raw, row, authorization=header)
    assert (first.status == 401, again.status) == (False, 401)


@BY_ID
@pytest.mark.rule("AUTH-01f")
async def test_nobody_is_let_in_unsigned(raw: RawClient, row: dict[str, Any]) -> None:
    for authorization in ("Bearer nothing", "Basic eDp5", "OAuth oauth_token=x"):
        assert (await send(raw, row, authorization=authorization)).status in {401, 403}


@pytest.mark.rule("GEN-16")
@pytest.mark.parametrize("row", [row for row in OPERATIONS if row["body"] == "json"], ids=lambda row: row["id"])
async def test_json_is_accepted_only_with_its_content_type(raw: RawClient, row: dict[str, Any]) -> None:
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/jsonl"}):
        got = await send(raw, row, headers=headers)
        assert (got.status, got.codes) == (400, [("INVALID_PARAMETER", "Content-Type")])


@pytest.mark.rule("GEN-16")
@pytest.mark.parametrize("row", [row for row in OPERATIONS if row["body"] == "json"], ids=lambda row: row["id"])
async def test_a_body_that_is_no_json_is_refused(raw: RawClient, row: dict[str, Any]) -> None:
    for body in (b"", b"{", b"null", b"7", b'"a"', b"\xff", b"[" * 5_000, json.dumps({"colour": 1}).encode()):
        assert (await send(raw, row, data=body)).status == 400


@pytest.mark.rule("GEN-15")
@pytest.mark.parametrize("row", [row for row in OPERATIONS if row["body"] == "none"], ids=lambda row: row["id"])
async def test_a_call_of_the_query_takes_no_body(raw: RawClient, row: dict[str, Any]) -> None:
    assert (await send(raw, row, data=b"{}", headers=JSON)).status == 400


@pytest.mark.rule("GEN-11", "GEN-06", "GEN-08b", "GEN-12b")
@pytest.mark.parametrize(("row", "parameter"), [param for kind in NOT_OF_THE_TYPE for param in list_params(kind)])
async def test_a_value_of_another_type_is_refused(
    raw: RawClient, row: dict[str, Any], parameter: dict[str, Any]
) -> None:
    # Unspecified: an empty value of a change unsets the field (ASM-101).
    for value in [value for value in NOT_OF_THE_TYPE[parameter["type"]] if value or row["method"] != "PUT"]:
        got = await send(raw, row, {parameter["name"]: value})
        assert got.status == 400
        assert ("INVALID_PARAMETER", parameter["name"]) in got.codes, value


@pytest.mark.rule("GEN-17", "LIM-07")
@pytest.mark.parametrize(("row", "parameter"), list_params("max_items"))
async def test_one_id_too_many_is_refused(raw: RawClient, row: dict[str, Any], parameter: dict[str, Any]) -> None:
    values = ",".join(str(number) for number in range(parameter["max_items"] + 1))
    got = await send(raw, row, {parameter["name"]: values})
    assert got.status == 400
    assert ("INVALID_PARAMETER", parameter["name"]) in got.codes


@pytest.mark.parametrize(("row", "parameter"), list_params("required"))
async def test_what_is_required_is_missed_by_name(
    raw: RawClient, row: dict[str, Any], parameter: dict[str, Any]
) -> None:
    got = await send(raw, row)
    assert got.status == 400
    assert ("MISSING_PARAMETER", parameter["name"]) in got.codes


@pytest.mark.parametrize(("row", "parameter"), list_params("enum"))
async def test_a_value_that_is_not_listed_is_refused(
    raw: RawClient, row: dict[str, Any], parameter: dict[str, Any]
) -> None:
    got = await send(raw, row, {parameter["name"]: "PURPLE"})
    assert got.status == 400
    assert ("INVALID_PARAMETER", parameter["name"]) in got.codes
