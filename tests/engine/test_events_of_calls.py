"""What the events of calls and of the governor say, and how functions subscribe to them."""

import asyncio
import contextlib

import pytest

from svc_async import (
    ApiError,
    BearerToken,
    Endpoints,
    InvalidArgument,
    Retries,
    Session,
    TransportError,
    UnexpectedAnswer,
    UserCredentials,
    WouldWaitTooLong,
)
from svc_async.errors import Sent
from svc_async.monitoring import CallEvent, LimitExceededEvent, LimitWaitEvent
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.errors import has
from tests.support.raw_peer import Peer
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.session_options import SessionOptions

READ = ("GET", "*/accounts/*")
EXPIRED = Answer({"errors": [{"code": 89, "message": "Invalid or expired token"}]}, 401)


def token(value: str) -> Answer:
    return Answer({"token_type": "bearer", "access_token": value})


async def read(sandbox: Sandbox) -> list[object]:
    events: list[object] = []
    async with Session.sandbox(sandbox, on_event=events.append, request_id_header="date") as session:
        await session.accounts.get(sandbox.account_id)
    return events


async def test_an_event_can_be_made_a_span(sandbox: Sandbox, clock: VirtualClock) -> None:
    sandbox.faults.on(*READ).once().do(Fault.latency(3))
    before, wall = clock.monotonic(), clock.now()
    (event,) = await read(sandbox)

    assert isinstance(event, CallEvent)
    assert event.monotonic == pytest.approx(before, abs=1)
    assert (event.started - wall).total_seconds() == pytest.approx(event.monotonic - before, abs=1e-3)
    assert event.seconds == pytest.approx(3, abs=1)
    assert (event.waited, event.backoff, event.bytes_sent) == (0, 0, 0)
    assert event.bytes_received > 100
    assert event.request_id is not None
    assert event.request_id.endswith("GMT")
    assert not event.is_cancelled


async def test_a_repeat_says_how_long_it_was_put_off(sandbox: Sandbox) -> None:
    sandbox.faults.on(*READ).once().do(Fault.http(503, retry_after=7))
    first, second = await read(sandbox)

    assert isinstance(first, CallEvent)
    assert isinstance(second, CallEvent)
    assert (first.attempt, first.backoff, first.status) == (1, 0, 503)
    assert (second.attempt, second.backoff, second.status) == (2, 7, 200)
    assert second.monotonic >= first.monotonic + first.seconds + 7


async def test_a_repeat_with_a_new_token_is_not_put_off(service: ScriptedServer) -> None:
    events: list[CallEvent] = []
    service.on("POST", "/oauth2/token", token("old"), token("new"))
    service.on("GET", "/2/webhooks", Answer("", 503, {"Retry-After": "7"}), EXPIRED, Answer({"meta": {}}))
    async with service.session(retries=Retries(attempts=2), on_event=events.append) as session:
        _, answer = await session.with_answer(session.webhooks.list().first())

    calls = [event for event in events if event.path == "/2/webhooks"]
    assert [(event.status, event.backoff) for event in calls] == [(503, 0), (401, 7), (200, 0)]
    assert (answer.attempts, answer.waited) == (3, 7)


@pytest.mark.parametrize(("status", "errors"), [(200, 1), (400, 0)])
async def test_errors_beside_data_are_those_of_an_answer_of_success(
    service: ScriptedServer, status: int, errors: int
) -> None:
    events: list[CallEvent] = []
    service.on("GET", "/2/things", Answer({"data": [], "errors": [{"title": "odd"}]}, status))
    async with service.session(BearerToken("t"), on_event=events.append) as session:
        with contextlib.suppress(ApiError):
            await session.request("GET", "/2/things")

    assert [len(event.errors) for event in events] == [errors]


async def test_an_attempt_without_an_answer_has_nothing_of_the_one_before(sandbox: Sandbox) -> None:
    sandbox.faults.on(*READ).once().do(Fault.http(503, retry_after=7))
    sandbox.faults.on(*READ).times(3).do(Fault.drop_connection())
    _, second, *_ = await read(sandbox)

    assert isinstance(second, CallEvent)
    assert (second.attempt, second.status, second.request_id, second.bytes_received) == (2, None, None, 0)


@pytest.mark.parametrize(("request_id_header", "request_id"), [("X-Id", "abc"), (None, None)])
async def test_an_answer_that_was_cut_off_has_its_status_in_the_event(
    peer: Peer, request_id_header: str | None, request_id: str | None
) -> None:
    events: list[CallEvent] = []
    peer.script = peer.answer(b"HTTP/1.1 201 Created\r\nX-Id: abc\r\nContent-Length: 50\r\n\r\n{", close=True)
    hosts = Endpoints(base_url=peer.url, ads_url=peer.url)
    options = SessionOptions(retries=Retries.none(), on_event=events.append, request_id_header=request_id_header)
    async with Session(BearerToken("t"), endpoints=hosts, **options) as session:
        with pytest.raises(UnexpectedAnswer) as caught:
            await session.request("GET", "/2/things")

    (event,) = events
    assert (event.status, event.request_id, event.bytes_received) == (201, request_id, 0)
    assert caught.value.request_id == request_id


async def test_a_429_and_the_wait_for_its_gate_are_events(sandbox: Sandbox, clock: VirtualClock) -> None:
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=30))
    refused, first, waited, second = await read(sandbox)

    assert isinstance(refused, LimitExceededEvent)
    assert refused.account == sandbox.account_id
    assert refused.closed_until is not None
    assert 25 < (refused.closed_until - clock.now()).total_seconds() + 30 < 65
    assert isinstance(first, CallEvent)
    assert first.status == 429
    assert isinstance(waited, LimitWaitEvent)
    assert (waited.limit, waited.account, waited.priority) == (refused.limit, refused.account, "interactive")
    assert isinstance(second, CallEvent)
    assert second.waited == waited.seconds > 25
    assert second.seconds >= second.waited


async def test_the_wait_of_a_batch_is_one_of_bulk(sandbox: Sandbox) -> None:
    waits: list[LimitWaitEvent] = []
    sandbox.faults.on("POST", "*/users").once().do(Fault.rate_limited(reset=30))
    async with Session.sandbox(sandbox) as session:
        session.subscribe(lambda event: waits.append(event) if isinstance(event, LimitWaitEvent) else None)
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        await users.upload([{"email": "ann@example.test"}])

    assert [wait.priority for wait in waits] == ["bulk"]


async def test_a_call_that_would_wait_too_long_is_an_event(sandbox: Sandbox) -> None:
    events: list[CallEvent] = []
    async with Session.sandbox(sandbox, on_event=events.append) as session:
        for _ in range(5):
            await session.accounts.list().first()
        with pytest.raises(WouldWaitTooLong):
            await session.accounts.list().first()

    assert isinstance(events[-1].error, WouldWaitTooLong)
    assert events[-1].error.sent is Sent.NO
    assert (events[-1].status, events[-1].waited) == (None, events[-1].seconds)


async def test_a_call_that_is_cancelled_is_an_event(sandbox: Sandbox) -> None:
    events: list[CallEvent] = []
    sandbox.faults.on("*").do(Fault.hang())
    async with Session.sandbox(sandbox, on_event=events.append) as session:
        call = asyncio.ensure_future(session.request("POST", "/12/accounts", json={"n": 1}, surface="ads_sandbox"))
        await sandbox.requests.wait(count=1)
        call.cancel()
        await asyncio.wait([call])

    (event,) = events
    assert event.is_cancelled
    assert (event.status, event.error, event.bytes_sent) == (None, None, len('{"n":1}'))


async def test_a_call_that_was_not_sent_has_no_bytes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="svc_async.http")
    events: list[CallEvent] = []
    credentials = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    nobody = "http://127.0.0.1:1"
    endpoints = Endpoints(base_url=nobody, ads_url=nobody)
    async with Session(credentials, endpoints=endpoints, retries=Retries.none(), on_event=events.append) as session:
        with pytest.raises(TransportError) as caught:
            await session.request("POST", "/12/accounts", json={"n": 1}, surface="ads")

    assert caught.value.sent is Sent.NO
    assert [event.bytes_sent for event in events] == [0]
    assert ", 0 bytes sent, " in caplog.text


async def test_an_event_of_any_call_names_no_person(session: Session, sandbox: Sandbox) -> None:
    events: list[object] = []
    session.subscribe(events.append)
    sandbox.faults.on("*").once().do(Fault.rate_limited(reset=1))
    with pytest.raises(ApiError, check=has(status=404)):
        await session.request("GET", "/2/users/by/username/ann", params={"q": "ann@example.test"})
    assert len(events) == 4
    assert "/2/users/..." in repr(events)
    assert "ann" not in repr(events)


async def test_subscribing_ends_when_it_should_and_covers_derived_sessions(sandbox: Sandbox) -> None:
    session = Session.sandbox(sandbox)
    events: list[object] = []
    others: list[object] = []
    end = session.subscribe(events.append)
    session.subscribe(others.append)
    async with session:
        await session.but(timeout=5).accounts.get(sandbox.account_id)
        end()
        end()
        await session.accounts.get(sandbox.account_id)
    async with session:
        await session.accounts.get(sandbox.account_id)
    assert (len(events), len(others)) == (1, 3)


async def test_a_host_that_is_not_given_is_an_event_as_well(sandbox: Sandbox) -> None:
    events: list[CallEvent] = []
    hosts = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)
    credentials = UserCredentials(**sandbox.credentials)
    async with Session(credentials, endpoints=hosts, on_event=events.append) as other:
        with pytest.raises(InvalidArgument, check=has(parameter="ads_sandbox_url")):
            await other.accounts.create()
    assert (events[0].host, events[0].port, events[0].status) == ("", 0, None)


@pytest.mark.parametrize(
    ("url", "port"), [("https://127.0.0.1", 443), ("http://127.0.0.1", 80), ("http://127.0.0.1:1", 1)]
)
async def test_an_event_has_the_port_of_its_scheme_unless_the_address_has_one(url: str, port: int) -> None:
    events: list[CallEvent] = []
    hosts = Endpoints(base_url=url, ads_url=url)
    async with Session(BearerToken("t"), endpoints=hosts, retries=Retries.none(), on_event=events.append) as session:
        with pytest.raises(TransportError):
            await session.request("GET", "/2/things")
    assert [(event.host, event.port) for event in events] == [("127.0.0.1", port)]
