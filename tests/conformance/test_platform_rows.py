"""The routes of the main API against the contract: methods, paths, parameters, records, enums, authorization."""

import importlib
import pkgutil
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs
import pytest

from svc_async import AppCredentials, BearerToken, OAuth2UserCredentials, Session, platform
from svc_async.open_enum import OpenEnum
from svc_async.platform import activity, oauth1_flow, oauth2
from svc_async.wire.route import Listing, Reply, Route, Surface
from tests.support.contract import ENUMS, RECORDS, Row, load_table
from tests.support.scripted_server import APP, USER, Answer, ReceivedRequest, ScriptedServer, clock, service

__all__ = ["clock", "service"]

OPERATIONS: Mapping[str, Row] = {
    name: row for name, row in load_table("operations", "operation").items() if row["surface"] == "base"
}
PAGES = {"oauth1.authorize", "oauth1.authenticate"}
"""Operations that are pages for a browser."""
UNLISTED = {
    ("POST", "/2/oauth2/token"),
    ("GET", "/2/activity/subscriptions"),
    ("PUT", "/2/activity/subscriptions/{subscription_id}"),
    ("DELETE", "/2/activity/subscriptions/{subscription_id}"),
    ("GET", "/2/tweets/search/stream/rules"),
    ("GET", "/2/tweets/search/stream"),
}
"""Calls that the contract names without an operation: see its `unspecified.toml`."""
RENAMED = {"BearerToken": "AppToken"}
"""Records whose name the credentials have."""

MODULES = [
    importlib.import_module(f"{platform.__name__}.{module.name}") for module in pkgutil.iter_modules(platform.__path__)
]
ROWS: list[Any] = [row for module in MODULES for row in vars(module).values() if isinstance(row, Route | Listing)]


def find_route(operation: str) -> Any:
    wanted = OPERATIONS[operation]["method"], OPERATIONS[operation]["path"]
    (found,) = [row for row in ROWS if (row.method, row.path) == wanted]
    return found


CALLED = [name for name in OPERATIONS if name not in PAGES and OPERATIONS[name]["response"]["shape"] != "stream"]


@pytest.mark.rule("VER-01", "VER-02", "WH-09", "WH-10", "WH-11", "WH-50", "WH-51", "FS-01")
@pytest.mark.parametrize("operation", [*CALLED, *sorted(PAGES)])
def test_each_operation_is_one_route_on_the_base_host(operation: str) -> None:
    assert find_route(operation).surface is Surface.BASE


def test_each_route_is_an_operation_or_listed_as_none() -> None:
    known = {(row["method"], row["path"]) for row in OPERATIONS.values()} | UNLISTED
    assert {(row.method, row.path) for row in ROWS} <= known


@pytest.mark.rule("VER-02")
def test_nothing_but_the_invalidation_is_called_under_1_1() -> None:
    assert [row.path for row in ROWS if row.path.startswith("/1.1/")] == ["/1.1/oauth/invalidate_token"]


@pytest.mark.rule("AUTH-01b", "AUTH-01d", "AUTH-20b", "AUTH-20c")
@pytest.mark.parametrize("operation", [name for name in CALLED if OPERATIONS[name]["body"] in {"none", "form"}])
def test_bodies_are_the_contract_s(operation: str) -> None:
    row = find_route(operation)
    assert (row.form, row.json) == (OPERATIONS[operation]["body"] == "form", False)


@pytest.mark.rule("AUTH-08", "AUTH-14d", "AUTH-16b", "AUTH-20d")
@pytest.mark.parametrize("operation", [name for name in CALLED if OPERATIONS[name]["response"]["record"] in RECORDS])
def test_answers_are_the_contract_s_records(operation: str) -> None:
    response, row = OPERATIONS[operation]["response"], find_route(operation)
    record = response["record"]
    assert row.into.__name__ == RENAMED.get(record, record)
    assert row.reply is {"form": Reply.FORM, "object": Reply.BODY}[response["shape"]]
    needed = {field.name for field in attrs.fields(row.into) if field.default is attrs.NOTHING}
    assert needed == {field["name"] for field in RECORDS[record]["field"]}


@pytest.mark.rule("AUTH-07", "AUTH-20d", "ACT-03")
@pytest.mark.parametrize("mine", [oauth1_flow.OAuthAccessType, oauth2.TokenType, activity.EventDirection])
def test_enums_are_the_contract_s(mine: type[OpenEnum]) -> None:
    assert {member.value for member in mine} == {*ENUMS[mine.__name__]["values"]}


PROOFS = {
    "basic_app": "Basic ",
    "bearer_app": "Bearer app",
    "client_credentials": "Basic ",
    "oauth1_consumer": "OAuth ",
    "oauth1_request_token": "OAuth ",
    "oauth1_user": "OAuth ",
    "unspecified": "Bearer app",
}


async def make_call(session: Session, operation: str, now: datetime) -> None:
    """Make the call of an operation."""
    webhooks, subscriptions = session.webhooks, session.activity.subscriptions
    token = oauth1_flow.RequestToken(oauth_token="a", oauth_token_secret="b", oauth_callback_confirmed="true")
    window: dict[str, Any] = {"from_date": now.replace(hour=1), "to_date": now}
    calls: Mapping[str, Any] = {
        "oauth1.request_token": lambda: session.oauth1.request_token(callback="oob"),
        "oauth1.access_token": lambda: session.oauth1.access_token(token, verifier="v"),
        "oauth1.invalidate_token": session.oauth1.invalidate_token,
        "oauth2.token": session.oauth2.token,
        "oauth2.invalidate_token": session.oauth2.invalidate_token,
        "webhooks.create": lambda: webhooks.create("https://a.example.test"),
        "webhooks.list": lambda: webhooks.list().collect(),
        "webhooks.delete": lambda: webhooks.delete("1"),
        "webhooks.validate": lambda: webhooks.validate("1"),
        "webhooks.replay": lambda: webhooks.replay("1", **window),
        "account_activity.replay": lambda: webhooks.replay_account_activity("1", **window),
        "activity_subscriptions.create": lambda: subscriptions.create(event_type="post.create", user_id="1"),
        "stream_rules.manage": lambda: session.filtered_stream.rules.add(["a"]),
    }
    await calls[operation]()


def anything(seen: ReceivedRequest) -> Answer:
    """Answer so that each operation of these tests can read it."""
    if seen.path.startswith("/oauth/"):
        fields = "oauth_token=a&oauth_token_secret=b&oauth_callback_confirmed=true&user_id=1&screen_name=c"
        return Answer(fields)
    if seen.path.startswith("/2/"):
        record = {"id": "1", "url": "https://a.example.test", "valid": True, "job_id": "1", "subscription_id": "1"}
        one = {**record, "event_type": "post.create", "value": "a"}
        is_list = seen.method == "GET" or seen.path.endswith("/rules")
        return Answer({"data": [one] if is_list else one})
    return Answer({"token_type": "bearer", "access_token": "app"})


@pytest.mark.rule("AUTH-01e", "AUTH-16", "AUTH-20", "AUTH-24", "AUTH-25", "AUTH-25b")
@pytest.mark.filterwarnings("ignore:replay_account_activity")
@pytest.mark.parametrize("operation", CALLED)
async def test_each_call_is_proven_as_the_contract_says(operation: str, service: ScriptedServer) -> None:
    row = OPERATIONS[operation]
    path = row["path"].format(webhook_id="1")
    for each in {path, "/oauth2/token"}:
        for method in ("GET", "POST", "PUT", "DELETE"):
            service.on(method, each, anything)

    async with service.session(USER) as session:
        await make_call(session, operation, service.clock.now())

    (seen,) = service.requests_to(path)

    assert seen.method == row["method"]
    assert seen.authorization.startswith(PROOFS[row["auth"]])
    assert ("oauth_token" in seen.authorization) == (row["auth"] in {"oauth1_user", "oauth1_request_token"})


@pytest.mark.parametrize(
    "credentials", [AppCredentials(**APP), BearerToken("app"), OAuth2UserCredentials(access_token="b")]
)
async def test_accessing_a_service_sends_nothing(credentials: Any, service: ScriptedServer) -> None:
    async with service.session(credentials, app=AppCredentials(**APP)) as session:
        looked_at = (session.webhooks, session.activity.subscriptions, session.filtered_stream.rules)
        assert len({type(each) for each in (*looked_at, session.oauth1, session.oauth2)}) == 5
    assert service.requests == []
