"""Categories of advertisers and of posts, and the curated categories of line items (CAT-01, CAT-02, LICC-01 to 05)."""

from svc_async.sandbox.api.ads.common import Records, list_params, show_without_dates
from svc_async.sandbox.server.decoding import text
from svc_async.sandbox.server.operations import Answer, Call, Operation, not_found

__all__ = ["OPERATIONS"]

_CHOSEN = Records(
    kind="line_item_curated_categories",
    path="/12/accounts/{account_id}/line_item_curated_categories",
    key="line_item_curated_category_id",
    sortable=("id", "line_item_id", "curated_category_id", "created_at", "updated_at"),
)


def _list_of_advertisers(call: Call) -> Answer:
    return call.answer_page(call.sandbox.store["advertiser_business_categories"], show=show_without_dates)


def _get_curated(call: Call) -> Answer:
    row = call.sandbox.store["curated_categories"].get(call.path["curated_category_id"])
    # Unspecified: the country of an account, and that the category does not exist elsewhere (CAT-02).
    country = call.sandbox.config.account_countries.get(call.account)
    if row is None or (country is not None and country not in row.fields["country_codes"]):
        raise not_found("curated_category_id")
    return Answer(row.show(without=("deleted",)))


def _check_references(call: Call) -> None:
    # Unspecified: the answer to an id that names nothing (ASM-102, ASM-92).
    line_item = call.sent.get("line_item_id")
    if line_item is not None and call.sandbox.store["line_items"].get(line_item, owner=call.account) is None:
        raise not_found("line_item_id")
    category = call.sent.get("curated_category_id")
    if category is not None and call.sandbox.store["curated_categories"].get(category) is None:
        raise not_found("curated_category_id")


def _create(call: Call) -> Answer:
    _check_references(call)
    return _CHOSEN.add(call, {"id": call.sandbox.store.ids.next(_CHOSEN.kind, 4), **call.sent})


def _update(call: Call) -> Answer:
    row = _CHOSEN.find(call)
    _check_references(call)
    return _CHOSEN.change(call, row, call.sent)


OPERATIONS = (
    Operation(
        id="advertiser_business_categories.list",
        method="GET",
        path="/12/advertiser_business_categories",
        handler=_list_of_advertisers,
        limit="global_reads",
        rule="CAT-01",
    ),
    Operation(
        id="curated_categories.get",
        method="GET",
        path="/12/accounts/{account_id}/curated_categories/{curated_category_id}",
        handler=_get_curated,
        limit="account_reads",
        rule="CAT-02",
    ),
    _CHOSEN.make_list(*list_params(rule="LICC-01"), rule="LICC-01"),
    _CHOSEN.make_get(rule="LICC-02"),
    Operation(
        id="line_item_curated_categories.create",
        method="POST",
        path=_CHOSEN.path,
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
        path=_CHOSEN.one,
        handler=_update,
        query=(text("line_item_id", rule="LICC-04"), text("curated_category_id", rule="LICC-04")),
        limit="writes",
        rule="LICC-04",
    ),
    _CHOSEN.make_delete(rule="LICC-05"),
)
