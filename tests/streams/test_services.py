"""The two streams of a session, and how their calls are proved and governed, from a service that misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from svc_async import (
    AppCredentials,
    BearerToken,
    Conflict,
    Endpoints,
    InvalidArgument,
    OAuth2UserCredentials,
    Session,
    Unauthorized,
    UserCredentials,
)
from svc_async.engine.pipeline import CallEvent
from svc_async.events.models import MatchedPost
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, changed
from svc_async.sandbox import VirtualClock
from svc_async.streams.states import StreamState
from tests.streams.conftest import CROWDED, Adversary, Script, Steps, hold, holding, line, refusing

APP = AppCredentials(consumer_key="k", consumer_secret="s")
MATCH = b'{"data":{"id":"1","text":"t"},"matching_rules":[{"id":"2","tag":"x"}]}\r\n'


@pytest.fixture
def endpoints(adversary: Adversary) -> Endpoints:
    return Endpoints(base_url=adversary.url, ads_url=adversary.url)


@pytest.fixture
async def session(endpoints: Endpoints, clock: VirtualClock) -> AsyncIterator[Session]:
    async with Session(BearerToken("bear"), endpoints=endpoints, clock=clock) as session:
        yield session


def token(value: str) -> Script:
    """The service gives a bearer token."""
    return refusing(200, {"token_type": "bearer", "access_token": value})


@pytest.mark.rule("STR-01")
async def test_the_activity_stream_is_a_get_that_goes_on(adversary: Adversary, session: Session) -> None:
    adversary.scripts = [holding(line(1))]
    async with session.activity.stream() as stream:
        assert (await anext(stream)).event_type == "post.delete"
    visit = adversary.visits[0]
    assert (visit.method, visit.target) == ("GET", "/2/activity/stream")
    assert visit.headers["authorization"] == "Bearer bear"


async def test_the_filtered_stream_gives_posts_and_the_rules_they_match(adversary: Adversary, session: Session) -> None:
    adversary.scripts = [holding(MATCH)]
    async with session.filtered_stream.stream() as stream:
        event = await anext(stream)
    assert isinstance(event, MatchedPost)
    assert (event.post.id, [rule.tag for rule in event.matching_rules]) == ("1", ["x"])
    assert adversary.visits[0].target == "/2/tweets/search/stream"


async def test_a_filtered_stream_without_rules_is_a_conflict(adversary: Adversary, session: Session) -> None:
    adversary.scripts = [refusing(409, {"title": "ConnectionException", "detail": "no rules", "status": 409})]
    with pytest.raises(Conflict, match="no rules"):
        await session.filtered_stream.stream().__aenter__()


@pytest.mark.parametrize("body", [{"errors": [{"code": 89, "message": "expired"}]}, {"title": "Unauthorized"}])
@pytest.mark.rule("ERR-01")
async def test_a_token_that_is_refused_is_renewed_once(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock, body: dict[str, Any]
) -> None:
    adversary.scripts = [token("old"), refusing(401, body), token("new"), holding(line(1))]
    async with Session(APP, endpoints=endpoints, clock=clock) as session, session.activity.stream() as stream:
        await anext(stream)
    streams = [visit for visit in adversary.visits if visit.path == "/2/activity/stream"]
    assert [visit.headers["authorization"] for visit in streams] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("again", ["old", "new"])
async def test_a_renewed_token_that_is_refused_ends_the_stream(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock, again: str
) -> None:
    adversary.scripts = [token("old"), refusing(401), token(again), refusing(401)]
    async with Session(APP, endpoints=endpoints, clock=clock) as session:
        with pytest.raises(Unauthorized):
            await session.activity.stream().__aenter__()
    assert len(adversary.visits) == (4 if again == "new" else 3)


async def test_a_given_token_that_is_refused_cannot_be_renewed(adversary: Adversary, session: Session) -> None:
    adversary.scripts = [refusing(401)]
    with pytest.raises(Unauthorized):
        await session.activity.stream().__aenter__()
    assert len(adversary.visits) == 1


async def test_a_token_that_goes_bad_while_the_stream_is_followed_is_renewed(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock, steps: Steps
) -> None:
    adversary.scripts = [token("old"), hold, refusing(401), token("new"), holding(line(2))]
    async with (
        Session(APP, endpoints=endpoints, clock=clock) as session,
        session.activity.stream(on_state=steps, recover="off") as stream,
    ):
        (await adversary.visit(2)).cut()
        change = await steps.next(StreamState.BACKOFF)
        await clock.advance(seconds=change.wait or 0)
        assert (await anext(stream)).key == "-2"


async def test_a_user_with_scopes_follows_activity_with_them(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock
) -> None:
    credentials = OAuth2UserCredentials(access_token="scoped")
    async with Session(credentials, endpoints=endpoints, clock=clock) as session, session.activity.stream():
        pass
    assert adversary.visits[0].headers["authorization"] == "Bearer scoped"


async def test_every_connect_takes_one_turn_at_its_own_limit(session: Session) -> None:
    async with session.activity.stream(), session.filtered_stream.stream():
        used = {state.name: (state.limit, state.used, state.scope) for state in session.governor.snapshot()}
    assert used == {"activity.stream": (450, 1, "app"), "filtered_stream.stream": (50, 1, "app")}


async def test_connects_wait_for_their_limit_as_long_as_it_takes(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock
) -> None:
    governor = Governor(limits=changed(LIMITS, "activity.stream", requests=1), clock=clock, max_wait=60)
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock, governor=governor) as session:
        async with session.activity.stream():
            pass
        entering = asyncio.ensure_future(session.activity.stream().__aenter__())
        await clock.advance(minutes=14)
        assert len(adversary.visits) == 1
        await clock.advance(minutes=2)
        await (await entering).aclose()


async def test_too_many_open_streams_do_not_close_the_limit_of_connects(
    adversary: Adversary, session: Session, steps: Steps
) -> None:
    adversary.scripts = [refusing(429, CROWDED)]
    entering = asyncio.ensure_future(session.activity.stream(on_state=steps).__aenter__())
    await steps.next(StreamState.BACKOFF)
    (state,) = session.governor.snapshot()
    assert (state.closed_until, state.used) == (None, 1)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering


async def test_every_connect_is_told(adversary: Adversary, endpoints: Endpoints, clock: VirtualClock) -> None:
    told: list[CallEvent] = []
    adversary.scripts = [refusing(409), hold]
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock, on_event=told.append) as session:
        with pytest.raises(Conflict):
            await session.activity.stream().__aenter__()
        async with session.activity.stream():
            pass
    assert [(event.path, event.status, type(event.error)) for event in told] == [
        ("/2/activity/stream", 409, Conflict),
        ("/2/activity/stream", 200, type(None)),
    ]


async def test_closing_the_session_ends_its_streams(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock, steps: Steps
) -> None:
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock) as session:
        stream = await session.activity.stream(on_state=steps).__aenter__()
    await clock.advance(seconds=(await steps.next(StreamState.BACKOFF)).wait or 0)
    with pytest.raises(InvalidArgument, match="^session must be open"):
        await anext(stream)
    await stream.aclose()
    await adversary.visits[0].over.wait()


async def test_an_app_is_needed(endpoints: Endpoints) -> None:
    credentials = OAuth2UserCredentials(access_token="scoped")
    async with Session(credentials, endpoints=endpoints) as session:
        with pytest.raises(InvalidArgument, match="^app must be given"):
            session.filtered_stream.stream()


async def test_a_user_s_app_asks_for_the_token_and_other_calls_stay_signed(
    adversary: Adversary, endpoints: Endpoints, clock: VirtualClock
) -> None:
    user = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    adversary.scripts = [token("bear"), hold]
    async with Session(user, endpoints=endpoints, clock=clock) as session, session.activity.stream():
        pass
    assert adversary.visits[1].headers["authorization"] == "Bearer bear"


Make = Callable[[Session], Any]


@pytest.mark.parametrize(
    "make", [lambda session: session.activity.stream, lambda session: session.filtered_stream.stream]
)
@pytest.mark.parametrize("wrong", [{"queue_size": 0}, {"overflow": "x"}, {"recover": "x"}, {"stall_timeout": -1}])
async def test_settings_are_checked_before_anything_is_sent(
    session: Session, make: Make, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{next(iter(wrong))} must be"):
        make(session)(**wrong)
