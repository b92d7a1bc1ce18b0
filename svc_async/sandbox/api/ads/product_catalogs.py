"""Product catalogs, one for each user (PC-01 to PC-04)."""

from svc_async.sandbox.api.ads.common import list_owned, show_without_dates
from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import long, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_catalog", "find_catalog"]

_KIND = "product_catalogs"
_PATH = "/12/product_catalogs"
_ONE = f"{_PATH}/{{product_catalog_id}}"
_INSIDE = ("products", "product_sets", "item_groups")


def add_catalog(store: Store, user_id: str, *, name: str) -> Row:
    """Add a catalog of a user."""
    check_kind("name", str, name)
    return store[_KIND].add(user_id, {"id": store.ids.next(_KIND, 8), "name": name})


def find_catalog(call: Call) -> Row:
    """Find the user's catalog that the path names.

    Raises:
        Refusal: there is none.
    """
    return call.find(_KIND, "product_catalog_id", owner=call.user)


def _list(call: Call) -> Answer:
    # Unspecified: whose catalogs are listed; here the user's own, so that another user_id lists none.
    mine = call.params["user_id"] in (None, int(call.user))
    return call.answer_page(list_owned(call, _KIND, owner=call.user) if mine else (), show=show_without_dates)


def _create(call: Call) -> Answer:
    if call.params["user_id"] not in (None, int(call.user)):
        refuse(invalid("ASM-95", "is not the authenticated user", "user_id"))
    most = call.sandbox.config.catalogs_per_user
    if most is not None and len(list_owned(call, _KIND, owner=call.user)) >= most:
        # Unspecified: the answer to a second catalog.
        refuse(invalid("PC-01b", "would name a second catalog; one holds all products", "name"))
    return Answer(show_without_dates(add_catalog(call.sandbox.store, call.user, name=call.params["name"])))


def _delete(call: Call) -> Answer:
    """Remove the catalog and what it contains."""
    catalog = find_catalog(call)
    # Unspecified: that products and sets are removed too (ASM-137).
    for kind in _INSIDE:
        for row in list_owned(call, kind, owner=catalog.id):
            call.sandbox.store[kind].remove(row)
    call.sandbox.store[_KIND].remove(catalog)
    return Answer(show_without_dates(catalog))


OPERATIONS = (
    Operation(
        id="product_catalogs.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(long("user_id", rule="PC-01"),),
        limit="catalog_reads",
        rule="PC-03",
        gate="early_access",
    ),
    Operation(
        id="product_catalogs.create",
        method="POST",
        path=_PATH,
        handler=_create,
        query=(text("name", required=True, rule="PC-01"), long("user_id", rule="PC-01")),
        limit="catalog_writes",
        rule="PC-01",
        gate="early_access",
    ),
    Operation(
        id="product_catalogs.update",
        method="PUT",
        path=_ONE,
        handler=lambda call: Answer(
            show_without_dates(call.sandbox.store[_KIND].change(find_catalog(call), name=call.params["name"]))
        ),
        query=(text("name", required=True, rule="PC-01"),),
        limit="catalog_writes",
        rule="PC-01",
        gate="early_access",
    ),
    Operation(
        id="product_catalogs.delete",
        method="DELETE",
        path=_ONE,
        handler=_delete,
        limit="catalog_writes",
        rule="PC-04",
        gate="early_access",
    ),
)
