"""The business categories of advertisers (CAT-01)."""

from svc_async.sandbox.api.ads.common import only
from svc_async.sandbox.server.operations import Answer, Call, Operation, many

__all__ = ["OPERATIONS"]

_FIELDS = ("id", "name", "iab_categories")


def _list(call: Call) -> Answer:
    rows = [only(row, _FIELDS) for row in call.store["advertiser_business_categories"]]
    return many(call.cut(rows, sortable=(), filters={}))


OPERATIONS = (
    Operation(
        id="advertiser_business_categories.list",
        method="GET",
        path="/12/advertiser_business_categories",
        handler=_list,
        limit="global_reads",
        rule="CAT-01",
    ),
)
