from typing import Any

import pytest

from svc_async.sandbox import SandboxConfig
from tests.support.raw_client import RawClient

ANNA = "756201191646691328"
DAY = {"start_time": "2026-06-10T00:00:00Z", "end_time": "2026-06-11T00:00:00Z"}
CAMPAIGN_FIELDS = {
    "name",
    "start_time",
    "end_time",
    "purchase_order_number",
    "daily_budget_amount_local_micro",
    "total_budget_amount_local_micro",
    "duration_in_days",
    "standard_delivery",
    "entity_status",
    "frequency_cap",
    "created_at",
    "updated_at",
    "deleted",
}


async def read_history(raw: RawClient, entity: str = "LINE_ITEM", entity_id: str = "9cqi0", **query: Any) -> Any:
    given = {"entity_type": entity, "entity_id": entity_id, **DAY, **query}
    return await raw("GET", f"{raw.account}/account_history", given)


@pytest.fixture
async def changed_line_item(raw: RawClient) -> Any:
    """A line item that was changed twice, refused once and deleted."""
    path = f"{raw.account}/line_items/9cqi0"
    for given in (
        {"name": "First"},
        {"frequency_cap": "0x"},
        {"entity_status": "PAUSED", "audience_expansion": "BROAD"},
    ):
        await raw.clock.advance(hours=1)
        await raw("PUT", path, given)
    await raw.clock.advance(hours=1)
    await raw("DELETE", path)
    return raw


@pytest.mark.rule("HIST-05", "HIST-05b", "GEN-04")
async def test_history_lists_the_changes_that_took_effect(changed_line_item: RawClient) -> None:
    got = await read_history(changed_line_item)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert [(entry["change_type"], entry["change_time"][11:13]) for entry in got.data] == [
        ("CREATE", "12"),
        ("UPDATE", "13"),
        ("UPDATE", "15"),
        ("DELETE", "16"),
    ]
    names = {"change_by", "changes", "change_time", "entity_id", "entity", "entity_data", "change_type"}
    assert all(entry.keys() == names for entry in got.data)
    assert all(entry["change_by"].keys() == {"user_id", "platform"} for entry in got.data)
    assert {(entry["entity"], entry["entity_id"]) for entry in got.data} == {("LINE_ITEM", "9cqi0")}
    assert [entry["changes"] for entry in got.data] == [
        {},
        {"name": {"before": "Readers, timeline", "after": "First"}},
        {
            "entity_status": {"before": "ACTIVE", "after": "PAUSED"},
            "audience_expansion": {"before": None, "after": "BROAD"},
        },
        {"deleted": {"before": False, "after": True}},
    ]


@pytest.mark.rule("HIST-05b")
async def test_a_snapshot_is_the_entity_as_it_was(changed_line_item: RawClient) -> None:
    snapshots = [entry["entity_data"] for entry in (await read_history(changed_line_item)).data]
    assert [(snapshot["name"], snapshot["entity_status"]) for snapshot in snapshots] == [
        ("Readers, timeline", "ACTIVE"),
        ("First", "ACTIVE"),
        ("First", "PAUSED"),
        ("First", "PAUSED"),
    ]
    assert [snapshot["deleted"] for snapshot in snapshots] == [False, False, False, True]
    campaign = await read_history(changed_line_item, "CAMPAIGN", "8wku2")
    assert [entry["entity_data"].keys() for entry in campaign.data] == [CAMPAIGN_FIELDS]


@pytest.mark.rule("HIST-02")
async def test_four_parameters_are_required(raw: RawClient) -> None:
    got = await raw("GET", f"{raw.account}/account_history")
    needed = ("entity_type", "entity_id", "start_time", "end_time")
    assert got.codes == [("MISSING_PARAMETER", name) for name in needed]


@pytest.mark.rule("HIST-02b")
async def test_five_types_of_entities_have_a_history(raw: RawClient) -> None:
    for entity in ("CAMPAIGN", "LINE_ITEM", "PROMOTED_TWEET", "TARGETING_CRITERIA", "PROMOTED_ACCOUNT"):
        assert (await read_history(raw, entity, "nothing")).data == []
    refused = await read_history(raw, "CARD")
    assert (refused.codes, refused.rule) == ([("INVALID_PARAMETER", "entity_type")], "HIST-02b")


@pytest.mark.rule("HIST-03")
@pytest.mark.parametrize("name", ["start_time", "end_time"])
@pytest.mark.parametrize(
    "value", ["2026-06-10T12:30:00Z", "2026-06-10T12:00:01Z", "2026-06-10T12:00:00.5Z", "2026-06-10"]
)
async def test_times_are_whole_hours(raw: RawClient, name: str, value: str) -> None:
    got = await read_history(raw, **{name: value})
    assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", name)], "HIST-03")


@pytest.mark.rule("HIST-03")
async def test_the_window_holds_its_start_and_not_its_end(changed_line_item: RawClient) -> None:
    got = await read_history(changed_line_item, start_time="2026-06-10T13:00:00Z", end_time="2026-06-10T15:00:00Z")
    assert [entry["change_type"] for entry in got.data] == ["UPDATE"]
    assert (await read_history(changed_line_item, start_time=DAY["end_time"], end_time=DAY["start_time"])).status == 400


@pytest.mark.rule("HIST-04", "GEN-11")
async def test_one_user_may_be_asked_for(changed_line_item: RawClient) -> None:
    assert len((await read_history(changed_line_item, user_id=ANNA)).data) == 4
    assert (await read_history(changed_line_item, user_id="913311844217532416")).data == []
    assert (await read_history(changed_line_item, user_id="9223372036854775807")).status == 200
    for wrong in ("anna", "9223372036854775808", "1.0"):
        assert (await read_history(changed_line_item, user_id=wrong)).codes == [("INVALID_PARAMETER", "user_id")]


@pytest.mark.rule("HIST-05", "GEN-06", "GEN-07")
async def test_history_comes_in_pages_up_to_a_thousand(changed_line_item: RawClient) -> None:
    first = await read_history(changed_line_item, count=3)
    rest = await read_history(changed_line_item, count=3, cursor=first.json["next_cursor"])
    assert [len(page.data) for page in (first, rest)] == [3, 1]
    assert rest.json["next_cursor"] is None
    for query in ({"count": 0}, {"count": 1001}, {"sort_by": "change_time-asc"}, {"with_total_count": "true"}):
        assert (await read_history(changed_line_item, **query)).status == 400


@pytest.mark.rule("LI-21")
async def test_a_deleted_line_item_leaves_its_promoted_posts(changed_line_item: RawClient) -> None:
    got = await read_history(changed_line_item, "PROMOTED_TWEET", "6efl3")
    assert [entry["change_type"] for entry in got.data] == ["CREATE"]
    snapshot = got.data[0]["entity_data"]
    assert (snapshot["line_item_id"], snapshot["deleted"]) == ("9cqi0", False)


async def test_the_history_of_another_s_entity_is_empty(raw: RawClient) -> None:
    assert (await read_history(raw, "LINE_ITEM", "9cqk1")).data == []


@pytest.mark.rule("HIST-01")
@pytest.mark.parametrize("config", [SandboxConfig(closed_gates=frozenset({"allowlist"}))])
async def test_history_needs_allowlisting(raw: RawClient) -> None:
    got = await read_history(raw)
    assert (got.status, got.codes, got.rule) == (403, [("UNAUTHORIZED_CLIENT_APPLICATION", None)], "ASM-22")
