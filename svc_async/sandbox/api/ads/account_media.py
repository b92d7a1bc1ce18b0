"""Account media: the creatives of an account (AM-01 to AM-03)."""

from svc_async.sandbox.api.ads.common import Records, list_params
from svc_async.sandbox.server.decoding import csv
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
_MEDIA = Records(
    kind="account_media",
    path="/12/accounts/{account_id}/account_media",
    key="account_media_id",
    sortable=("id", "creative_type", "created_at", "updated_at"),
)


def add_account_media(store: Store, account_id: str, **fields: object) -> Row:
    """Add a creative."""
    record = {"id": store.ids.next(_MEDIA.kind, 5), "video_id": None, "media_url": None}
    return store[_MEDIA.kind].add(account_id, record | fields)


OPERATIONS = (
    _MEDIA.make_list(
        csv("account_media_ids", max_items=200, rule="GEN-17"),
        csv("creative_types", enum=CREATIVE_TYPES, rule="AM-01"),
        *list_params(rule="AM-01"),
        rule="AM-01",
        by={"account_media_ids": "id", "creative_types": "creative_type"},
    ),
    _MEDIA.make_get(rule="AM-03"),
    _MEDIA.make_delete(rule="AM-01b"),
)
