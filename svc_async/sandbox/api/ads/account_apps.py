"""The apps of an account (ACC-08)."""

from svc_async.sandbox.api.ads.common import list_owned, list_params
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page

__all__ = ["OPERATIONS"]

_SORTABLE = ("id", "app_store_identifier", "os_type", "created_at", "updated_at")


def _list(call: Call) -> Answer:
    return answer_page(call.paginate(list_owned(call, "account_apps"), sortable=_SORTABLE, filters=call.path))


OPERATIONS = (
    Operation(
        id="account_apps.list",
        method="GET",
        path="/12/accounts/{account_id}/account_apps",
        handler=_list,
        query=list_params(default=200, maximum=1000, rule="ACC-08"),
        limit="account_reads",
        rule="ACC-08",
    ),
)
