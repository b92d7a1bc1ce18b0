"""The two streams of a session, and how their calls are authorized and governed, against a scripted service."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from svc_async import (
    AccessDenied,
    AppCredentials,
    BearerToken,
    Conflict,
    Endpoints,
    Forbidden,
    InvalidArgument,
    OAuth2UserCredentials,
    Session,
    Unauthorized,
    UserCredentials,
    WrongState,
)
from svc_async.events.models import MatchedPost
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.monitoring import CallEvent
from svc_async.sandbox import VirtualClock
from svc_async.streams.reconnect_policy import BACKOFF_RULES, Reconnects
from svc_async.streams.states import StreamState
from svc_async.streams.stream import StreamSettings
from tests.support.errors import has
from tests.support.stream_server import (
    TOO_MANY_CONNECTIONS,
    Script,
    StateLog,
    StreamServer,
    event_line,
    hold,
    refuse_with,
    send_and_hold,
)

APP = AppCredentials(consumer_key="k", consumer_secret="s")
MATCH = b'{"data":{"id":"1","text":"t"},"matching_rules":[{"id":"2","tag":"x"}]}\r\n'


def answer_token(value: str) -> Script:
    """The service gives a bearer token."""
    return refuse_with(200, {"token_type": "bearer", "access_token": value})


@pytest.mark.rule("STR-01")
async def test_the_activity_stream_is_an_endless_get(server: StreamServer, session: Session) -> None:
    server.scripts = [send_and_hold(event_line(1))]

    async with session.activity.stream() as stream:
        assert (await anext(stream)).event_type == "post.delete"

    connection = server.connections[0]

    assert (connection.method, connection.target) == ("GET", "/2/activity/stream")
    assert connection.headers["authorization"] == "Bearer bear"


async def test_the_filtered_stream_delivers_posts_with_the_rules_they_match(
    server: StreamServer, session: Session
) -> None:
    server.scripts = [send_and_hold(MATCH)]

    async with session.filtered_stream.stream() as stream:
        event = await anext(stream)

    assert isinstance(event, MatchedPost)
    assert (event.post.id, [rule.tag for rule in event.matching_rules]) == ("1", ["x"])
    assert server.connections[0].target == "/2/tweets/search/stream"


async def test_a_filtered_stream_without_rules_is_a_conflict(server: StreamServer, session: Session) -> None:
    server.scripts = [refuse_with(409, {"title": "ConnectionException", "detail": "no rules", "status": 409})]
    with pytest.raises(Conflict, check=has(status=409)):
        await session.filtered_stream.stream().__aenter__()


@pytest.mark.parametrize("body", [{"errors": [{"code": 89, "message": "expired"}]}, {"title": "Unauthorized"}])
@pytest.mark.rule("ERR-01")
async def test_a_token_that_is_refused_is_renewed_once(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock, body: dict[str, Any]
) -> None:
    server.scripts = [answer_token("old"), refuse_with(401, body), answer_token("new"), send_and_hold(event_line(1))]

    async with Session(APP, endpoints=endpoints, clock=clock) as session, session.activity.stream() as stream:
        await anext(stream)

    streams = [connection for connection in server.connections if connection.path == "/2/activity/stream"]

    assert [connection.headers["authorization"] for connection in streams] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("again", ["old", "new"])
async def test_a_renewed_token_that_is_refused_ends_the_stream(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock, again: str
) -> None:
    server.scripts = [answer_token("old"), refuse_with(401), answer_token(again), refuse_with(401)]

    async with Session(APP, endpoints=endpoints, clock=clock) as session:
        with pytest.raises(Unauthorized):
            await session.activity.stream().__aenter__()

    assert len(server.connections) == 4  # a token that is given again is tried once more, too


async def test_a_given_token_that_is_refused_cannot_be_renewed(server: StreamServer, session: Session) -> None:
    server.scripts = [refuse_with(401)]
    with pytest.raises(Unauthorized):
        await session.activity.stream().__aenter__()

    assert len(server.connections) == 1


async def test_a_token_that_expires_while_the_stream_is_open_is_renewed(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock, states: StateLog
) -> None:
    server.scripts = [answer_token("old"), hold, refuse_with(401), answer_token("new"), send_and_hold(event_line(2))]
    async with (
        Session(APP, endpoints=endpoints, clock=clock) as session,
        session.activity.stream(on_state=states, recover="off") as stream,
    ):
        (await server.wait_for_connection(2)).abort()
        change = await states.wait_for(StreamState.BACKOFF)
        await clock.advance(seconds=change.wait or 0)
        assert (await anext(stream)).key == "-2"


async def test_a_token_that_is_not_given_while_missed_events_are_requested_ends_the_stream(
    server: StreamServer,
    endpoints: Endpoints,
    clock: VirtualClock,
    states: StateLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = {"errors": [{"code": 99, "message": "Unable to verify your credentials"}]}
    server.scripts = [answer_token("old"), hold, refuse_with(401), refuse_with(403, refused)]
    async with (
        Session(APP, endpoints=endpoints, clock=clock) as session,
        session.activity.stream(on_state=states) as stream,
    ):
        (await server.wait_for_connection(2)).abort()
        change = await states.wait_for(StreamState.BACKOFF)
        await clock.advance(seconds=change.wait or 0)
        with pytest.raises(Forbidden) as caught:
            await anext(stream)
    assert caught.value.has_code(99)
    assert "authentication failed when missed events were requested: HTTP 403: 99 " in caplog.text
    assert "refused to recover" not in caplog.text


async def test_a_user_with_scopes_follows_activity_with_them(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock
) -> None:
    credentials = OAuth2UserCredentials(access_token="scoped")

    async with Session(credentials, endpoints=endpoints, clock=clock) as session, session.activity.stream():
        pass

    assert server.connections[0].headers["authorization"] == "Bearer scoped"


async def test_every_connect_counts_once_against_its_own_limit(session: Session) -> None:
    async with session.activity.stream(), session.filtered_stream.stream():
        used = {state.name: (state.limit, state.used, state.scope) for state in session.governor.snapshot()}
    assert used == {"activity.stream": (None, 1, "app"), "filtered_stream.stream": (None, 1, "app")}


async def test_connects_wait_for_their_limit_as_long_as_it_takes(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock
) -> None:
    governor = Governor(limits=change_limit(LIMITS, "activity.stream", requests=1), clock=clock, max_wait=60)
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock, governor=governor) as session:
        async with session.activity.stream():
            pass
        entering = asyncio.ensure_future(session.activity.stream().__aenter__())
        await clock.advance(minutes=14)
        assert len(server.connections) == 1
        await clock.advance(minutes=2)
        await (await entering).aclose()


async def test_too_many_open_streams_do_not_close_the_limit_of_connects(
    server: StreamServer, session: Session, states: StateLog
) -> None:
    server.scripts = [refuse_with(429, TOO_MANY_CONNECTIONS)]
    entering = asyncio.ensure_future(session.activity.stream(on_state=states).__aenter__())
    await states.wait_for(StreamState.BACKOFF)
    (state,) = session.governor.snapshot()
    assert (state.closed_until, state.used) == (None, 1)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering


async def test_every_connect_is_reported(server: StreamServer, endpoints: Endpoints, clock: VirtualClock) -> None:
    events: list[object] = []
    server.scripts = [refuse_with(409), hold]

    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock, on_event=events.append) as session:
        with pytest.raises(Conflict):
            await session.activity.stream().__aenter__()
        async with session.activity.stream():
            pass

    calls = [event for event in events if isinstance(event, CallEvent)]
    assert [(event.path, event.status, type(event.error)) for event in calls] == [
        ("/2/activity/stream", 409, Conflict),
        ("/2/activity/stream", 200, type(None)),
    ]


async def test_closing_the_session_ends_its_streams(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock, states: StateLog
) -> None:
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock) as session:
        stream = await session.activity.stream(on_state=states).__aenter__()

    await clock.advance(seconds=(await states.wait_for(StreamState.BACKOFF)).wait or 0)
    with pytest.raises(WrongState):
        await anext(stream)
    await stream.aclose()
    await server.connections[0].closed.wait()


async def test_an_app_is_needed(endpoints: Endpoints) -> None:
    credentials = OAuth2UserCredentials(access_token="scoped")
    async with Session(credentials, endpoints=endpoints) as session:
        with pytest.raises(AccessDenied):
            session.filtered_stream.stream()


async def test_the_app_of_a_user_requests_the_token_and_other_calls_stay_signed(
    server: StreamServer, endpoints: Endpoints, clock: VirtualClock
) -> None:
    user = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    server.scripts = [answer_token("bear"), hold]

    async with Session(user, endpoints=endpoints, clock=clock) as session, session.activity.stream():
        pass

    assert server.connections[1].headers["authorization"] == "Bearer bear"


Make = Callable[[Session], Any]


STREAMS = pytest.mark.parametrize(
    "make", [lambda session: session.activity.stream, lambda session: session.filtered_stream.stream]
)
DEFAULTS = {
    "recover": "auto",
    "since": None,
    "dedupe": True,
    "queue_size": 10_000,
    "queue_bytes": 67_108_864,
    "overflow": "block",
    "stall_timeout": 25,
    "max_line_bytes": 8_388_608,
    "on_state": None,
    "on_gap": None,
    "on_malformed": None,
}


@STREAMS
async def test_the_defaults_are_the_documented_ones(session: Session, make: Make) -> None:
    parameters = inspect.signature(make(session)).parameters
    taken = {name: parameter.default for name, parameter in parameters.items()}
    reconnects = taken.pop("reconnects")
    settings = attrs.asdict(StreamSettings(), recurse=False)

    assert (reconnects or Reconnects()) == settings.pop("reconnects") == Reconnects(min_age=30, rules=BACKOFF_RULES)
    assert taken == settings == DEFAULTS


@STREAMS
@pytest.mark.parametrize("wrong", [{"queue_size": 0}, {"overflow": "x"}, {"recover": "x"}, {"stall_timeout": -1}])
async def test_settings_are_checked_before_anything_is_sent(
    session: Session, make: Make, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=next(iter(wrong)))):
        make(session)(**wrong)
