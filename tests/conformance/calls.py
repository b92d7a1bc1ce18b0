"""Where a session has the operations of the contract."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from svc_async import Session
from svc_async.handles import AccountHandle, CustomAudienceHandle, ProductCatalogHandle
from tests.conformance.contract import OPERATIONS, Row

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


def _account(session: Session) -> AccountHandle:
    return session.account(BOUND["account_id"])


def _audience(session: Session) -> CustomAudienceHandle:
    return _account(session).custom_audience(BOUND["custom_audience_id"])


def _catalog(session: Session) -> ProductCatalogHandle:
    return session.product_catalog(BOUND["product_catalog_id"])


def _permissions(session: Session) -> Any:
    return _account(session).tailored_audience(BOUND["tailored_audience_id"]).permissions


_ROOTS: Mapping[str, Callable[[Session], Any]] = {
    "account_apps": lambda session: _account(session).apps,
    "account_history": lambda session: _account(session).history,
    "account_media": lambda session: _account(session).account_media,
    "accounts": lambda session: session.accounts,
    "advertiser_business_categories": lambda session: session.advertiser_business_categories,
    "audience_estimate": _account,
    "cards": lambda session: _account(session).cards,
    "curated_categories": lambda session: _account(session).curated_categories,
    "do_not_reach_lists": lambda session: _account(session).do_not_reach_list(BOUND["do_not_reach_list_id"]),
    "features": lambda session: _account(session).features,
    "image_conversation_cards": lambda session: _account(session).cards,
    "keyword_insights": lambda session: session.keyword_insights,
    "line_item_curated_categories": lambda session: _account(session).line_item_curated_categories,
    "line_items": lambda session: _account(session).line_items,
    "media_library": lambda session: _account(session).media_library,
    "placements": lambda session: session.placements,
    "poll_cards": lambda session: _account(session).poll_cards,
    "posts": lambda session: _account(session).posts,
    "product_catalogs": lambda session: session.product_catalogs,
    "product_sets": lambda session: _catalog(session).product_sets,
    "products": lambda session: _catalog(session).products,
    "tailored_audience_permissions": _permissions,
    "targeted_audiences": _audience,
    "video_conversation_cards": lambda session: _account(session).video_conversation_cards,
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


def bound(operation: str, session: Session) -> Callable[..., Any]:
    """Give the method that makes a call."""
    group, verb = operation.split(".")
    method: Callable[..., Any] = getattr(_ROOTS[group](session), _RENAMED.get(operation, verb))
    return method


CALLS: Mapping[str, Row] = {name: row for name, row in OPERATIONS.items() if name not in WITHOUT_CALL}


def signature(operation: str, session: Session) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(bound(operation, session)).parameters


def has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty
