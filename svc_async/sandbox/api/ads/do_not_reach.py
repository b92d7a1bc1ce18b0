"""Do-not-reach lists: deletion, and batches of users (DNR-01 to DNR-07).

The list and the creation are public facts beyond the specification (DNL-01 to DNL-03).
"""

from typing import Any

from svc_async.sandbox.api.ads.common import WITH_DELETED, list_owned
from svc_async.sandbox.api.ads.user_batches import OperationGroup, OperationSchema, Rules, pause_gc
from svc_async.sandbox.refusal import Basis, Finding, Problem, refuse
from svc_async.sandbox.server.decoding import json_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.audiences import Audience
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_do_not_reach_list"]

_LISTS, _ID = "do_not_reach_lists", "do_not_reach_list_id"
_ALL = "/accounts/{account_id}/do_not_reach_lists"
_PATH = f"{_ALL}/{{do_not_reach_list_id}}"
# Unspecified: that `expires_at` may be left out (ASM-17).
_SCHEMA = OperationSchema(
    hashed=frozenset({"email", "phone_number"}),
    params=("users", "expires_at"),
    expires_bounded=True,
    rules=Rules(
        group="DNR-01",
        operations="DNL-06",
        size="DNL-06",
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
        "name": "Do Not Reach List",
        "description": None,
    }
    row = store[_LISTS].add(account_id, record | fields)
    store.audiences[row.id] = Audience(row.id, account_id, store.now())
    return row


def _show(call: Call, row: Row) -> dict[str, Any]:
    audience = call.sandbox.store.audiences[row.id]
    reasons = audience.list_reasons(call.now)
    return {
        **row.show(),
        "targetable": not reasons,
        "reasons_not_targetable": reasons,
        "list_size": audience.find_size(call.now),
    }


def _create(call: Call) -> Answer:
    if list_owned(call, _LISTS):
        # Unspecified: status and code, and that a list may follow a deleted one (UNA-second-list).
        refuse(Finding("DNL-01", Problem("INVALID_PARAMETER", "the account has a list already")))
    return Answer(_show(call, add_do_not_reach_list(call.sandbox.store, call.account, **call.sent)))


def _update_users(call: Call) -> Answer:
    row = call.find(_LISTS, _ID)
    with pause_gc():
        group = OperationGroup.read(call, _SCHEMA)
        group.apply(call.sandbox.store.audiences[row.id], call.now)
    counts = [{"success_count": count, "total_count": count} for count in group.count()]
    return Answer(counts, request=group.sent)


OPERATIONS = (
    Operation(
        id="do_not_reach_lists.list",
        method="GET",
        path=f"/12{_ALL}",
        handler=lambda call: call.answer_page(list_owned(call, _LISTS), show=lambda row: _show(call, row)),
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="DNL-03",
        basis=Basis.PUBLIC,
    ),
    Operation(
        id="do_not_reach_lists.create",
        method="POST",
        path=f"/12{_ALL}",
        handler=_create,
        query=(text("description", rule="DNL-02"),),
        limit="writes",
        rule="DNL-02",
        basis=Basis.PUBLIC,
    ),
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
        handler=lambda call: Answer(_show(call, call.sandbox.store[_LISTS].delete(call.find(_LISTS, _ID)))),
        limit="writes",
        rule="DNR-06",
    ),
)
