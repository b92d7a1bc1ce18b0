"""A setting of a wrong type is refused where it is given, in one sentence that names it, and not when it is used."""

import io
import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from svc_async import Endpoints, Governor, InvalidArgument, Retries, Session, Timeouts, UserCredentials, telemetry
from svc_async.batch.journal.file import Journals
from svc_async.batch.settings import BatchSettings, Observers, SyncObservers, SyncSettings
from svc_async.errors import Hint
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.stream import StreamSettings
from tests.support.errors import has

USER = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
HOSTS = Endpoints(base_url="https://base.example", ads_url="https://ads.example")


async def observe(_: object) -> None:
    """Never run: nothing would await it."""


class AsyncObserver:
    async def __call__(self, _: object) -> None:
        """Never run either."""


class MadeOfAnEvent(AsyncObserver):
    def __init__(self, event: object) -> None:
        self.event = event


ASYNC = (observe, partial(observe), AsyncObserver(), AsyncObserver().__call__)
MISFITS = (*ASYNC, lambda: None, lambda _, __: None)


def make_session(**settings: Any) -> Session:
    return Session(USER, **{"endpoints": HOSTS, **settings})


def change_requests(**settings: Any) -> object:
    return change_limit(LIMITS, "ads.writes", **settings)


REFUSED: dict[str, tuple[Callable[..., object], dict[str, tuple[Any, ...]]]] = {
    "Session.sandbox": (
        Session.sandbox,
        {
            "running": (5, "sandbox"),
            "governor": (5,),
            "retries": (0, 3, {"attempts": 3}),
            "timeouts": (0, 5, "20"),
            "memory": ("5", 1.5, True, math.nan, math.inf, 0),
            "max_answer_bytes": ("5", 1.5, True, 0),
            "on_event": (5, "print", *MISFITS),
            "on_token": (5, lambda: None, lambda _, __: None),
            "state": ("postgresql://host/db", 5),
            "request_id_header": (5, b"x", "", "a b", "x-id:", "x\n", "n\u00e4me"),
            "validate": ("false", 0),
            "keep_unknown": ("false", 0),
            "strict_reading": ("false", 0),
            "state_required": ("false", 0),
        },
    ),
    "Session": (
        make_session,
        {
            "endpoints": ("https://ads.example", 5),
            "app": ("key", 0),
            "clock": (5, 0, "now"),
            "proxy": (5, b"http://proxy"),
            "on_event": (5, *MISFITS),
        },
    ),
    "Governor": (
        Governor,
        {
            "max_wait": ("60", -1, math.nan, True),
            "headroom": ("1", math.nan, True, 0),
            "limits": (5, ["ads.writes"]),
            "windows": (5, 0),
            "clock": (5, 0),
            "rng": (5, 0),
        },
    ),
    "Timeouts": (
        Timeouts,
        {
            "total": ("20", 0, -1, math.nan, math.inf, True),
            "connect": ("20", None, 0, math.nan, math.inf),
        },
    ),
    "Retries": (
        Retries,
        {
            "attempts": ("3", 1.5, 0, True, math.inf, math.nan),
            "first_wait": ("3", -1, math.nan, math.inf),
            "longest_wait": ("3", -1, math.nan),
            "deadline": ("3", None, -1, math.nan),
            "jitter": ("1", 1.5, math.nan),
        },
    ),
    "BatchSettings": (
        BatchSettings,
        {
            "concurrency": ("5", 1.5, True, 0, 1_001),
            "users_per_operation": ("5", 1.5, True, 0),
            "ordering": (5, [], "any"),
            "quarantine": ("5", -1, None, math.nan, math.inf),
            "retry_delays": (5, "60", ["60"], [-1], [math.nan]),
        },
    ),
    "Observers": (Observers, dict.fromkeys(("progress", "on_receipt", "on_failure"), (5, "print", *MISFITS))),
    "SyncObservers": (
        SyncObservers,
        dict.fromkeys(("progress", "on_plan", "on_removal_failure", "on_wait"), (5, *MISFITS)),
    ),
    "SyncSettings": (
        SyncSettings,
        {
            "dry_run": ("no", 0),
            "max_removal_share": ("0.2", 1.5, -1, math.nan),
            "refresh_within": (30, "30"),
        },
    ),
    "StreamSettings": (
        StreamSettings,
        {
            "since": ("2027-01-01T00:00:00Z", 5),
            "queue_size": ("5", 1.5, 0),
            "queue_bytes": ("5", 0),
            "max_line_bytes": ("5", 0),
            "stall_timeout": ("25", 0, math.nan, math.inf),
            "reconnects": (5, {}),
            "dedupe": ("no",),
            "recover": (True, []),
            "on_state": (5, *MISFITS),
            "on_gap": (5, *MISFITS),
            "on_malformed": (5, *MISFITS),
        },
    ),
    "Reconnects": (Reconnects, {"min_age": ("30", 0, math.nan), "rules": (5, [])}),
    "change_limit": (change_requests, {"requests": ("5", 1.5, 0), "period": ("60", 0, math.nan)}),
    "instrument": (telemetry.instrument, {"target": ("x", None)}),
}


def check_refusal(make: Callable[..., object], name: str, value: object, **settings: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        make(**settings, **{name: value})


@pytest.mark.parametrize("about", REFUSED)
def test_a_setting_of_a_wrong_type_is_refused_where_it_is_given(subtests: pytest.Subtests, about: str) -> None:
    make, settings = REFUSED[about]
    for name, values in settings.items():
        with subtests.test(name):
            for value in values:
                check_refusal(make, name, value)


def test_what_a_setting_may_be_is_accepted() -> None:
    class OwnClock:
        """Has the methods of a clock."""

        now = monotonic = sleep = call_later = timeout = print

    Governor(max_wait=None, limits=[LIMITS[0]], clock=OwnClock())  # type: ignore[arg-type]  # the test
    Governor(max_wait=0)
    Governor(max_wait=math.inf)
    Timeouts(total=None, connect=1)
    Retries(attempts=1, longest_wait=math.inf, deadline=math.inf)
    assert BatchSettings(retry_delays=[1, 2.5]).retry_delays == (1, 2.5)
    SyncSettings(refresh_within=timedelta(days=1))
    make_session(proxy="", app=None, clock=None, on_event=print)
    make_session(on_event=MadeOfAnEvent, on_token=observe)


async def test_a_session_made_by_but_refuses_what_is_none_of_its_settings(session: Session) -> None:
    check_refusal(session.but, "retries", 3)
    check_refusal(session.but, "retries", 0)
    for wrong in ("3", 0, -1, math.nan, math.inf, True):
        check_refusal(session.but, "timeout", wrong)


async def test_a_session_refuses_functions_and_calls_of_another_type(session: Session) -> None:
    check_refusal(session.subscribe, "function", 5)
    credentials = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    check_refusal(session.as_user, "on_token", 5, credentials=credentials)
    check_refusal(session.iterate, "path", 5)
    check_refusal(session.iterate, "params", 5, path="/2/x")
    wrong: Any = 5
    with pytest.raises(InvalidArgument, check=has(parameter="method")):
        await session.request(wrong, "/2/x")
    with pytest.raises(InvalidArgument, check=has(parameter="awaitable")):
        await session.with_answer(wrong)
    with pytest.raises(InvalidArgument, check=has(parameter="limit")):
        await session.accounts.list().collect(limit="3")  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("name", ["progress", "on_receipt", "on_failure"])
async def test_an_upload_with_an_observer_that_is_none_reads_and_sends_nothing(session: Session, name: str) -> None:
    def yield_rows() -> Any:
        raise AssertionError("it was read")
        yield

    wrong: Any = {name: 5}
    users = session.account("a").custom_audience("b").users
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        await users.upload(yield_rows(), **wrong)
    products = session.product_catalog("c").products
    for each in (wrong, {"on_result": 5}):
        with pytest.raises(InvalidArgument, check=has(parameter=next(iter(each)))):
            await products.upsert(yield_rows(), **each)


@pytest.mark.parametrize("value", [True, 5, b"x", io.StringIO("x")], ids=lambda value: type(value).__name__)
async def test_a_job_with_a_journal_or_a_state_that_is_none_reads_and_sends_nothing(
    session: Session, value: object
) -> None:
    def yield_rows() -> Any:
        raise AssertionError("it was read")
        yield

    wrong: Any = value
    users = session.account("a").custom_audience("b").users
    blocked = session.account("a").do_not_reach_list("c").users
    products = session.product_catalog("c").products
    uploads: list[Callable[..., Any]] = [
        users.upload,
        users.remove,
        blocked.upload,
        blocked.remove,
        products.upsert,
        products.delete,
    ]
    for upload in uploads:
        with pytest.raises(InvalidArgument, check=has(parameter="journal")):
            await upload(yield_rows(), journal=wrong)
    streams: list[Callable[..., Any]] = [users.stream, blocked.stream, products.stream]
    for stream in streams:
        with pytest.raises(InvalidArgument, check=has(parameter="journal")):
            stream(yield_rows(), journal=wrong)
    syncs: list[Callable[..., Any]] = [users.sync, products.sync]
    for sync in syncs:
        with pytest.raises(InvalidArgument, check=has(parameter="state")):
            await sync(yield_rows(), state=wrong)


@pytest.mark.parametrize("path", [":memory:", Path(":memory:"), "file::memory:?cache=shared", ""])
async def test_a_journal_or_a_state_in_memory_is_refused_before_a_row_is_read(
    session: Session, path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def yield_rows() -> Any:
        raise AssertionError("it was read")
        yield

    monkeypatch.chdir(tmp_path)
    users = session.account("a").custom_audience("b").users
    with pytest.raises(InvalidArgument, check=has(parameter="journal")) as journal:
        await users.upload(yield_rows(), journal=path)
    with pytest.raises(InvalidArgument, check=has(parameter="state")) as state:
        await users.sync(yield_rows(), state=path)
    if path:
        assert journal.value.hint is Hint.LEAVE_THE_JOURNAL_OUT
        assert state.value.hint is Hint.NAME_A_FILE
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("settings", [{"folder": 5}, {"folder": "x", "name": 5}])
def test_journals_of_another_type_are_refused(settings: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=[*settings][-1])):
        Journals(**settings)


UNKNOWN: dict[str, tuple[Callable[..., object], dict[str, str]]] = {
    "Session": (
        Session,
        {"timeout": "timeouts", "endpoint": "endpoints", "retry": "retries", "credential": "credentials"},
    ),
    "Session.from_env": (Session.from_env, {"timeout": "timeouts", "proxies": "proxy"}),
    "Session.from_profile": (Session.from_profile, {"timeout": "timeouts", "on_events": "on_event"}),
    "Session.sandbox": (Session.sandbox, {"timeout": "timeouts", "runing": "running"}),
}


@pytest.mark.parametrize(("call", "unknown"), [(call, name) for call, (_, names) in UNKNOWN.items() for name in names])
def test_an_unknown_setting_names_the_one_that_was_meant(call: str, unknown: str) -> None:
    function, meant = UNKNOWN[call]
    problem = f"{call}() got an unexpected keyword argument {unknown!r}; did you mean {meant[unknown]!r}?"
    for other in ({}, {"validate": "no"}):
        with pytest.raises(TypeError) as caught:
            function(**{unknown: 5}, **other)
        assert str(caught.value) == problem


async def test_an_unknown_keyword_of_a_job_names_the_one_that_was_meant(session: Session) -> None:
    audience = session.account("a").custom_audience("b").users
    blocked = session.account("a").do_not_reach_list("c").users
    products = session.product_catalog("d").products
    calls: dict[str, tuple[Callable[..., Any], str, str]] = {
        "upload": (audience.upload, "concurency", "concurrency"),
        "remove": (blocked.remove, "phone_regions", "phone_region"),
        "apply": (audience.apply, "cluster", ""),
        "stream": (blocked.stream, "on_receipt", ""),
        "upsert": (products.upsert, "shard", "shards"),
        "delete": (products.delete, "users_per_operation", ""),
        "sync": (products.sync, "max_removal", "max_removal_share"),
    }
    for name, (function, unknown, meant) in calls.items():
        wrong: dict[str, Any] = {unknown: 5, **({"state": "x.state"} if name == "sync" else {})}
        with pytest.raises(TypeError) as caught:
            await function([], **wrong)
        expected = f"{name}() got an unexpected keyword argument {unknown!r}"
        assert str(caught.value).partition(";")[0] == expected
        assert not meant or str(caught.value).endswith(f"; did you mean {meant!r}?")


@pytest.mark.parametrize("call", UNKNOWN)
def test_a_setting_like_no_other_is_refused(call: str) -> None:
    with pytest.raises(TypeError) as caught:
        UNKNOWN[call][0](zzz=5)
    assert str(caught.value) == f"{call}() got an unexpected keyword argument 'zzz'"
