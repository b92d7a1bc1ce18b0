"""Do-not-reach lists: deletion, and batches of users (DNR-01 to DNR-07)."""

from datetime import timedelta
from typing import Any

from svc_async.sandbox.api.ads.user_batches import OperationGroup, OperationSchema, Rules, pause_gc
from svc_async.sandbox.server.decoding import json_field
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.reading import parse_time
from svc_async.sandbox.state.audiences import Audience
from svc_async.sandbox.state.store import Row, Store, format_time

__all__ = ["OPERATIONS", "add_do_not_reach_list"]

_LISTS, _ID = "do_not_reach_lists", "do_not_reach_list_id"
# Unspecified: when a list is targetable (ASM-116, ASM-118).
_PROCESSING = timedelta(hours=6)
_SMALLEST = 100
_PATH = "/accounts/{account_id}/do_not_reach_lists/{do_not_reach_list_id}"
# Unspecified: the limits of a group, as those of custom audiences, that there is no effective_at (ASM-114), and that
# `expires_at` may be left out (ASM-17) and be no later than its default.
_SCHEMA = OperationSchema(
    hashed=frozenset({"email", "phone_number"}),
    params=("users", "expires_at"),
    expires_bounded=True,
    rules=Rules(
        group="DNR-01",
        operations="ASM-114",
        size="ASM-114",
        operation_type="DNR-01",
        params="DNR-01",
        effective_at="DNR-01",
        expires_at="DNR-04",
        user="DNR-03",
        hash="DNR-03",
    ),
)


def add_do_not_reach_list(store: Store, account_id: str, **fields: Any) -> Row:
    """Add a new, empty list."""
    record = {
        "id": store.ids.next("do_not_reach_list", 6),
        "name": "Do not reach",
        "description": None,
        "targetable": False,
        "reasons_not_targetable": ["TOO_SMALL"],
        "list_size": 0,
    }
    row = store[_LISTS].add(account_id, record | fields)
    store.audiences[row.id] = Audience(row.id, account_id)
    return row


def _update_users(call: Call) -> Answer:
    row = call.find(_LISTS, _ID)
    with pause_gc():
        group = OperationGroup.read(call, _SCHEMA)
        group.apply(call.sandbox.store.audiences[row.id])
    call.sandbox.store[_LISTS].change(row, _taken_at=format_time(call.now))
    counts = [{"success_count": count, "total_count": count} for count in group.count()]
    return Answer(counts, request=group.sent)


def _delete(call: Call) -> Answer:
    """Delete a list and answer with its status: an upload is processed for a while, then the list may be too small."""
    row, lists = call.find(_LISTS, _ID), call.sandbox.store[_LISTS]
    size = len(call.sandbox.store.audiences[row.id].members(call.now))
    taken_at = row.fields.get("_taken_at")
    if taken_at is not None and call.now < parse_time(taken_at) + _PROCESSING:
        reasons = ["PROCESSING"]
    else:
        reasons = ["TOO_SMALL"] if size < _SMALLEST else []
    changed = lists.change(row, targetable=not reasons, reasons_not_targetable=reasons, list_size=size)
    return Answer(lists.delete(changed).show())


OPERATIONS = (
    Operation(
        id="do_not_reach_users.batch",
        method="POST",
        path=f"/12/batch{_PATH}/users",
        handler=_update_users,
        query=(
            json_field("operation_type", "string", enum=("Update", "Delete"), rule="DNR-01"),
            json_field("params", "object", rule="DNR-01"),
            json_field("params.users", "array", rule="DNR-01"),
            json_field("params.expires_at", "timestamp", rule="DNR-04"),
        ),
        limit="do_not_reach_users",
        rule="DNR-02",
        body="array",
        batch=True,
    ),
    Operation(
        id="do_not_reach_lists.delete",
        method="DELETE",
        path=f"/12{_PATH}",
        handler=_delete,
        limit="writes",
        rule="DNR-06",
    ),
)
