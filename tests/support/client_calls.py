"""The methods of a session that make the operations of the contract."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from svc_async import Session
from svc_async.handles import AccountHandle, ProductCatalogHandle
from tests.support.contract import BOUND_IDS, OPERATIONS, Row

__all__ = ["CALLS", "WITHOUT_CALL", "bind", "has_default", "read_parameters"]


@attrs.frozen
class _Handles:
    """A session, and handles bound to the given ids."""

    session: Session
    ids: Mapping[str, str]

    @property
    def account(self) -> AccountHandle:
        return self.session.account(self.ids["account_id"])

    @property
    def catalog(self) -> ProductCatalogHandle:
        return self.session.product_catalog(self.ids["product_catalog_id"])

    def find_service(self, family: str) -> Any:
        """Return the property of the account or the session with the name of the family."""
        return getattr(self.account if hasattr(AccountHandle, family) else self.session, family)


_OTHER_PLACES: Mapping[str, Callable[[_Handles], Any]] = {
    "account_apps": lambda handles: handles.account.apps,
    "account_history": lambda handles: handles.account.history,
    "audience_estimate": lambda handles: handles.account,
    "custom_audience_permissions": lambda handles: (
        handles.account.custom_audience(handles.ids["custom_audience_id"]).permissions
    ),
    "image_conversation_cards": lambda handles: handles.account.cards,
    "product_sets": lambda handles: handles.catalog.product_sets,
    "products": lambda handles: handles.catalog.products,
    "tailored_audience_permissions": lambda handles: (
        handles.account.tailored_audience(handles.ids["tailored_audience_id"]).permissions
    ),
    "targeted_audiences": lambda handles: handles.account.custom_audience(handles.ids["custom_audience_id"]),
}
"""Families that are not a property of the session or the account with their name."""

_RENAMED: Mapping[str, str] = {
    "audience_estimate.create": "audience_estimate",
    "image_conversation_cards.delete": "delete_image_conversation",
    "posts.update_name": "rename",
    "products.upsert": "send",
    "targeted_audiences.list": "targeted",
}

WITHOUT_CALL: Mapping[str, str] = {
    "custom_audience_users.batch": "its body is a list of operations: see tests/lists",
    "do_not_reach_users.batch": "its body is a list of operations: see tests/lists",
    "products.delete": "it takes any number of keys, and settings of an uploader: see tests/lists",
}


def bind(operation: str, session: Session, ids: Mapping[str, str] = BOUND_IDS) -> Callable[..., Any]:
    """Return the method that makes a call."""
    family, verb = operation.split(".")
    handles = _Handles(session, ids)
    service = _OTHER_PLACES[family](handles) if family in _OTHER_PLACES else handles.find_service(family)
    method: Callable[..., Any] = getattr(service, _RENAMED.get(operation, verb))
    return method


CALLS: Mapping[str, Row] = {name: row for name, row in OPERATIONS.items() if name not in WITHOUT_CALL}

_parameters: dict[str, Mapping[str, inspect.Parameter]] = {}


def read_parameters(operation: str, session: Session) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the method that makes a call."""
    if operation not in _parameters:  # to read a signature takes longer than to make the call
        _parameters[operation] = inspect.signature(bind(operation, session), eval_str=True).parameters
    return _parameters[operation]


def has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty
