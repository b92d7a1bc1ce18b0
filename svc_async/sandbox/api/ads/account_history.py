"""The changes of an account's entities, from those that the store records (HIST-01 to HIST-05)."""

from collections.abc import Mapping
from typing import Any

from svc_async.sandbox.api.ads import line_items
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import integer, long, text, timestamp
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Change, Row, format_time

__all__ = ["OPERATIONS"]

_KINDS = {
    "CAMPAIGN": "campaigns",
    "LINE_ITEM": "line_items",
    "PROMOTED_TWEET": "promoted_posts",
    "TARGETING_CRITERIA": "targeting_criteria",
    "PROMOTED_ACCOUNT": "promoted_accounts",
}
_SNAPSHOTS: Mapping[str, tuple[str, ...]] = {
    "campaigns": (
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
    ),
    "line_items": line_items.FIELDS,
}
"""The fields of a snapshot; for other kinds, all."""
_NOT_LISTED = ("created_at", "updated_at")


def _list(call: Call) -> Answer:
    start, end = call.params["start_time"], call.params["end_time"]
    if end <= start:
        refuse(invalid("ASM-95", "must be later than start_time", "end_time"))
    entity = call.params["entity_type"]
    # Unspecified: whether the end is included; here it is not.
    user = call.params["user_id"]
    changes = [
        change
        for change in call.sandbox.store.changes
        if change.kind == _KINDS[entity]
        and change.after is not None
        and (change.after.owner, change.after.id) == (call.account, call.params["entity_id"])
    ]
    entries = [
        Row(number, call.account, entry)
        for number, change in enumerate(changes)
        if start <= (entry := _make_entry(call, change, entity))["change_time"] < end
        and (user is None or str(user) == entry["change_by"]["user_id"])
    ]
    return call.answer_page(entries)


def _make_entry(call: Call, change: Change, entity: str) -> dict[str, Any]:
    after = {} if change.after is None else change.after.show()
    before = None if change.before is None else change.before.show()
    # Unspecified: the values of platform, the shape of changes, and the types beside CREATE (ASM-120).
    changes: dict[str, Any] = {}
    kind = "CREATE"
    if before is not None:
        kind = "DELETE" if after["deleted"] and not before["deleted"] else "UPDATE"
        changes = {
            name: {"before": before.get(name), "after": value}
            for name, value in after.items()
            if name not in _NOT_LISTED and before.get(name) != value
        }
    # The records of the seed have no user: the user of the account counts as their creator.
    account = call.sandbox.store["accounts"].get(call.account)
    return {
        "change_by": {"user_id": change.user or ("" if account is None else account.owner), "platform": "API"},
        "changes": changes,
        "change_time": format_time(change.time),
        "entity_id": after["id"],
        "entity": entity,
        "entity_data": {name: after[name] for name in _SNAPSHOTS.get(change.kind, after)},
        "change_type": kind,
    }


OPERATIONS = (
    Operation(
        id="account_history.list",
        method="GET",
        path="/12/accounts/{account_id}/account_history",
        handler=_list,
        query=(
            text("entity_type", required=True, enum=tuple(_KINDS), rule="HIST-02b"),
            text("entity_id", required=True, rule="HIST-02"),
            timestamp("start_time", whole_hours=True, required=True, rule="HIST-03"),
            timestamp("end_time", whole_hours=True, required=True, rule="HIST-03"),
            integer("count", default=200, minimum=1, maximum=1000, rule="GEN-06"),
            text("cursor", rule="GEN-07"),
            long("user_id", rule="HIST-04"),
        ),
        limit="account_reads",
        rule="HIST-05",
        gate="allowlist",
    ),
)
