"""The curated categories that line items run in (LICC-01 to LICC-05)."""

from svc_async.sandbox.api.ads.common import WITH_DELETED, list_params
from svc_async.sandbox.server.decoding import text
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page, answer_row, not_found
from svc_async.sandbox.state.store import Row

__all__ = ["OPERATIONS"]

_KIND = "line_item_curated_categories"
_PATH = "/12/accounts/{account_id}/line_item_curated_categories"
_ONE = f"{_PATH}/{{line_item_curated_category_id}}"
_SORTABLE = ("id", "line_item_id", "curated_category_id", "created_at", "updated_at")


def _list(call: Call) -> Answer:
    rows = [
        row
        for row in call.sandbox.store[_KIND]
        if row.owner == call.account and (call.params["with_deleted"] or not row.deleted)
    ]
    return answer_page(call.paginate(rows, sortable=_SORTABLE, filters=call.path))


def _find(call: Call) -> Row:
    return call.find(
        call.sandbox.store[_KIND], "line_item_curated_category_id", code="LINE_ITEM_CURATED_CATEGORY_NOT_FOUND"
    )


def _check_references(call: Call) -> None:
    # Unspecified: the answer to an id that names nothing (ASM-102, ASM-92).
    line_item = call.sent.get("line_item_id")
    if line_item is not None and call.sandbox.store["line_items"].get(line_item, owner=call.account) is None:
        raise not_found("LINE_ITEM_NOT_FOUND", "line_item_id")
    category = call.sent.get("curated_category_id")
    if category is not None and call.sandbox.store["curated_categories"].get(category) is None:
        raise not_found("CURATED_CATEGORY_NOT_FOUND", "curated_category_id")


def _get(call: Call) -> Answer:
    return answer_row(_find(call))


def _create(call: Call) -> Answer:
    _check_references(call)
    record = {"id": call.sandbox.store.ids.next(_KIND, 4), **call.sent}
    return answer_row(call.sandbox.store[_KIND].add(call.account, record))


def _update(call: Call) -> Answer:
    row = _find(call)
    _check_references(call)
    return answer_row(call.sandbox.store[_KIND].change(row, **call.sent))


def _delete(call: Call) -> Answer:
    return answer_row(call.sandbox.store[_KIND].delete(_find(call)))


OPERATIONS = (
    Operation(
        id="line_item_curated_categories.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=list_params(default=200, maximum=1000, rule="LICC-01"),
        limit="account_reads",
        rule="LICC-01",
    ),
    Operation(
        id="line_item_curated_categories.get",
        method="GET",
        path=_ONE,
        handler=_get,
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="LICC-02",
    ),
    Operation(
        id="line_item_curated_categories.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(
            text("line_item_id", required=True, rule="LICC-03"),
            text("curated_category_id", required=True, rule="LICC-03"),
        ),
        limit="writes",
        rule="LICC-03",
    ),
    Operation(
        id="line_item_curated_categories.update",
        method="PUT",
        path=_ONE,
        handler=_update,
        query=(text("line_item_id", rule="LICC-04"), text("curated_category_id", rule="LICC-04")),
        limit="writes",
        rule="LICC-04",
    ),
    Operation(
        id="line_item_curated_categories.delete",
        method="DELETE",
        path=_ONE,
        handler=_delete,
        limit="writes",
        rule="LICC-05",
    ),
)
