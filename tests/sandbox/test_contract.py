"""The sandbox's declarations against the contract: method, path, parameters, required, enums, bounds."""

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async.sandbox import Sandbox
from svc_async.sandbox.api.ads import OPERATIONS
from svc_async.sandbox.api.ads.user_batches import MAX_BYTES, MAX_OPERATIONS
from svc_async.sandbox.config import RATE_RULES
from svc_async.sandbox.refusal import Basis
from svc_async.sandbox.server.decoding import Param
from svc_async.sandbox.server.operations import Operation
from svc_async.sandbox.server.rendering import Format
from svc_async.sandbox.state import audiences

BASE = tuple(operation for operation in Sandbox().operations if operation.surface == "base")
EVERY = (*OPERATIONS, *BASE)
NOT_SHOWN = {
    "activity_subscriptions.delete",
    "activity_subscriptions.list",
    "activity_subscriptions.update",
    "filtered_stream.connect",
    "oauth1.decide",
    "oauth2.authorize",
    "oauth2.decide",
    "oauth2.exchange",
    "oauth2.revoke",
    "stream_rules.list",
}
"""Calls of the main API that the documents do not show; they rest on assumptions."""

INSIDE = {"activity_subscriptions.create": {"direction"}}
"""Parameters inside an object of the body, which the family reads: ASM-51 has `filter.direction`."""

SCHEMES = {"client_credentials": "basic_app"}  # ASM-70
GATES = ("early_access", "beta", "allowlist")
PUBLIC_GATES = {"custom_audience_users.batch": ["allowlist"]}  # CAX-05
BEYOND = {"posts.create": {"paid_partnership"}}
"""Parameters that a release note names and no table lists (CON-23)."""

CONTRACT = Path(__file__).parents[1] / "contract"


def read_rows(name: str, table: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in tomllib.loads((CONTRACT / f"{name}.toml").read_text()).get(table, ())}


def read_public_rows(table: str) -> dict[str, dict[str, Any]]:
    """Return the rows of public facts beyond the specification."""
    names = [f"beyond/{path.stem}" for path in sorted(CONTRACT.glob("beyond/*.toml"))]
    return {name: row for rows in (read_rows(each, table) for each in names) for name, row in rows.items()}


PUBLIC_OPERATIONS = read_public_rows("operation")
CONTRACT_OPERATIONS = PUBLIC_OPERATIONS | read_rows("operations", "operation")
ENUMS = read_public_rows("enum") | read_rows("enums", "enum")
LIMITS = read_public_rows("limit") | read_rows("limits", "limit")


def describe_declared(param: Param) -> dict[str, Any]:
    return {
        "in": param.place,
        "type": param.type,
        "required": param.required,
        "default": param.default,
        "min": param.minimum,
        "max": param.maximum,
        "exclusive_min": param.above,
        "min_length": param.min_length,
        "max_length": param.max_length,
        "max_items": param.max_items,
        "enum": set(param.enum),
    }


def describe_stated(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "in": row["in"],
        "type": "string" if row["type"] == "unspecified" else row["type"],
        "required": row["required"],
        "default": row.get("default"),
        "min": row.get("min"),
        "max": row.get("max"),
        "exclusive_min": row.get("exclusive_min"),
        "min_length": row.get("min_length"),
        "max_length": row.get("max_length"),
        "max_items": row.get("max_items"),
        "enum": set(ENUMS[row["enum"]]["values"]) if "enum" in row else set(),
    }


@pytest.mark.rule("GEN-01", "GEN-02", "GEN-06", "GEN-08b", "GEN-11", "GEN-17")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_each_call_is_declared_as_the_contract_has_it(operation: Operation) -> None:
    row = CONTRACT_OPERATIONS[operation.id]
    assert (operation.method, operation.path, operation.surface) == (row["method"], row["path"], row["surface"])
    assert operation.body == row.get("body_shape", row["body"])
    assert operation.basis == Basis.PUBLIC or operation.id not in PUBLIC_OPERATIONS
    flags = [flag for flag in GATES if row.get(flag)] + PUBLIC_GATES.get(operation.id, [])
    assert operation.gate in flags if flags else operation.gate is None
    expected = {param["name"]: describe_stated(param) for param in row.get("parameter", [])}
    listed = [param for param in operation.params if param.name not in BEYOND.get(operation.id, ())]
    assert {param.name: describe_declared(param) for param in listed} == expected


@pytest.mark.rule("VER-02")
@pytest.mark.parametrize("operation", BASE, ids=lambda operation: operation.id)
def test_each_call_of_the_main_api_is_declared_as_far_as_the_contract_has_it(operation: Operation) -> None:
    if operation.id in NOT_SHOWN:
        assert operation.id not in CONTRACT_OPERATIONS
        assert operation.basis != "spec"
        return
    row = CONTRACT_OPERATIONS[operation.id]
    assert (operation.method, operation.path, operation.surface) == (row["method"], row["path"], row["surface"])
    if row["auth"] != "unspecified":
        assert SCHEMES.get(row["auth"], row["auth"]) in operation.schemes
    if row["body"] != "unspecified":
        assert operation.body == row["body"]
    stated = {param["name"]: param for param in row.get("parameter", [])}
    for param in operation.params:
        if param.name in stated:
            assert _agrees_where_stated(describe_declared(param), stated[param.name])
    assert stated.keys() <= {param.name for param in operation.params} | INSIDE.get(operation.id, set())


@pytest.mark.rule("AUTH-25", "VER-01")
def test_the_five_webhook_calls_take_the_bearer_token_and_nothing_else() -> None:
    calls = [operation for operation in BASE if operation.id.startswith("webhooks.")]
    assert [(operation.schemes, operation.path[:3]) for operation in calls] == [(("bearer_app",), "/2/")] * 5


def _agrees_where_stated(ours: dict[str, Any], row: dict[str, Any]) -> bool:
    """Compare what is stated; a parameter that may stand in several places is required in none of them."""
    theirs = describe_stated(row)
    if row["in"] == "unspecified":
        ours, theirs = ours | {"in": "", "required": False}, theirs | {"in": "", "required": False}
    if row["type"] == "unspecified":
        ours, theirs = ours | {"type": ""}, theirs | {"type": ""}
    return ours == theirs


def test_every_rule_that_is_named_is_in_the_contract() -> None:
    known = read_rows("rules", "rule").keys() | read_rows("assumptions", "assumption").keys()
    known |= read_public_rows("rule").keys()
    named = {operation.rule for operation in EVERY} | {p.rule for o in EVERY for p in o.params}
    assert named <= known


@pytest.mark.rule("CAU-01b", "CAU-02", "CAU-03", "LIM-05", "LIM-06")
def test_the_numbers_are_the_contract_s() -> None:
    assert LIMITS["audience_users.operations"]["value"] == MAX_OPERATIONS
    assert LIMITS["audience_users.bytes"]["value"] == MAX_BYTES
    for rule, limit in (("audience_users", "audience_users.rate"), ("total_count", "total_count.rate")):
        stated = LIMITS[limit]["value"], LIMITS[limit]["per_minutes"] * 60
        assert (RATE_RULES[rule].requests, RATE_RULES[rule].seconds) == stated
    processing = LIMITS["custom_audience.processing"]
    assert processing["min"] <= audiences.PROCESSING / timedelta(hours=1) <= processing["max"]
    assert LIMITS["custom_audience.min_matches"]["value"] == audiences.SMALLEST


@pytest.mark.parametrize("operation", EVERY, ids=lambda operation: operation.id)
def test_ids_are_unique_and_rules_of_rate_exist(operation: Operation) -> None:
    assert [other.id for other in EVERY].count(operation.id) == 1
    assert operation.limit in RATE_RULES or (operation.limit is None and operation.format is Format.HTML)
