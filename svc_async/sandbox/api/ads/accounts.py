"""Ad accounts, and their apps (ACC-01 to ACC-10)."""

from typing import Any

from svc_async.sandbox.api.ads.common import (
    WITH_DELETED,
    Records,
    filter_by,
    filter_by_name,
    list_owned,
    list_params,
)
from svc_async.sandbox.context import Context
from svc_async.sandbox.kinds import WrongArgument, check_kind
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import csv, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_account", "choose_account"]

INDUSTRY_TYPES = (
    "AGENCY",
    "BUSINESS_TO_BUSINESS",
    "ONLINE_SERVICES",
    "EDUCATION",
    "FINANCIAL",
    "HEALTH",
    "GOVERNMENT",
    "MEDIA",
    "MOBILE",
    "RESTAURANT",
    "RETAIL",
    "TECHNOLOGY",
    "TRAVEL",
    "OTHER",
)
_SORTABLE = ("id", "name", "created_at", "updated_at")
_PATH = "/12/accounts"
_ONE = "/12/accounts/{account_id}"
_APPS = Records(
    kind="account_apps",
    path=f"{_ONE}/account_apps",
    key="account_app_id",
    sortable=("id", "app_store_identifier", "os_type", "created_at", "updated_at"),
)


def choose_account(sandbox: Context, account_id: str | None) -> str:
    """Return the id of the account to which a test adds something: by default, the first user's.

    Raises:
        WrongArgument: the sandbox does not have this account.
    """
    if account_id is None:
        return sandbox.seed.account_id
    check_kind("account_id", str, account_id)
    if sandbox.store["accounts"].get(account_id, with_deleted=True) is None:
        raise WrongArgument("account_id", "must be the id of an account of this sandbox")
    return account_id


def add_account(store: Store, user: str, **fields: object) -> Row:
    """Add an account of a user; missing fields get a default."""
    record = {
        "id": fields.get("id") or store.ids.next("account", 11),
        "name": "New account",
        "business_name": None,
        "business_id": None,
        "timezone": "Europe/Berlin",
        "timezone_switch_at": None,
        "approval_status": "ACCEPTED",
        "industry_type": None,
    }
    record |= fields
    check_kind("name", str, record["name"])
    return store["accounts"].add(user, record)


def _show(row: Row) -> dict[str, Any]:
    """Return an account without the field that single reads and updates alone show (ACC-06)."""
    return row.show(without=("industry_type",))


def _list(call: Call) -> Answer:
    rows = filter_by(list_owned(call, "accounts", owner=call.user), "id", call.params["account_ids"])
    return call.answer_page(filter_by_name(rows, call.params["q"]), sortable=_SORTABLE, show=_show)


def _find(call: Call) -> Row:
    return call.find("accounts", "account_id", owner=call.user)


def _create(call: Call) -> Answer:
    row = add_account(call.sandbox.store, call.user, name=f"Sandbox account {len(call.sandbox.store['accounts']) + 1}")
    return Answer([_show(row)])


def _update(call: Call) -> Answer:
    if call.sent.get("name", "").isspace():
        refuse(invalid("ASM-95", "is blank", "name"))
    return Answer(call.sandbox.store["accounts"].change(_find(call), **call.sent).show())


OPERATIONS = (
    Operation(
        id="accounts.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            csv("account_ids", max_items=200, rule="GEN-17"),
            text("q", rule="ACC-01"),
            *list_params(rule="ACC-01b"),
        ),
        limit="global_reads",
        rule="ACC-01b",
    ),
    Operation(
        id="accounts.get",
        method="GET",
        path=_ONE,
        handler=lambda call: Answer(_find(call).show()),
        query=(WITH_DELETED,),
        limit="core_reads",
        rule="ACC-02",
    ),
    Operation(
        id="accounts.create",
        method="POST",
        path=_PATH,
        handler=_create,
        limit="writes",
        rule="ACC-03",
        surface="ads_sandbox",
    ),
    Operation(
        id="accounts.update",
        method="PUT",
        path=_ONE,
        handler=_update,
        query=(
            text("name", rule="ACC-04"),
            text("industry_type", enum=INDUSTRY_TYPES, rule="ACC-04"),
        ),
        limit="writes",
        rule="ACC-04",
    ),
    Operation(
        id="accounts.delete",
        method="DELETE",
        path=_ONE,
        handler=lambda call: Answer(_show(call.sandbox.store["accounts"].delete(_find(call)))),
        limit="writes",
        rule="ACC-05",
        surface="ads_sandbox",
    ),
    _APPS.make_list(*list_params(rule="ACC-08"), rule="ACC-08"),
)
