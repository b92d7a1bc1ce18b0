"""The business categories of advertisers (CAT-01)."""

from svc_async.sandbox.api.ads.common import select_fields
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page

__all__ = ["OPERATIONS"]

_FIELDS = ("id", "name", "iab_categories")


def _list(call: Call) -> Answer:
    rows = [select_fields(row, _FIELDS) for row in call.sandbox.store["advertiser_business_categories"]]
    return answer_page(call.paginate(rows, sortable=(), filters={}))


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
