import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.raw_client import RawClient

LIST = "dnr7k1"
FIELDS = {
    "id",
    "name",
    "description",
    "targetable",
    "reasons_not_targetable",
    "list_size",
    "created_at",
    "updated_at",
    "deleted",
}
H = "0123456789abcdef" * 4
JSON = {"Content-Type": "application/json"}


def make_update(*users: Any, **params: Any) -> dict[str, Any]:
    return {"operation_type": "Update", "params": {"users": list(users), **params}}


def make_delete(*users: Any) -> dict[str, Any]:
    return {"operation_type": "Delete", "params": {"users": list(users)}}


async def send(raw: RawClient, operations: Any, *, to: str = LIST, headers: Any = JSON) -> Any:
    body = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
    path = f"/12/batch/accounts/{raw.sandbox.account_id}/do_not_reach_lists/{to}/users"
    return await raw("POST", path, data=body, headers=headers)


def list_held(raw: RawClient) -> Any:
    return raw.sandbox.audience(LIST).users


def make_phones(count: int) -> list[dict[str, list[str]]]:
    return [{"phone_number": [f"{number:064x}"]} for number in range(count)]


@pytest.mark.rule("DNR-01", "DNR-02", "DNR-02b", "DNR-03", "ERR-06b")
async def test_each_operation_has_its_counts_and_the_request_echoes_all(raw: RawClient) -> None:
    group = [
        make_update({"email": [H], "phone_number": ["a" * 64]}, {"email": ["b" * 64]}),
        make_delete({"email": [H]}),
    ]
    got = await send(raw, group)
    assert got.json.keys() == {"request", "data"}
    assert got.data == [{"success_count": 2, "total_count": 2}, {"success_count": 1, "total_count": 1}]
    assert got.json["request"] == group
    assert list_held(raw) == [{"email": ["b" * 64]}]


@pytest.mark.rule("DNR-03", "DNR-01b", "ERR-05", "ERR-06", "ERR-06b")
async def test_users_are_hashed_emails_and_phone_numbers(raw: RawClient, subtests: pytest.Subtests) -> None:
    for user in [{kind: [H]} for kind in ("handle", "device_id", "svc_id", "partner_user_id")] + [
        {"email": ["anna@example.test"]},
        {"phone_number": ["+11234567890"]},
        {"email": H},
        H,
        {},
    ]:
        with subtests.test(user=user):
            got = await send(raw, [make_update({"email": [H]}), make_update(user)])
            assert (got.status, got.rule, got.basis) == (400, "DNR-03", "spec")
            assert [len(found) for found in got.json["operation_errors"]] == [0, 1]
            assert isinstance(got.json["request"], list)
            assert list_held(raw) == []


@pytest.mark.rule("DNR-01", "DNR-01b", "DNL-05", "ERR-05")
async def test_an_operation_has_a_type_and_params(raw: RawClient, subtests: pytest.Subtests) -> None:
    for operation, code, parameter in [
        ({"params": {"users": [{"email": [H]}]}}, "MISSING_PARAMETER", "operation_type"),
        ({"operation_type": "Update"}, "MISSING_PARAMETER", "params"),
        ({"operation_type": "Update", "params": {}}, "MISSING_PARAMETER", "users"),
        ({"operation_type": "Insert", "params": {"users": [{"email": [H]}]}}, "INVALID_PARAMETER", "operation_type"),
        (make_update({"email": [H]}, effective_at="2026-06-10T12:00:00Z"), "INVALID_PARAMETER", "effective_at"),
        ("Update", "INVALID_PARAMETER", None),
    ]:
        with subtests.test(operation=operation, code=code, parameter=parameter):
            got = await send(raw, [operation])
            assert (got.status, got.rule) == (400, "DNR-01")
            (found,) = got.json["operation_errors"][0]
            assert (found["code"], found.get("parameter")) == (code, parameter)


@pytest.mark.rule("DNR-01", "DNR-01b", "ERR-04")
async def test_the_body_is_an_array_of_operations(raw: RawClient, subtests: pytest.Subtests) -> None:
    for body in [b"{}", b"[]"]:
        with subtests.test(body=body):
            got = await send(raw, body)
            assert (got.status, len(got.json["errors"]), "operation_errors" in got.json) == (400, 1, False)


@pytest.mark.rule("DNR-01b", "ERR-04", "DNL-06")
async def test_a_group_has_up_to_2500_operations_and_5000000_bytes(raw: RawClient) -> None:
    group = [make_update({"email": [H]})] * 2501
    got = await send(raw, group)
    assert (got.status, got.codes, got.rule, got.basis) == (400, [("BATCH_SIZE_EXCEEDED", None)], "DNL-06", "public")
    assert (await send(raw, group[:2500])).status == 200
    spaces = b" " * (5_000_000 - len(json.dumps(group[:1])))
    assert (await send(raw, json.dumps(group[:1]).encode() + spaces)).status == 200
    assert (await send(raw, json.dumps(group[:1]).encode() + spaces + b" ")).rule == "DNL-06"


@pytest.mark.rule("DNR-04")
async def test_an_expiry_is_later_than_now(raw: RawClient, subtests: pytest.Subtests) -> None:
    for value in ["2026-06-10T12:00:00Z", "2026-06-10T11:59:59Z", "2026-07-01", "soon", 7, None]:
        with subtests.test(value=value):
            got = await send(raw, [make_update({"email": [H]}, expires_at=value)])
            assert (got.status, got.rule) == (400, "DNR-04")
            assert got.json["operation_errors"][0][0]["parameter"] == "expires_at"
            assert (await send(raw, [make_update({"email": [H]}, expires_at="2026-06-10T12:00:01Z")])).status == 200


@pytest.mark.rule("DNR-04b")
async def test_the_expiry_defaults_to_13_months(raw: RawClient) -> None:
    await send(raw, [make_update({"email": [H]})])
    assert raw.sandbox.audience(LIST).members[0].expires_at == datetime(2027, 7, 10, 12, tzinfo=UTC)


@pytest.mark.rule("DNL-04")
async def test_the_expiry_is_within_13_months(raw: RawClient) -> None:
    late = [make_update({"email": [H]}, expires_at="2027-07-10T12:00:01Z")]
    assert (await send(raw, late)).rule == "DNL-04"


@pytest.mark.rule("DNR-06", "GEN-14")
async def test_a_list_is_deleted_once_and_softly(raw: RawClient) -> None:
    path = f"{raw.account}/do_not_reach_lists/{LIST}"
    assert (await raw("DELETE", path, {"with_deleted": "true"})).status == 400
    got = await raw("DELETE", path)
    assert got.json.keys() == {"request", "data"}
    assert got.data.keys() == FIELDS
    assert (got.data["id"], got.data["name"], got.data["deleted"]) == (LIST, "Asked to be left alone", True)
    missing = [("DO_NOT_REACH_LIST_NOT_FOUND", "do_not_reach_list_id")]
    assert (await raw("DELETE", path)).codes == missing
    assert (await send(raw, [make_update({"email": [H]})])).codes == missing


async def test_another_s_list_is_not_there(raw: RawClient) -> None:
    for unknown in ("dnr7k9", "nothing"):
        assert (await raw("DELETE", f"{raw.account}/do_not_reach_lists/{unknown}")).status == 404
        assert (await send(raw, [make_update({"email": [H]})], to=unknown)).status == 404


@pytest.mark.rule("DNR-07")
@pytest.mark.parametrize(
    ("users", "hours", "reasons", "size"),
    [
        (99, 7, ["TOO_SMALL"], 99),
        (100, 5, ["PROCESSING", "TOO_SMALL"], None),
        (100, 6, [], 100),
        (0, 0, ["PROCESSING", "TOO_SMALL"], None),
    ],
)
async def test_a_list_is_targetable_when_processed_and_large(
    raw: RawClient, users: int, hours: int, reasons: Any, size: int | None
) -> None:
    if users:
        await send(raw, [make_update(*make_phones(users))])
    await raw.clock.advance(hours=hours)
    listed = (await raw("GET", f"{raw.account}/do_not_reach_lists")).data[0]
    got = await raw("DELETE", f"{raw.account}/do_not_reach_lists/{LIST}")
    assert (got.data["targetable"], got.data["reasons_not_targetable"]) == (not reasons, reasons)
    assert got.data["list_size"] == size
    assert listed == {**got.data, "deleted": False, "updated_at": listed["updated_at"]}


@pytest.mark.rule("DNL-03", "GEN-14b")
async def test_the_lists_of_an_account_are_listed(raw: RawClient) -> None:
    path = f"{raw.account}/do_not_reach_lists"
    got = await raw("GET", path)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert (got.basis, [(found["id"], found.keys()) for found in got.data]) == ("public", [(LIST, FIELDS)])
    assert (await raw("GET", path, {"count": "5"})).status == 400
    await raw("DELETE", f"{path}/{LIST}")
    assert (await raw("GET", path)).data == []
    assert [found["deleted"] for found in (await raw("GET", path, {"with_deleted": "true"})).data] == [True]


@pytest.mark.rule("DNL-01")
async def test_an_account_has_one_list(raw: RawClient) -> None:
    path = f"{raw.account}/do_not_reach_lists"
    got = await raw("POST", path)
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", None)], "DNL-01")
    assert got.basis == "public"
    await raw("DELETE", f"{path}/{LIST}")
    made = (await raw("POST", path)).data["id"]
    assert [found["id"] for found in (await raw("GET", path)).data] == [made]


@pytest.mark.rule("DNL-02", "DNL-02b", "DNL-03")
async def test_a_new_list_is_named_by_the_service_and_takes_users_at_once(raw: RawClient) -> None:
    path = f"/12/accounts/{raw.sandbox.add_account()}/do_not_reach_lists"
    assert (await raw("POST", path, {"name": "Mine"})).codes == [("INVALID_PARAMETER", "name")]
    got = await raw("POST", path, {"description": "Opted out"})
    made = got.data
    assert (got.basis, made.keys()) == ("public", FIELDS)
    assert (made["name"], made["description"], made["list_size"]) == ("Do Not Reach List", "Opted out", None)
    assert (made["targetable"], made["reasons_not_targetable"]) == (False, ["PROCESSING", "TOO_SMALL"])
    batch = f"/12/batch{path.removeprefix('/12')}/{made['id']}/users"
    group = json.dumps([make_update({"email": [H]})]).encode()
    assert (await raw("POST", batch, data=group, headers=JSON)).status == 200
    assert raw.sandbox.audience(made["id"]).users == [{"email": [H]}]
    await raw.clock.advance(hours=6)
    assert [found["list_size"] for found in (await raw("GET", path)).data] == [1]


@pytest.mark.rule("DNL-07")
async def test_a_list_leaves_audiences_as_they_are(raw: RawClient) -> None:
    await raw.send_users([make_update({"email": [H]})])
    await send(raw, [make_update({"email": [H]})])
    assert raw.sandbox.audience(raw.sandbox.audience_id).users == [{"email": [H]}]
