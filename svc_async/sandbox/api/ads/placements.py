"""The placements of each product type (PLC-01)."""

from svc_async.sandbox.api.ads.common import filter_by
from svc_async.sandbox.server.decoding import text
from svc_async.sandbox.server.operations import Answer, Call, Operation

__all__ = ["OPERATIONS"]

_PRODUCT_TYPES = ("MEDIA", "PROMOTED_ACCOUNT", "PROMOTED_POSTS")


def _list(call: Call) -> Answer:
    product_type = call.params["product_type"]
    rows = filter_by(call.sandbox.store["placements"], "id", None if product_type is None else (product_type,))
    return Answer([{"product_type": row.id, "placements": row.fields["placements"]} for row in rows])


OPERATIONS = (
    Operation(
        id="placements.list",
        method="GET",
        path="/12/line_items/placements",
        handler=_list,
        query=(text("product_type", enum=_PRODUCT_TYPES, rule="PLC-01"),),
        limit="global_reads",
        rule="PLC-01",
    ),
)
