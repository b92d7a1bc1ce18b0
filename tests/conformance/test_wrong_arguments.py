"""An argument of a wrong type is refused where it is given, by an error of ours; nothing inside fails because of it.

The operations of the service are in `test_random_parameters.py`.
"""

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin

import pytest

import svc_async
from svc_async import AppCredentials, Governor, Retries, Session, SvcError, Timeouts, UserCredentials
from svc_async.batch.job import Job, SourceSpec, TargetSpec
from svc_async.events.router import EventRouter
from svc_async.lists.audience_users import AudienceUsers
from svc_async.platform.webhooks import ReplayTerms
from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from svc_async.sources.detect import list_columns, open_feed, open_source
from svc_async.sources.rows import from_arrow, from_cursor, from_rows
from svc_async.state.shared_state import SharedState
from svc_async.webhooks import Ack, SigningKey, SqliteDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.testing import build_crc, build_delivery

Call = Callable[..., Any]

WRONG: tuple[Any, ...] = (
    *(None, 5, -1, 1.5, float("nan"), float("inf"), True, "", "x", "a\nb", b"x"),
    *([], [1], ["a"], {}, {"a": 1}, (), {1, 2}, object(), print, int, datetime(2026, 1, 1), date(2026, 1, 1)),  # noqa: DTZ001 - one without a time zone
)
FEW = (None, 5, float("nan"), "a\nb", b"x", ["a"], {"a": 1}, object())
VALUES = pytest.mark.parametrize(
    "values", [pytest.param(FEW, id="few"), pytest.param(WRONG, id="all", marks=pytest.mark.long)]
)
ROWS = [{"email": "someone@example.test"}]
KEY = SigningKey("secret")
JOBS = ("users.", "do_not_reach.", "products.")
"""Services whose methods send rows: each call with arguments that are taken is a job."""
_USER = {"consumer_key": "a", "consumer_secret": "b", "token": "c", "token_secret": "d"}
USER = UserCredentials(**_USER)
_INTERNAL = {"pipeline", "clock", "subscribers", "rng", "progress", "on_plan"}
"""Parameters that only the SDK gives, and callbacks: what one of the caller's own raises is the caller's."""


def list_plain_calls(path: Path) -> Mapping[str, tuple[Call, Mapping[str, Any]]]:
    """Return functions and classes, with arguments that are right."""
    (path / "users.csv").write_text("email\nsomeone@example.test\n")
    (path / "feed.csv").write_text("product_key,title\n1,x\n")
    users = {"file": str(path / "users.csv")}
    source, target = SourceSpec(path="users.csv"), TargetSpec(kind="audience", list_id="1nmth", account_id="1")
    return {
        "Session": (Session, {"credentials": USER}),
        "Session.from_profile": (Session.from_profile, {"name": "nobody"}),
        "Session.sandbox": (Session.sandbox, {}),
        "AppCredentials": (AppCredentials, {"consumer_key": "a", "consumer_secret": "b"}),
        "UserCredentials": (UserCredentials, _USER),
        "Endpoints": (svc_async.Endpoints, {"base_url": "https://a.test", "ads_url": "https://b.test"}),
        "Governor": (Governor, {}),
        "Retries": (Retries, {}),
        "Timeouts": (Timeouts, {}),
        "open_source": (open_source, users),
        "list_columns": (list_columns, users),
        "open_feed": (open_feed, {"file": str(path / "feed.csv")}),
        "from_rows": (from_rows, {"names": ["email"], "rows": [("someone@example.test",)]}),
        "from_cursor": (from_cursor, {"cursor": None}),
        "from_arrow": (from_arrow, {"table": None}),
        "ReplayTerms": (ReplayTerms, {}),
        "SourceSpec": (SourceSpec, {"path": "users.csv"}),
        "TargetSpec": (TargetSpec, {"kind": "audience"}),
        "Job": (Job, {"target": target, "source": source}),
        "SharedState.open": (SharedState.open, {"url": "postgresql://localhost/none"}),
        "SigningKey": (SigningKey, {"secret": "secret"}),
        "WebhookReceiver": (WebhookReceiver, {"keys": [KEY]}),
        "Ack.durable": (Ack.durable, {"inbox": SqliteInbox(path / "inbox")}),
        "Ack.inline": (Ack.inline, {}),
        "SqliteInbox": (SqliteInbox, {"path": path / "inbox"}),
        "SqliteDedupe": (SqliteDedupe, {"path": path / "dedupe"}),
        "build_delivery": (build_delivery, {"event": {"data": {}}, "key": KEY}),
        "build_crc": (build_crc, {"key": KEY}),
        "Sandbox": (Sandbox, {}),
        "Fault.http": (Fault.http, {"status": 503}),
        "Fault.html": (Fault.html, {}),
        "Fault.latency": (Fault.latency, {"seconds": 1}),
        "Fault.slow_body": (Fault.slow_body, {"seconds": 1}),
        "Fault.truncate": (Fault.truncate, {"size": 1}),
        "Fault.late": (Fault.late, {"seconds": 1}),
        "EventRouter.on": (EventRouter().on, {}),
    }


def list_calls_of_a_session(session: Session, sandbox: Sandbox) -> Mapping[str, tuple[Call, Mapping[str, Any]]]:
    """Return methods that need a session, with arguments that are right."""
    account = session.account(sandbox.account_id)
    users = account.custom_audience(sandbox.audience_id).users
    kept_out = account.do_not_reach_list(sandbox.do_not_reach_list_id).users
    products = session.product_catalog(sandbox.add_catalog()).products
    return {
        "account": (session.account, {"account_id": "1"}),
        "account.custom_audience": (account.custom_audience, {"custom_audience_id": "1"}),
        "as_user": (session.as_user, {"credentials": USER}),
        "but": (session.but, {}),
        "request": (session.request, {"method": "GET", "path": "/12/accounts"}),
        "users.upload": (users.upload, {"members": ROWS}),
        "users.remove": (users.remove, {"members": ROWS}),
        "users.sync": (users.sync, {"members": ROWS}),
        "do_not_reach.upload": (kept_out.upload, {"members": ROWS}),
        "do_not_reach.remove": (kept_out.remove, {"members": ROWS}),
        "products.upsert": (products.upsert, {"products": []}),
        "products.delete": (products.delete, {"product_keys": ["1"]}),
        "webhooks.ensure": (session.webhooks.ensure, {"url": "https://hooks.example.test/svc"}),
        "webhooks.replay_gap": (session.webhooks.replay_gap, {"since": datetime(2026, 6, 10, 11, tzinfo=UTC)}),
        "activity.stream": (session.activity.stream, {}),
        "oauth1.request_token": (session.oauth1.request_token, {}),
        "oauth1.verifier": (session.oauth1.verifier, {}),
        "oauth2.authorization_url": (session.oauth2.authorization_url, {}),
        "oauth2.exchange": (session.oauth2.exchange, {}),
    }


def fill_in(function: Call, right: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments for all parameters without a default."""
    needed = [each for each in list_parameters(function) if each.default is each.empty]
    return {each.name: "a1" for each in needed} | dict(right)


def list_parameters(function: Call) -> list[inspect.Parameter]:
    """Return the parameters that a caller names, and the keywords of a typed dictionary."""
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    unpacked = [each.annotation for each in parameters if get_origin(each.annotation) is Unpack]
    keywords = chain.from_iterable(kind.__optional_keys__ for (kind,) in map(get_args, unpacked))
    return named + [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None) for each in sorted(keywords)]


def test_the_keywords_of_a_typed_dictionary_are_tested() -> None:
    assert {"concurrency", "journal", "phone_region"} <= {each.name for each in list_parameters(AudienceUsers.upload)}


async def find_internal_failures(function: Call, right: Mapping[str, Any], values: Sequence[Any]) -> AsyncIterator[str]:
    """Replace one argument after the other by what is wrong, and yield the failures that are none of ours."""
    arguments = fill_in(function, right)
    for parameter in list_parameters(function):
        for wrong in () if parameter.name in _INTERNAL else values:
            error = await call(function, {**arguments, parameter.name: wrong})
            if error is not None and not is_refusal(error):
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(at.filename).name}:{at.lineno}"
                yield f"{parameter.name}={wrong!r}: {type(error).__name__}: {error} ({place})"


async def call(function: Call, arguments: Mapping[str, Any]) -> Exception | None:
    """Call a function, await what it returns, and return its error."""
    named = dict(arguments)
    positional = [named.pop(each.name) for each in list_parameters(function) if each.kind is each.POSITIONAL_ONLY]
    try:
        result = function(*positional, **named)
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, 5)
    except Exception as error:  # noqa: BLE001 - it is what is tested
        return error
    return None


def is_refusal(error: Exception) -> bool:
    """Return whether an error is the SDK's, or one of Python's that the SDK raises itself or never saw."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(svc_async.__file__).parent)
    if isinstance(error, SvcError) or not any(frame.filename.startswith(package) for frame in frames):
        return True
    is_raised = frames[-1].filename.startswith(package) and "raise " in (frames[-1].line or "")
    return isinstance(error, TypeError | ValueError) and is_raised


async def find_all(calls: Mapping[str, tuple[Call, Mapping[str, Any]]], values: Sequence[Any]) -> list[str]:
    """Return the internal failures of all calls."""
    return [
        f"{name}({failure})"
        for name, (function, right) in calls.items()
        async for failure in find_internal_failures(function, right, values)
    ]


@pytest.fixture(autouse=True)
def work_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a temporary folder: some of the wrong values are names of files, which are made."""
    monkeypatch.chdir(tmp_path)


@VALUES
async def test_functions_and_classes_refuse_wrong_arguments(tmp_path: Path, values: Sequence[Any]) -> None:
    assert await find_all(list_plain_calls(tmp_path), values) == []


@VALUES
@pytest.mark.parametrize("are_jobs", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_methods_of_a_session_refuse_wrong_arguments(values: Sequence[Any], *, are_jobs: bool) -> None:
    config = SandboxConfig(rate_limits=False)
    async with (
        Sandbox(config=config, clock=VirtualClock(mode="jump")) as sandbox,
        Session.sandbox(sandbox) as session,
    ):
        calls = list_calls_of_a_session(session, sandbox)
        chosen = {name: call for name, call in calls.items() if name.startswith(JOBS) is are_jobs}
        assert await find_all(chosen, values) == []
