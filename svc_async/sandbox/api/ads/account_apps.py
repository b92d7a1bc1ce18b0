"""The apps of an account (ACC-08)."""

from svc_async.sandbox.api.ads.common import listing, of_account
from svc_async.sandbox.server.operations import Answer, Call, Operation, many

__all__ = ["OPERATIONS"]

_SORTABLE = ("id", "app_store_identifier", "os_type", "created_at", "updated_at")


def _list(call: Call) -> Answer:
    return many(call.cut(of_account(call, "account_apps"), sortable=_SORTABLE, filters=call.path))


OPERATIONS = (
    Operation(
        id="account_apps.list",
        method="GET",
        path="/12/accounts/{account_id}/account_apps",
        handler=_list,
        query=listing(default=200, maximum=1000, rule="ACC-08"),
        limit="account_reads",
        rule="ACC-08",
    ),
)
