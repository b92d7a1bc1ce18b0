"""Builds the world that a sandbox starts with from `seed.toml` and the seed."""

import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import attrs

from svc_async.sandbox.api.ads.account_media import add_account_media
from svc_async.sandbox.api.ads.accounts import add_account
from svc_async.sandbox.api.ads.cards import add_card
from svc_async.sandbox.api.ads.do_not_reach import add_do_not_reach_list
from svc_async.sandbox.api.ads.features import hold
from svc_async.sandbox.api.ads.line_items import add_campaign, add_line_item
from svc_async.sandbox.api.ads.media_library import add_media
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.state.audiences import Audience
from svc_async.sandbox.state.grants import App, Registry, Token
from svc_async.sandbox.state.media import add_upload
from svc_async.sandbox.state.store import Row, Store

__all__ = ["World", "add_audience", "build"]

_KINDS = (
    "account_apps",
    "advertiser_business_categories",
    "curated_categories",
    "line_item_curated_categories",
    "locations",
    "placements",
    "promoted_posts",
    "tailored_audiences",
)
_ADDERS: Mapping[str, Callable[..., object]] = {
    "account_media": add_account_media,
    "campaigns": add_campaign,
    "cards": add_card,
    "do_not_reach_lists": add_do_not_reach_list,
}


@attrs.frozen
class World:
    """What the seed world has at hand.

    Attributes:
        apps: the first is the one that the seed users granted everything.
        tokens: of the users who did, in their order.
    """

    apps: tuple[App, ...]
    tokens: tuple[Token, ...]
    account_id: str
    audience_id: str

    def identity(self, number: int) -> dict[str, str]:
        """Give the keys and secrets of an app."""
        app = self.apps[number]
        secret = {} if app.client_secret is None else {"client_secret": app.client_secret}
        return {
            "consumer_key": app.consumer_key,
            "consumer_secret": app.consumer_secret,
            "client_id": app.client_id,
            **secret,
        }

    def signing(self, number: int) -> dict[str, str]:
        """Give what a user signs with."""
        app, token = self.apps[0], self.tokens[number]
        return {
            "consumer_key": app.consumer_key,
            "consumer_secret": app.consumer_secret,
            "token": token.token,
            "token_secret": token.secret,
        }


def build(store: Store, registry: Registry, config: SandboxConfig) -> World:
    """Fill a store and a registry."""
    seed = tomllib.loads(files("svc_async.sandbox").joinpath("seed.toml").read_text("utf-8"))
    apps = tuple(_app(store, record) for record in seed["apps"])
    registry.apps |= {app.consumer_key: app for app in apps}
    users = {user["screen_name"]: user["id"] for user in seed["users"]}
    for user in seed["users"]:
        store["users"].add("", _fields(user, "granted"))
    granted = [user["id"] for user in seed["users"] if user.get("granted", True)]
    tokens = tuple(_token(store, apps[0], user_id) for user_id in granted)
    registry.tokens |= {token.token: token for token in tokens}
    accounts = [add_account(store, users[record["user"]], **_fields(record, "user")) for record in seed["accounts"]]
    _fill(store, seed, config)
    for record in seed["product_catalogs"]:
        store["product_catalogs"].add(users[record["user"]], _fields(record, "user"))
    audiences = [
        add_audience(store, record["account"], **_fields(record, "account")) for record in seed["custom_audiences"]
    ]
    return World(apps, tokens, accounts[0].id, audiences[0].id)


def _fill(store: Store, seed: Mapping[str, Any], config: SandboxConfig) -> None:
    """Keep what accounts have and what belongs to nobody."""
    for kind, add in _ADDERS.items():
        for record in seed[kind]:
            add(store, record["account"], **_fields(record, "account"))
    for record in seed["line_items"]:
        fields = _fields(record, "account")
        add_line_item(store, record["account"], defaults=config.line_item_defaults, **fields)
    for account_id, keys in seed["features"].items():
        hold(store, account_id, keys)
    for kind in _KINDS:
        for record in seed[kind]:
            store[kind].add(record.get("account", ""), _fields(record, "account"))
    uploads = {row.id: row for row in (_upload(store, record) for record in seed["uploads"])}
    for record in seed["media_library"]:
        add_media(store, uploads[record["media_key"]], **record)
    for record in seed["images"]:
        store["images"].add("", record, key=record["url"])


def _fields(record: Mapping[str, Any], relation: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != relation}


def _upload(store: Store, record: Mapping[str, Any]) -> Row:
    return add_upload(store, record["account"], **_fields(record, "account"))


def add_audience(store: Store, account_id: str, *, id: str | None = None, name: str = "Audience") -> Audience:  # noqa: A002 the record's field
    """Keep a new, empty audience."""
    fields: dict[str, Any] = {"id": id or store.ids.next("custom_audience", 5), "name": name}
    row = store["custom_audiences"].add(account_id, fields)
    audience = store.audiences[row.id] = Audience(row.id, account_id)
    return audience


def _app(store: Store, record: Mapping[str, Any]) -> App:
    """Make an app; what is secret is drawn from the seed."""
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


def _token(store: Store, app: App, user_id: str) -> Token:
    secret = store.ids.secret(f"token_secret:{user_id}", 45)
    return Token(f"{user_id}-{store.ids.secret(f'token:{user_id}', 30)}", secret, user_id, app.consumer_key)
