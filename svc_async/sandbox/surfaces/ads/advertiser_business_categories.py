"""The business categories of advertisers (CAT-01)."""

from svc_async.sandbox.calls import Answer, Call, Operation, many
from svc_async.sandbox.surfaces.ads.common import only

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
