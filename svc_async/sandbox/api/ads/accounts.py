"""Ad accounts (ACC-01 to ACC-10)."""

from svc_async.sandbox.api.ads.common import WITH_DELETED, list_params
from svc_async.sandbox.context import Context
from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.decoding import csv, text
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page, not_found
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


def choose_account(sandbox: Context, account_id: str | None) -> str:
    """Return the id of the account to which a test adds something: by default, the first user's.

    Raises:
        ValueError: there is no such account.
    """
    if account_id is None:
        return sandbox.seed.account_id
    check_kind("account_id", str, account_id)
    if sandbox.store["accounts"].get(account_id, with_deleted=True) is None:
        raise ValueError("account_id must be the id of an account of this sandbox")
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


def _list(call: Call) -> Answer:
    wanted = call.params["account_ids"]
    prefix = (call.params["q"] or "").casefold()
    rows = [
        _hide_industry(row)
        for row in call.sandbox.store["accounts"]
        if row.owner == call.user
        and (call.params["with_deleted"] or not row.deleted)
        and (wanted is None or row.id in wanted)
        and row.fields["name"].casefold().startswith(prefix)
    ]
    return answer_page(call.paginate(rows, sortable=_SORTABLE, filters={}))


def _hide_industry(row: Row) -> Row:
    """Remove the field that is shown on single reads and updates only (ACC-06)."""
    return Row(row.position, row.owner, {key: row.fields[key] for key in row.fields if key != "industry_type"})


def _find(call: Call) -> Row:
    row = call.sandbox.store["accounts"].get(
        call.account, owner=call.user, with_deleted=call.params.get("with_deleted", False)
    )
    if row is None:
        raise not_found("ACCOUNT_NOT_FOUND", "account_id")
    return row


def _get(call: Call) -> Answer:
    return Answer(dict(_find(call).fields))


def _create(call: Call) -> Answer:
    row = add_account(call.sandbox.store, call.user, name=f"Sandbox account {len(call.sandbox.store['accounts']) + 1}")
    return Answer([dict(_hide_industry(row).fields)])


def _update(call: Call) -> Answer:
    if call.sent.get("name", "").isspace():
        raise Refusal(400, Problem("INVALID_PARAMETER", "name is blank", "name"), rule="ASM-95")
    return Answer(dict(call.sandbox.store["accounts"].change(_find(call), **call.sent).fields))


def _delete(call: Call) -> Answer:
    return Answer(dict(_hide_industry(call.sandbox.store["accounts"].delete(_find(call))).fields))


OPERATIONS = (
    Operation(
        id="accounts.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            csv("account_ids", max_items=200, rule="GEN-17"),
            text("q", rule="ACC-01"),
            *list_params(default=200, maximum=1000, rule="ACC-01b"),
        ),
        limit="global_reads",
        rule="ACC-01b",
    ),
    Operation(
        id="accounts.get",
        method="GET",
        path=_ONE,
        handler=_get,
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
        handler=_delete,
        limit="writes",
        rule="ACC-05",
        surface="ads_sandbox",
    ),
)
