"""Account media: the creatives of an account (AM-01 to AM-03)."""

from svc_async.sandbox.api.ads.common import WITH_DELETED, filter_by, list_owned, list_params
from svc_async.sandbox.server.decoding import csv
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_page, answer_row
from svc_async.sandbox.state.store import Row, Store

__all__ = ["OPERATIONS", "add_account_media"]

CREATIVE_TYPES = (
    "BANNER",
    "BANNER_TABLET",
    "INTERSTITIAL",
    "INTERSTITIAL_LANDSCAPE",
    "INTERSTITIAL_LANDSCAPE_TABLET",
    "INTERSTITIAL_TABLET",
    "MEDIUM_RECTANGLE",
    "PREROLL",
    "VAST_PREROLL",
)
_KIND = "account_media"
_PATH = "/12/accounts/{account_id}/account_media"
_ONE = f"{_PATH}/{{account_media_id}}"
_SORTABLE = ("id", "creative_type", "created_at", "updated_at")


def add_account_media(store: Store, account_id: str, **fields: object) -> Row:
    """Add a creative."""
    record = {"id": store.ids.next(_KIND, 5), "video_id": None, "media_url": None}
    return store[_KIND].add(account_id, record | fields)


def _list(call: Call) -> Answer:
    rows = filter_by(list_owned(call, _KIND), "id", call.params["account_media_ids"])
    rows = filter_by(rows, "creative_type", call.params["creative_types"])
    return answer_page(call.paginate(rows, sortable=_SORTABLE, filters=call.path))


def _find(call: Call) -> Row:
    return call.find(call.sandbox.store[_KIND], "account_media_id", code="ACCOUNT_MEDIA_NOT_FOUND")


def _get(call: Call) -> Answer:
    return answer_row(_find(call))


def _delete(call: Call) -> Answer:
    return answer_row(call.sandbox.store[_KIND].delete(_find(call)))


OPERATIONS = (
    Operation(
        id="account_media.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(
            csv("account_media_ids", max_items=200, rule="GEN-17"),
            csv("creative_types", enum=CREATIVE_TYPES, rule="AM-01"),
            *list_params(default=200, maximum=1000, rule="AM-01"),
        ),
        limit="account_reads",
        rule="AM-01",
    ),
    Operation(
        id="account_media.get",
        method="GET",
        path=_ONE,
        handler=_get,
        query=(WITH_DELETED,),
        limit="account_reads",
        rule="AM-03",
    ),
    Operation(
        id="account_media.delete",
        method="DELETE",
        path=_ONE,
        handler=_delete,
        limit="writes",
        rule="AM-01b",
    ),
)
