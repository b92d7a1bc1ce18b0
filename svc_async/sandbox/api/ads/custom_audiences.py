"""Custom audiences: line items that target them, and batches of users (TGT-01, TGT-02, CAU-01 to CAU-11).

The audiences themselves and their permissions are public facts beyond the specification (CA-01 to CA-12, CAP-01 to
CAP-05).
"""

from typing import Any

from svc_async.sandbox.api.ads.common import WITH_DELETED, filter_by, filter_by_name, list_owned, list_params
from svc_async.sandbox.api.ads.shared_audiences import SharedAudiences
from svc_async.sandbox.api.ads.user_batches import OperationGroup, OperationSchema, Rules, pause_gc
from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.refusal import Basis, invalid, refuse
from svc_async.sandbox.server.decoding import boolean, csv, json_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.audiences import Audience
from svc_async.sandbox.state.store import Row, Store

__all__ = ["HASHED", "OPERATIONS", "add_audience"]

_KIND = "custom_audiences"
_LIST = "/12/accounts/{account_id}/custom_audiences"
_PATH = f"{_LIST}/{{custom_audience_id}}"
_SORTABLE = ("id", "name", "created_at", "updated_at")
_AUDIENCES = SharedAudiences(
    kind="custom_audience",
    path=_PATH,
    unknown="CA-11",
    listing="CAP-05",
    granting="CAP-01",
    owning="CAP-02",
    together="CAP-03",
    revoking="CAP-04",
)
HASHED = frozenset({"email", "device_id", "handle", "svc_id", "phone_number"})
_SCHEMA = OperationSchema(
    hashed=HASHED,
    plain=frozenset({"partner_user_id"}),
    params=("users", "effective_at", "expires_at"),
    rules=Rules(
        group="CAU-01",
        operations="CAU-01b",
        size="CAU-02",
        operation_type="CAU-04",
        params="CAU-05",
        effective_at="CAU-06",
        expires_at="CAU-06b",
        user="CAU-07",
        hash="CAU-08",
    ),
)


def add_audience(store: Store, account_id: str, *, name: str = "Audience", **fields: Any) -> Row:
    """Add a new, empty audience."""
    check_kind("name", str, name)
    record = {
        "id": fields.get("id") or store.ids.next("custom_audience", 5),
        "name": name,
        "description": None,
        "audience_type": "CRM",
        "targetable_types": ["CRM", "EXCLUDED_CRM"],
        "partner_source": "OTHER",
    }
    row = store[_KIND].add(account_id, record | fields)
    store.audiences[row.id] = Audience(row.id, account_id, store.now())
    return row


def _show(call: Call, row: Row) -> dict[str, Any]:
    audience = call.sandbox.store.audiences[row.id]
    reasons = audience.list_reasons(call.now)
    return {
        **row.show(),
        "audience_size": audience.find_size(call.now),
        "targetable": not reasons,
        "reasons_not_targetable": reasons,
        "permission_level": "READ_WRITE" if row.owner == call.account else _AUDIENCES.list_levels(call)[row.id],
        "owner_account_id": row.owner,
    }


def _list(call: Call) -> Answer:
    if call.params["permission_scope"] == "SHARED":
        shared = filter_by(call.sandbox.store[_KIND], "id", _AUDIENCES.list_levels(call))
        rows = [row for row in shared if call.params["with_deleted"] or not row.deleted]
    else:
        rows = list_owned(call, _KIND)
    rows = filter_by_name(filter_by(rows, "id", call.params["custom_audience_ids"]), call.params["q"])
    return call.answer_page(rows, sortable=_SORTABLE, show=lambda row: _show(call, row))


def _create(call: Call) -> Answer:
    _check_name(call)
    return Answer(_show(call, add_audience(call.sandbox.store, call.account, **call.sent)))


def _check_name(call: Call, own: str | None = None) -> None:
    """Refuse a name that another audience of the account has."""
    # Unspecified: within what a name is unique, whether that of a deleted audience is free, status and code
    # (UNA-name-taken).
    if any(row.fields["name"] == call.sent.get("name") and row.id != own for row in list_owned(call, _KIND)):
        refuse(invalid("CA-02", "is the name of another audience of the account", "name"))


def _update(call: Call) -> Answer:
    row = _AUDIENCES.find_own(call)
    _check_name(call, own=row.id)
    shown = _show(call, call.sandbox.store[_KIND].change(row, **call.sent))
    del shown["owner_account_id"]  # CA-12
    return Answer({**shown, "is_owner": True})


def _delete(call: Call) -> Answer:
    # Unspecified: what becomes of line items that target it; here they stay (UNA-delete-used).
    return Answer(_show(call, call.sandbox.store[_KIND].delete(_AUDIENCES.find_own(call))))


def _list_targeted(call: Call) -> Answer:
    audience = _AUDIENCES.find(call)
    rows = [
        Row(campaign.position, campaign.owner, entry)
        for campaign in call.sandbox.store["campaigns"]
        if campaign.owner == call.account and (entry := _make_entry(call, campaign, audience.id))["line_items"]
    ]
    return call.answer_page(rows)


def _make_entry(call: Call, campaign: Row, audience_id: str) -> dict[str, Any]:
    line_items = [
        {"id": row.id, "name": row.fields["name"], "servable": row.fields["servable"]}
        for row in call.sandbox.store["line_items"]
        if row.fields["campaign_id"] == campaign.id
        and audience_id in row.fields["custom_audience_ids"]
        and not row.deleted
        and (row.fields["servable"] or not call.params["with_active"])
    ]
    return {"campaign_id": campaign.id, "campaign_name": campaign.fields["name"], "line_items": line_items}


def _update_users(call: Call) -> Answer:
    audience = call.sandbox.store.audiences[_AUDIENCES.find_own(call).id]
    with pause_gc():
        group = OperationGroup.read(call, _SCHEMA)
        group.apply(audience, call.now)
    count = sum(group.count())
    return Answer({"success_count": count, "total_count": count})


OPERATIONS = (
    Operation(
        id="custom_audiences.list",
        method="GET",
        path=_LIST,
        handler=_list,
        query=(
            text("permission_scope", enum=("OWNER", "SHARED"), default="OWNER", rule="CA-04"),
            text("q", min_length=1, max_length=255, rule="CA-05"),
            csv("custom_audience_ids", max_items=200, rule="CA-04"),
            *list_params(rule="CA-04"),
        ),
        limit="account_reads",
        rule="CA-04",
        basis=Basis.PUBLIC,
    ),
    Operation(
        id="custom_audiences.get",
        method="GET",
        path=_PATH,
        handler=lambda call: Answer(_show(call, _AUDIENCES.find(call))),
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="CA-07",
        basis=Basis.PUBLIC,
    ),
    Operation(
        id="custom_audiences.create",
        method="POST",
        path=_LIST,
        handler=_create,
        query=(text("name", required=True, rule="CA-01"), text("description", rule="CA-01")),
        limit="writes",
        rule="CA-03",
        basis=Basis.PUBLIC,
    ),
    Operation(
        id="custom_audiences.update",
        method="PUT",
        path=_PATH,
        handler=_update,
        # Unspecified: an empty description unsets it (ASM-101).
        query=(text("name", rule="CA-09"), text("description", clearable=True, rule="CA-09")),
        limit="writes",
        rule="CA-09",
        basis=Basis.PUBLIC,
    ),
    Operation(
        id="custom_audiences.delete",
        method="DELETE",
        path=_PATH,
        handler=_delete,
        limit="writes",
        rule="CA-10",
        basis=Basis.PUBLIC,
    ),
    *_AUDIENCES.make_operations(),
    Operation(
        id="targeted_audiences.list",
        method="GET",
        path=f"{_PATH}/targeted",
        handler=_list_targeted,
        query=(boolean("with_active", default=True, rule="TGT-01"), text("cursor", rule="GEN-07")),
        limit="account_reads",
        rule="TGT-02",
    ),
    Operation(
        id="custom_audience_users.batch",
        method="POST",
        path=f"{_PATH}/users",
        handler=_update_users,
        query=(
            json_field("operation_type", "string", required=True, enum=("Update", "Delete"), rule="CAU-04"),
            json_field("params", "object", required=True, rule="CAU-05"),
            json_field("params.users", "array", required=True, rule="CAU-05"),
            json_field("params.effective_at", "timestamp", rule="CAU-06"),
            json_field("params.expires_at", "timestamp", rule="CAU-06b"),
        ),
        limit="audience_users",
        rule="CAU-10",
        gate="allowlist",  # CAX-05
        body="array",
        batch=True,
    ),
)
