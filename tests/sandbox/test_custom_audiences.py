from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.api.ads.custom_audiences import HASHED
from svc_async.sandbox.api.ads.user_batches import are_lowercase_hashes
from tests.support.raw_client import RawClient, hash_sha256, open_raw_client

H = "0123456789abcdef" * 4


def make_update(*users: Any, **params: Any) -> dict[str, Any]:
    return {"operation_type": "Update", "params": {"users": list(users), **params}}


def make_delete(*users: Any) -> dict[str, Any]:
    return {"operation_type": "Delete", "params": {"users": list(users)}}


def list_held(raw: RawClient) -> list[dict[str, list[str]]]:
    users: list[dict[str, list[str]]] = raw.sandbox.audience(raw.sandbox.audience_id).users
    return users


def find_member(raw: RawClient, index: int = 0) -> Any:
    return raw.sandbox.audience(raw.sandbox.audience_id).members[index]


def make_people(first: int, count: int) -> dict[str, Any]:
    return make_update(*({"email": [f"{number:064x}"]} for number in range(first, first + count)))


async def read_state(raw: RawClient, path: str) -> tuple[int | None, bool, list[str]]:
    found = (await raw("GET", path)).data
    return found["audience_size"], found["targetable"], found["reasons_not_targetable"]


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/custom_audiences"


NEW = None, False, ["PROCESSING", "TOO_SMALL"]


@pytest.mark.rule("CA-01", "CA-03", "CA-07", "CA-12")
async def test_a_new_audience_is_empty_and_being_processed(raw: RawClient, path: str) -> None:
    assert (await raw("POST", path, {"description": "d"})).codes == [("MISSING_PARAMETER", "name")]
    got = await raw("POST", path, {"name": "Readers"})
    made = got.data
    assert (got.status, got.basis, got.json.keys()) == (200, "public", {"request", "data"})
    assert (made["name"], made["description"], made["deleted"]) == ("Readers", None, False)
    assert (made["audience_type"], made["targetable_types"]) == ("CRM", ["CRM", "EXCLUDED_CRM"])
    assert (made["permission_level"], made["owner_account_id"]) == ("READ_WRITE", raw.sandbox.account_id)
    assert await read_state(raw, f"{path}/{made['id']}") == NEW
    assert (await raw("GET", f"{path}/{made['id']}")).data == made
    assert raw.sandbox.audience(made["id"]).account_id == raw.sandbox.account_id


@pytest.mark.rule("CA-06", "CA-07")
async def test_an_audience_takes_users_at_once_and_is_targetable_hours_later(raw: RawClient, path: str) -> None:
    made = (await raw("POST", path, {"name": "Readers"})).data["id"]
    one = f"{path}/{made}"
    await raw.clock.advance(hours=5)
    assert (await raw.send_users([make_people(0, 99)], audience=made)).status == 200
    assert len(raw.sandbox.audience(made).users) == 99
    await raw.clock.advance(hours=5)
    assert await read_state(raw, one) == NEW
    await raw.clock.advance(hours=1)
    assert await read_state(raw, one) == (99, False, ["TOO_SMALL"])
    await raw.send_users([make_people(99, 1)], audience=made)
    await raw.clock.advance(hours=6)
    assert await read_state(raw, one) == (100, True, [])


@pytest.mark.rule("CA-08")
async def test_an_audience_stays_usable_while_a_change_is_processed(raw: RawClient, path: str) -> None:
    one = f"{path}/{raw.sandbox.audience_id}"
    await raw.send_users([make_people(0, 100)])
    await raw.clock.advance(hours=6)
    await raw.send_users([make_people(100, 50)])
    await raw.send_users([make_delete({"email": [f"{number:064x}"]}) for number in range(60)])
    assert await read_state(raw, one) == (100, True, [])
    await raw.clock.advance(hours=6)
    assert await read_state(raw, one) == (90, False, ["TOO_SMALL"])


@pytest.mark.rule("CA-02")
async def test_a_name_is_of_one_audience_of_the_account(raw: RawClient, path: str) -> None:
    made = (await raw("POST", path, {"name": "Readers"})).data["id"]
    for refused in (
        await raw("POST", path, {"name": "Customers"}),
        await raw("PUT", f"{path}/{made}", {"name": "Customers"}),
    ):
        assert (refused.status, refused.codes) == (400, [("INVALID_PARAMETER", "name")])
        assert (refused.rule, refused.basis) == ("CA-02", "public")
    assert (await raw("PUT", f"{path}/{made}", {"name": "Readers"})).status == 200
    assert (await raw("POST", path, {"name": "Hikers"})).status == 200
    await raw("DELETE", f"{path}/{made}")
    assert (await raw("POST", path, {"name": "Readers"})).status == 200


@pytest.mark.rule("CA-09", "CA-12")
async def test_an_update_changes_what_is_sent_and_says_whose_it_is(raw: RawClient, path: str) -> None:
    made = (await raw("POST", path, {"name": "Readers", "description": "Of the spring"})).data
    one = f"{path}/{made['id']}"
    got = await raw("PUT", one, {"name": "Regulars"})
    assert (got.data["name"], got.data["description"]) == ("Regulars", "Of the spring")
    assert got.data.keys() == made.keys() - {"owner_account_id"} | {"is_owner"}
    assert (got.data["is_owner"], got.basis) == (True, "public")
    assert (await raw("PUT", one, {"description": ""})).data["description"] is None
    assert (await raw("PUT", one)).status == 200
    assert (await raw("GET", one)).data["name"] == "Regulars"


@pytest.mark.rule("CA-10", "CA-11")
async def test_a_deleted_audience_is_kept_and_takes_no_users(raw: RawClient, path: str) -> None:
    got = await raw("DELETE", f"{path}/{raw.sandbox.audience_id}")
    assert (got.data["deleted"], got.data["name"], got.basis) == (True, "Customers", "public")
    refused = [await raw.send_users([make_update({"email": [H]})])]
    refused += [await raw(method, f"{path}/{raw.sandbox.audience_id}") for method in ("GET", "PUT", "DELETE")]
    for answer in refused:
        assert (answer.status, answer.codes) == (404, [("TAILORED_AUDIENCE_NOT_FOUND", "custom_audience_id")])
        assert (answer.rule, answer.basis) == ("CA-11", "public")
    assert list_held(raw) == []


async def test_what_a_test_adds_is_what_the_service_lists(raw: RawClient, path: str) -> None:
    added = raw.sandbox.add_audience(name="Added")
    assert [found["id"] for found in (await raw("GET", path)).data] == [raw.sandbox.audience_id, added]
    made = (await raw("POST", path, {"name": "Made"})).data["id"]
    await raw.sandbox.reset()
    assert [found["id"] for found in (await raw("GET", path)).data] == [raw.sandbox.audience_id]
    with pytest.raises(KeyError):
        raw.sandbox.audience(made)


@pytest.mark.rule("CAX-05")
@pytest.mark.parametrize("config", [SandboxConfig(closed_gates=frozenset({"allowlist"}))])
async def test_users_are_for_apps_that_were_admitted(raw: RawClient, path: str) -> None:
    assert (await raw.send_users([make_update({"email": [H]})])).status == 403
    assert (await raw("POST", path, {"name": "Readers"})).status == 200


@pytest.mark.rule("TGT-01", "TGT-02")
async def test_targeted_shows_servable_line_items_by_default(raw: RawClient) -> None:
    path = f"{raw.account}/custom_audiences/1nmth/targeted"
    got = await raw("GET", path)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert got.data == [
        {
            "campaign_id": "8wku2",
            "campaign_name": "Spring readers",
            "line_items": [
                {"id": "9cqi0", "name": "Readers, timeline", "servable": True},
                {"id": "9cqi1", "name": "Readers, video", "servable": True},
            ],
        }
    ]
    everything = await raw("GET", path, {"with_active": "false"})
    assert [item["servable"] for item in everything.data[0]["line_items"]] == [True, True, False]
    assert (await raw("GET", path, {"count": "5"})).status == 400


async def test_an_audience_that_nothing_targets_has_an_empty_list(raw: RawClient) -> None:
    fresh = raw.sandbox.add_audience()
    assert (await raw("GET", f"{raw.account}/custom_audiences/{fresh}/targeted")).data == []
    for unknown in ("nothing", "1nmti"):
        got = await raw("GET", f"{raw.account}/custom_audiences/{unknown}/targeted")
        assert (got.status, got.codes) == (404, [("TAILORED_AUDIENCE_NOT_FOUND", "custom_audience_id")])


@pytest.mark.rule("CAU-01", "CAU-07b", "CAU-10", "GEN-03")
async def test_users_are_added_with_all_their_identifiers(raw: RawClient) -> None:
    anna = {"email": [hash_sha256("anna@example.test"), hash_sha256("a@example.test")], "partner_user_id": ["p 1"]}
    ben = {"phone_number": [hash_sha256("+11234567890")]}
    got = await raw.send_users([make_update(anna), make_update(ben)])
    assert (got.status, got.data) == (200, {"success_count": 2, "total_count": 2})
    ids = {"account_id": raw.sandbox.account_id, "custom_audience_id": raw.sandbox.audience_id}
    assert got.json["request"] == {"params": ids}
    assert list_held(raw) == [anna, ben]


@pytest.mark.rule("CAX-02", "CAX-03")
async def test_counts_are_users(raw: RawClient) -> None:
    group = [make_update({"email": [H]}, {"handle": [H]}), make_delete({"svc_id": [H]}, {"device_id": [H]})]
    assert (await raw.send_users(group)).data == {"success_count": 4, "total_count": 4}


@pytest.mark.rule("CAU-08", "CAX-06")
async def test_hashes_come_in_either_case_and_are_kept_in_lower_case(raw: RawClient) -> None:
    await raw.send_users([make_update({"email": [H.upper()], "partner_user_id": ["Plain Text"]})])
    assert list_held(raw) == [{"email": [H], "partner_user_id": ["Plain Text"]}]


@pytest.mark.rule("CAU-08", "CAU-11", "ERR-05")
@pytest.mark.parametrize("kind", ["email", "device_id", "handle", "svc_id", "phone_number"])
async def test_what_is_no_hash_is_refused_by_operation(raw: RawClient, kind: str, subtests: pytest.Subtests) -> None:
    for value in ("anna@example.test", H[:-1], f"{H}0", f"{H[:-1]}g", f" {H}", "", 7, None, [H]):
        with subtests.test(value=value):
            got = await raw.send_users([make_update({"email": [H]}), make_update({kind: [H, value]})])
            assert got.status == 400
            errors = got.json["operation_errors"]
            assert [len(found) for found in errors] == [0, 1]
            assert (errors[1][0]["code"], errors[1][0]["parameter"]) == ("INVALID_PARAMETER", kind)
            assert list_held(raw) == []
            if isinstance(value, str) and value:
                assert value.encode() not in got.body


ODD = [H, "0" * 64, H.upper(), H[:-1] + " ", f" {H[2:]} ", H[:32], H[:-2] + "é", "", 5, None]


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["email", "svc_id", "partner_user_id", "e-mail"]),
            st.lists(st.sampled_from(ODD), max_size=3) | st.none(),
            max_size=3,
        )
        | st.none(),
        max_size=3,
    )
)
def test_the_quick_look_accepts_only_lists_of_lower_case_hashes(users: list[Any]) -> None:
    known = {"email", "svc_id"}
    careful = all(
        isinstance(user, dict)
        and bool(user)
        and user.keys() <= known
        and all(values and all(value in (H, "0" * 64) for value in values) for values in user.values())
        for user in users
    )
    assert are_lowercase_hashes(users, HASHED) is careful


@pytest.mark.rule("CAU-09", "ERR-06", "CAU-04")
async def test_one_bad_operation_refuses_the_whole_group(raw: RawClient) -> None:
    good = [make_update({"handle": [f"{n:064x}"]}) for n in range(10)]
    bad = {"operation_type": "Insert", "params": {"users": [{"email": [H]}]}}
    got = await raw.send_users([*good[:5], bad, *good[5:]])
    assert (got.status, list_held(raw)) == (400, [])
    assert got.json["errors"] == []
    assert isinstance(got.json["request"], list)
    assert (await raw.send_users(good)).data["success_count"] == 10


@pytest.mark.rule("ERR-05", "ERR-06b", "CAU-11")
async def test_errors_are_at_the_index_of_their_operation(raw: RawClient) -> None:
    group = [{}, make_update({"email": [H]}), 5, make_update({"email": [H]}), make_update({"email": H})]
    got = await raw.send_users(group)
    errors = got.json["operation_errors"]
    by_operation = [[error.get("parameter") for error in found] for found in errors]
    assert by_operation == [["operation_type", "params"], [], [None], [], ["email"]]
    assert got.json["operation_errors"][0][0]["code"] == "MISSING_PARAMETER"


WRONG_OPERATIONS: list[tuple[Any, str, str]] = [
    ({"params": {"users": [{"email": [H]}]}}, "operation_type", "CAU-04"),
    ({"operation_type": "update", "params": {"users": [{"email": [H]}]}}, "operation_type", "CAU-04"),
    ({"operation_type": None, "params": {"users": [{"email": [H]}]}}, "operation_type", "CAU-04"),
    ({"operation_type": "Update"}, "params", "CAU-05"),
    ({"operation_type": "Update", "params": []}, "params", "CAU-05"),
    ({"operation_type": "Update", "params": {}}, "users", "CAU-05"),
    ({"operation_type": "Update", "params": {"users": {"email": [H]}}}, "users", "CAU-05"),
    ({"operation_type": "Update", "params": {"users": None}}, "users", "CAU-05"),
    ({**make_update({"email": [H]}), "extra": 1}, "extra", "CAU-05"),
    (make_update({"email": [H]}, expires="2027-01-01T00:00:00Z"), "expires", "CAU-05"),
    (make_update({"email": [H]}, effective_at="tomorrow"), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at="2026-06-10"), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at=1781092800), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at=None), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at="2026-06-10T12:00:00"), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at="2026-06-10T12:00:00+02:00"), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, effective_at="2026-13-40T12:00:00Z"), "effective_at", "CAU-06"),
    (make_update({"email": [H]}, expires_at="2026-06-10T12:00:00Z"), "expires_at", "CAU-06b"),
    (
        make_update({"email": [H]}, effective_at="2026-07-01T00:00:00Z", expires_at="2026-07-01T00:00:00Z"),
        "expires_at",
        "CAU-06b",
    ),
    (make_update({"email": [H]}, effective_at="2028-01-01T00:00:00Z"), "expires_at", "CAU-06b"),
    (make_update({"e-mail": [H]}), "e-mail", "CAU-07"),
    (make_update({"email": H}), "email", "CAU-07"),
    (make_update({"partner_user_id": [5]}), "partner_user_id", "CAU-07"),
    (make_update("anna"), "users", "CAU-07"),
]
"""Operations, each with the field that is named and the rule that it breaks."""


@pytest.mark.rule("CAU-04", "CAU-05", "CAU-06", "CAU-06b", "CAU-07")
async def test_a_wrong_operation_is_refused_and_its_field_named(raw: RawClient, subtests: pytest.Subtests) -> None:
    for operation, parameter, rule in WRONG_OPERATIONS:
        with subtests.test(parameter, operation=operation):
            got = await raw.send_users([operation])
            assert got.status == 400
            assert [error["parameter"] for error in got.json["operation_errors"][0]] == [parameter]
            assert (got.rule, got.basis) == (rule, "spec")
            assert list_held(raw) == []


async def test_empty_things_are_refused(raw: RawClient) -> None:
    for group in ([], [make_update()], [make_update({})], [make_update({"email": []})]):
        assert (await raw.send_users(group)).status == 400
    assert (await raw.send_users([make_update({"email": [H], "handle": []})])).status == 200


@pytest.mark.rule("CAU-01", "ERR-04")
async def test_a_body_that_is_no_array_is_refused_as_a_whole(raw: RawClient, subtests: pytest.Subtests) -> None:
    for body in [b"", b"{}", b"[", b'"x"', b"null", b"[{]}", b"\xff", b"[1] [2]"]:
        with subtests.test(body=body):
            got = await raw.send_users(body)
            assert got.status == 400
            assert len(got.json["errors"]) == 1
            assert "operation_errors" not in got.json
            assert isinstance(got.json["request"], list)


@pytest.mark.rule("CAU-01b", "LIM-06", "ERR-04")
async def test_2500_operations_pass_and_2501_do_not(raw: RawClient) -> None:
    group = [make_update({"svc_id": [f"{n:064x}"]}) for n in range(2501)]
    got = await raw.send_users(group)
    assert (got.status, got.codes, got.rule) == (400, [("BATCH_SIZE_EXCEEDED", None)], "CAU-01b")
    assert list_held(raw) == []
    assert (await raw.send_users(group[:2500])).data["success_count"] == 2500


@pytest.mark.rule("CAU-02", "LIM-06", "ERR-04")
async def test_5000000_bytes_pass_and_one_more_does_not(raw: RawClient) -> None:
    group = b'[{"operation_type":"Update","params":{"users":[{"partner_user_id":["%b"]}]}}]'
    room = 5_000_000 - len(group) + len(b"%b")
    got = await raw.send_users(group % (b"x" * (room + 1)))
    assert (got.status, got.codes, got.rule) == (400, [("BATCH_SIZE_EXCEEDED", None)], "CAU-02")
    assert (await raw.send_users(group % (b"x" * room))).status == 200


@pytest.mark.rule("GEN-16")
async def test_a_content_type_may_have_parameters(raw: RawClient) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await raw.send_users([make_update({"email": [H]})], headers=headers)).status == 200


async def test_another_s_audience_is_not_there(raw: RawClient) -> None:
    for unknown in ("1nmti", "nothing"):
        assert (await raw.send_users([make_update({"email": [H]})], audience=unknown)).status == 404


@pytest.mark.rule("CAU-06", "CAU-06c")
async def test_dates_default_to_now_and_13_months_later(raw: RawClient) -> None:
    await raw.send_users([make_update({"email": [H]})])
    assert find_member(raw).effective_at == datetime(2026, 6, 10, 12, tzinfo=UTC)
    assert find_member(raw).expires_at == datetime(2027, 7, 10, 12, tzinfo=UTC)


@pytest.mark.rule("CAU-06c")
async def test_a_month_without_that_day_ends_earlier() -> None:
    async with (
        Sandbox(clock=VirtualClock("2026-01-31T08:00:00Z")) as sandbox,
        open_raw_client(sandbox) as other,
    ):
        await other.send_users([make_update({"email": [H]})])
        assert find_member(other).expires_at == datetime(2027, 2, 28, 8, tzinfo=UTC)


@pytest.mark.rule("CAU-06", "CAU-06b")
async def test_given_dates_are_kept_and_users_expire(raw: RawClient) -> None:
    dates = {"effective_at": "2026-06-10T11:00:00.5Z", "expires_at": "2026-06-10T12:30:00+00:00"}
    assert (await raw.send_users([make_update({"email": [H]}, **dates)])).status == 200
    assert find_member(raw).effective_at == datetime(2026, 6, 10, 11, 0, 0, 500_000, tzinfo=UTC)
    assert len(list_held(raw)) == 1
    await raw.clock.advance(minutes=30)
    assert list_held(raw) == []


async def test_an_update_of_an_existing_user_merges_and_renews(raw: RawClient) -> None:
    a, b = hash_sha256("a"), hash_sha256("b")
    await raw.send_users([make_update({"email": [a]}, expires_at="2026-06-11T00:00:00Z")])
    await raw.send_users([make_update({"handle": [b], "email": [a, b]}, expires_at="2026-06-12T00:00:00Z")])
    assert list_held(raw) == [{"email": [a, b], "handle": [b]}]
    assert find_member(raw).expires_at == datetime(2026, 6, 12, tzinfo=UTC)


@pytest.mark.rule("CAX-01")
async def test_a_delete_matches_any_identifier_used_to_add(raw: RawClient) -> None:
    a, b, c = hash_sha256("a"), hash_sha256("b"), hash_sha256("c")
    await raw.send_users([make_update({"email": [a], "phone_number": [b]}, {"email": [c]}, {"handle": [b]})])
    await raw.send_users([make_delete({"phone_number": [b]})])
    assert list_held(raw) == [{"email": [c]}, {"handle": [b]}]
    await raw.send_users(
        [make_update({"email": [c], "handle": [a]}), make_delete({"handle": [a]}), make_update({"svc_id": [a]})]
    )
    assert list_held(raw) == [{"handle": [b]}, {"svc_id": [a]}]
    assert (await raw.send_users([make_delete({"email": [a]}, {"email": [c]})])).data["success_count"] == 2


@pytest.mark.rule("CAX-02")
async def test_operations_apply_in_their_order(raw: RawClient) -> None:
    await raw.send_users([make_update({"email": [H]}), make_delete({"email": [H]})])
    assert list_held(raw) == []
    await raw.send_users([make_delete({"email": [H]}), make_update({"email": [H]})])
    assert list_held(raw) == [{"email": [H]}]
