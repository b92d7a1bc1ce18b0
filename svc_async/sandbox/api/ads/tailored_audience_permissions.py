"""The accounts that may use a tailored audience of another account (TAP-01 to TAP-05), in version 5."""

from typing import Any

from svc_async.sandbox.api.ads.common import filter_by, list_params
from svc_async.sandbox.api.ads.features import get_features
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.decoding import csv, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, no_access, not_found
from svc_async.sandbox.state.store import Row

__all__ = ["OPERATIONS", "SHARING"]

SHARING = "SHARE_AUDIENCE_OUTSIDE_BUSINESS"
_KIND = "tailored_audience_permissions"
_PATH = "/5/accounts/{account_id}/tailored_audiences/{tailored_audience_id}/permissions"
_SORTABLE = ("id", "granted_account_id", "permission_level", "created_at", "updated_at")


def _list_permissions(call: Call) -> list[Row]:
    # Unspecified: whether deleted permissions are listed, since there is no with_deleted (CON-11); here they are not.
    audience_id = call.path["tailored_audience_id"]
    return [
        row
        for row in call.sandbox.store[_KIND]
        if row.fields["tailored_audience_id"] == audience_id and not row.deleted
    ]


def _find_audience(call: Call) -> Row:
    """Find the audience, which the account owns or has permission for."""
    row = call.sandbox.store["tailored_audiences"].get(call.path["tailored_audience_id"])
    granted = {permission.fields["granted_account_id"] for permission in _list_permissions(call)}
    if row is None or call.account not in {row.owner, *granted}:
        raise not_found("tailored_audience_id")
    return row


def _check_owner(call: Call, audience: Row) -> None:
    if audience.owner != call.account:
        # Unspecified: status and code, as those of a closed gate (UNS-gate-error).
        refusal = no_access("the permissions of an audience of another account")
        raise Refusal(refusal.status, *refusal.problems, rule="TAP-03", basis=Basis.SPEC)


def _list(call: Call) -> Answer:
    _find_audience(call)
    rows = filter_by(_list_permissions(call), "granted_account_id", call.params["granted_account_ids"])
    rows = filter_by(rows, "id", call.params["tailored_audience_permission_ids"])
    return call.answer_page(rows, sortable=_SORTABLE)


def _create(call: Call) -> Answer:
    audience = _find_audience(call)
    _check_owner(call, audience)
    granted = call.sandbox.store["accounts"].get(call.sent["granted_account_id"])
    if granted is None:
        raise not_found("granted_account_id", "account")
    _check_sharing(call, granted)
    # Unspecified: that an account may be granted the same audience twice.
    fields: dict[str, Any] = {
        "id": call.sandbox.store.ids.next(_KIND, 4),
        "tailored_audience_id": audience.id,
        **call.sent,
    }
    return Answer(call.sandbox.store[_KIND].add(audience.owner, fields).show())


def _check_sharing(call: Call, granted: Row) -> None:
    owner = call.sandbox.store["accounts"].get(call.account)
    business = None if owner is None else owner.fields["business_id"]
    together = business is not None and business == granted.fields["business_id"]
    if not together and SHARING not in get_features(call.sandbox.store, call.account):
        # Unspecified: status and code (ASM-22).
        problem = Problem(
            "FEATURE_NOT_AVAILABLE", f"sharing outside the business needs {SHARING}", "granted_account_id"
        )
        raise Refusal(400, problem, rule="TAP-04", basis=Basis.SPEC)


def _delete(call: Call) -> Answer:
    audience = _find_audience(call)
    _check_owner(call, audience)
    row = call.sandbox.store[_KIND].get(call.path["tailored_audience_permission_id"], owner=call.account)
    if row is None or row.fields["tailored_audience_id"] != audience.id:
        raise not_found("tailored_audience_permission_id")
    return Answer(call.sandbox.store[_KIND].delete(row).show())


OPERATIONS = (
    Operation(
        id="tailored_audience_permissions.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            csv("granted_account_ids", max_items=200, rule="TAP-01b"),
            csv("tailored_audience_permission_ids", max_items=200, rule="TAP-01b"),
            *(p for p in list_params(rule="TAP-01b") if p.name != "with_deleted"),
        ),
        limit="account_reads",
        rule="TAP-01b",
    ),
    Operation(
        id="tailored_audience_permissions.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(
            text("granted_account_id", required=True, rule="TAP-02"),
            text("permission_level", required=True, enum=("READ_ONLY", "READ_WRITE"), rule="TAP-02"),
        ),
        limit="writes",
        rule="TAP-02",
    ),
    Operation(
        id="tailored_audience_permissions.delete",
        method="DELETE",
        path=f"{_PATH}/{{tailored_audience_permission_id}}",
        handler=_delete,
        limit="writes",
        rule="TAP-05",
    ),
)
