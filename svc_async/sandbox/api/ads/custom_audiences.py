"""Custom audiences: line items that target them, and batches of users (TGT-01, TGT-02, CAU-01 to CAU-11)."""

from typing import Any

from svc_async.sandbox.api.ads.user_batches import OperationGroup, OperationSchema, Rules, pause_gc
from svc_async.sandbox.server.decoding import boolean, json_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Row

__all__ = ["HASHED", "OPERATIONS"]

_PATH = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}"
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


def _list_targeted(call: Call) -> Answer:
    audience = call.find("custom_audiences", "custom_audience_id")
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
    audience = call.sandbox.store.audiences[call.find("custom_audiences", "custom_audience_id").id]
    with pause_gc():
        group = OperationGroup.read(call, _SCHEMA)
        group.apply(audience)
    count = sum(group.count())
    return Answer({"success_count": count, "total_count": count})


OPERATIONS = (
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
        body="array",
        batch=True,
    ),
)
