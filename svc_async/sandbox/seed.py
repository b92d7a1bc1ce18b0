"""Builds the state that a sandbox starts with, from `seed.toml` and the seed number."""

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from svc_async.sandbox.api.ads.account_media import add_account_media
from svc_async.sandbox.api.ads.accounts import add_account
from svc_async.sandbox.api.ads.cards import add_card
from svc_async.sandbox.api.ads.custom_audiences import add_audience
from svc_async.sandbox.api.ads.do_not_reach import add_do_not_reach_list
from svc_async.sandbox.api.ads.features import set_features
from svc_async.sandbox.api.ads.line_items import add_campaign, add_line_item
from svc_async.sandbox.api.ads.media_library import add_media
from svc_async.sandbox.context import Seed
from svc_async.sandbox.state.grants import App, Grants, Token
from svc_async.sandbox.state.media import add_upload
from svc_async.sandbox.state.store import Store

__all__ = ["create_seed"]

_ADDERS: Mapping[str, Callable[..., object]] = {
    "account_media": add_account_media,
    "campaigns": add_campaign,
    "cards": add_card,
    "custom_audiences": add_audience,
    "do_not_reach_lists": add_do_not_reach_list,
    "line_items": add_line_item,
}
_SPECIAL = {
    *_ADDERS,
    "accounts",
    "apps",
    "features",
    "images",
    "media_library",
    "product_catalogs",
    "uploads",
    "users",
}
"""The tables with code of their own; the records of all others are added unchanged."""


def create_seed(store: Store, grants: Grants) -> Seed:
    """Add the seed's records to a store, and its apps and tokens to the grants."""
    records = json.loads(_read_records())
    apps = tuple(_make_app(store, record) for record in records["apps"])
    grants.apps |= {app.consumer_key: app for app in apps}
    users = {user["screen_name"]: user["id"] for user in records["users"]}
    for user in records["users"]:
        store["users"].add("", _without(user, "granted"))
    granted = [user["id"] for user in records["users"] if user.get("granted", True)]
    tokens = tuple(_make_token(store, apps[0], user_id) for user_id in granted)
    grants.tokens |= {token.token: token for token in tokens}
    accounts = [add_account(store, users[record["user"]], **_without(record, "user")) for record in records["accounts"]]
    _fill(store, records)
    for record in records["product_catalogs"]:
        store["product_catalogs"].add(users[record["user"]], _without(record, "user"))
    audience_id, list_id = (records[kind][0]["id"] for kind in ("custom_audiences", "do_not_reach_lists"))
    return Seed(apps, tokens, accounts[0].id, audience_id, list_id)


@cache
def _read_records() -> str:
    """Return the records of `seed.toml` as JSON, of which each sandbox parses a copy in a fortieth of the time."""
    return json.dumps(tomllib.loads(files("svc_async.sandbox").joinpath("seed.toml").read_text("utf-8")))


def _fill(store: Store, records: Mapping[str, Any]) -> None:
    """Add the records of accounts, and those without an owner."""
    for kind, add in _ADDERS.items():
        for record in records[kind]:
            add(store, record["account"], **_without(record, "account"))
    for account_id, keys in records["features"].items():
        set_features(store, account_id, keys)
    for kind in sorted(records.keys() - _SPECIAL):
        for record in records[kind]:
            store[kind].add(record.get("account", ""), _without(record, "account"))
    found = [add_upload(store, record["account"], **_without(record, "account")) for record in records["uploads"]]
    uploads = {row.id: row for row in found}
    for record in records["media_library"]:
        add_media(store, uploads[record["media_key"]], **record)
    for record in records["images"]:
        store["images"].add("", record, key=record["url"])


def _without(record: Mapping[str, Any], relation: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != relation}


def _make_app(store: Store, record: Mapping[str, Any]) -> App:
    """Make an app; its secrets depend on the seed number."""
    draw = store.ids.secret
    name = record.get("key", "")
    return App(
        consumer_key=draw(f"consumer_key{name}", 25),
        consumer_secret=draw(f"consumer_secret{name}", 50),
        client_id=draw(f"client_id{name}", 34),
        client_secret=draw(f"client_secret{name}", 50) if record["confidential"] else None,
        name=record["name"],
        access=record["access"],
        callback_urls=tuple(record["callback_urls"]),
        sign_in=record["sign_in"],
    )


def _make_token(store: Store, app: App, user_id: str) -> Token:
    secret = store.ids.secret(f"token_secret:{user_id}", 45)
    return Token(f"{user_id}-{store.ids.secret(f'token:{user_id}', 30)}", secret, user_id, app.consumer_key)
