"""Where a session has the operations of the contract."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from svc_async import Session
from svc_async.handles import AccountHandle, CustomAudienceHandle, ProductCatalogHandle
from tests.support.contract import OPERATIONS, Row

__all__ = ["BOUND", "CALLS", "WITHOUT_CALL", "bound", "has_default", "signature"]

BOUND: Mapping[str, str] = {
    name: f"{name}-0"
    for name in (
        "account_id",
        "custom_audience_id",
        "do_not_reach_list_id",
        "product_catalog_id",
        "tailored_audience_id",
    )
}
"""The ids that handles are bound to."""


@attrs.frozen
class _Bindings:
    """A session, and the ids that its handles are bound to."""

    session: Session
    ids: Mapping[str, str]

    @property
    def account(self) -> AccountHandle:
        return self.session.account(self.ids["account_id"])

    @property
    def audience(self) -> CustomAudienceHandle:
        return self.account.custom_audience(self.ids["custom_audience_id"])

    @property
    def catalog(self) -> ProductCatalogHandle:
        return self.session.product_catalog(self.ids["product_catalog_id"])


_ROOTS: Mapping[str, Callable[[_Bindings], Any]] = {
    "account_apps": lambda at: at.account.apps,
    "account_history": lambda at: at.account.history,
    "account_media": lambda at: at.account.account_media,
    "accounts": lambda at: at.session.accounts,
    "advertiser_business_categories": lambda at: at.session.advertiser_business_categories,
    "audience_estimate": lambda at: at.account,
    "cards": lambda at: at.account.cards,
    "curated_categories": lambda at: at.account.curated_categories,
    "do_not_reach_lists": lambda at: at.account.do_not_reach_list(at.ids["do_not_reach_list_id"]),
    "features": lambda at: at.account.features,
    "image_conversation_cards": lambda at: at.account.cards,
    "keyword_insights": lambda at: at.session.keyword_insights,
    "line_item_curated_categories": lambda at: at.account.line_item_curated_categories,
    "line_items": lambda at: at.account.line_items,
    "media_library": lambda at: at.account.media_library,
    "placements": lambda at: at.session.placements,
    "poll_cards": lambda at: at.account.poll_cards,
    "posts": lambda at: at.account.posts,
    "product_catalogs": lambda at: at.session.product_catalogs,
    "product_sets": lambda at: at.catalog.product_sets,
    "products": lambda at: at.catalog.products,
    "tailored_audience_permissions": lambda at: (
        at.account.tailored_audience(at.ids["tailored_audience_id"]).permissions
    ),
    "targeted_audiences": lambda at: at.audience,
    "video_conversation_cards": lambda at: at.account.video_conversation_cards,
}

_RENAMED: Mapping[str, str] = {
    "audience_estimate.create": "audience_estimate",
    "image_conversation_cards.delete": "delete_image_conversation",
    "posts.update_name": "rename",
    "products.upsert": "send",
    "targeted_audiences.list": "targeted",
}

WITHOUT_CALL: Mapping[str, str] = {
    "custom_audience_users.batch": "its rows are operations: see tests/batch",
    "do_not_reach_users.batch": "its rows are operations: see tests/batch",
    "products.delete": "it takes any number of keys, and settings of an uploader: see tests/batch",
}


def bound(operation: str, session: Session, ids: Mapping[str, str] = BOUND) -> Callable[..., Any]:
    """Give the method that makes a call."""
    group, verb = operation.split(".")
    method: Callable[..., Any] = getattr(_ROOTS[group](_Bindings(session, ids)), _RENAMED.get(operation, verb))
    return method


CALLS: Mapping[str, Row] = {name: row for name, row in OPERATIONS.items() if name not in WITHOUT_CALL}


def signature(operation: str, session: Session) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(bound(operation, session)).parameters


def has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty
