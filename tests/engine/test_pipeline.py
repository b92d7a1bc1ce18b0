"""What a call tells the governor on its way, and in which order."""

from types import TracebackType
from typing import Any, Self, cast

import pytest

from svc_async import (
    Endpoints,
    Forbidden,
    NotFound,
    Retries,
    Session,
    TransportError,
    UnexpectedAnswer,
    UserCredentials,
)
from svc_async.engine.pipeline import CallEvent
from svc_async.governor.governor import Governor
from svc_async.governor.slot import Priority
from svc_async.sandbox import Fault, Sandbox

CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
NOBODY = "http://127.0.0.1:1"


class Turns:
    """A governor that lets everybody through and notes what it is told."""

    max_wait = 7.0

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []
        self.told: list[str] = []

    def slot(self, _: object, **asked: object) -> Self:
        self.asked.append(asked)
        return self

    async def __aenter__(self) -> Self:
        self.told.append("enter")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self.told.append("leave")

    def mark_sent(self) -> None:
        self.told.append("mark_sent")

    def learn(self, status: int, headers: Any) -> None:
        assert "x-rate-limit-limit" in headers
        self.told.append(f"learn {status}")

    def mark_lost(self) -> None:
        self.told.append("mark_lost")


@pytest.fixture
def turns() -> Turns:
    return Turns()


def session_of(sandbox: Sandbox, turns: Turns) -> Session:
    return Session.sandbox(sandbox, governor=cast(Governor, turns), retries=Retries.none())


async def test_a_call_takes_its_turn_with_the_patience_of_the_governor(sandbox: Sandbox, turns: Turns) -> None:
    async with session_of(sandbox, turns) as session:
        await session.accounts.get(sandbox.account_id)
    assert turns.told == ["enter", "mark_sent", "learn 200", "leave"]
    assert turns.asked[0]["priority"] is Priority.INTERACTIVE
    assert turns.asked[0]["max_wait"] == 7.0


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        (Fault.http(404), NotFound, "learn 404"),
        (Fault.truncate(10), UnexpectedAnswer, "learn 200"),
        (Fault.malformed_json(), UnexpectedAnswer, "learn 200"),
        (Fault.drop_connection(), TransportError, "mark_lost"),
    ],
)
async def test_the_governor_is_told_what_became_of_a_call(
    sandbox: Sandbox, turns: Turns, fault: Fault, error: type[Exception], told: str
) -> None:
    sandbox.faults.on("*").do(fault, stage="after")
    async with session_of(sandbox, turns) as session:
        with pytest.raises(error):
            await session.accounts.get(sandbox.account_id)
    assert turns.told == ["enter", "mark_sent", told, "leave"]


async def test_a_call_that_was_not_sent_gives_its_turn_back(turns: Turns) -> None:
    hosts = Endpoints(base_url=NOBODY, ads_url=NOBODY)
    async with Session(CREDENTIALS, endpoints=hosts, governor=cast(Governor, turns), retries=Retries.none()) as session:
        with pytest.raises(TransportError, match="connection refused"):
            await session.accounts.get("a")
    assert turns.told == ["enter", "leave"]


async def test_a_given_proxy_stands_between_the_session_and_every_host() -> None:
    hosts = Endpoints(base_url=NOBODY, ads_url=NOBODY, ads_sandbox_url=NOBODY)
    proxy = "http://127.0.0.1:2"
    async with Session(CREDENTIALS, endpoints=hosts, proxy=proxy, retries=Retries.none()) as session:
        for call in (session.request("GET", "/2/x"), session.accounts.get("a"), session.accounts.delete("a")):
            with pytest.raises(TransportError, match="the proxy is unreachable"):
                await call


async def test_an_event_tells_how_long_the_attempt_took(sandbox: Sandbox) -> None:
    told: list[CallEvent] = []
    sandbox.faults.on("*").do(Fault.latency(3))
    async with Session.sandbox(sandbox, on_event=told.append) as session:
        await session.accounts.get(sandbox.account_id)
    assert told[0].seconds >= 3


async def test_what_an_on_event_raises_changes_no_outcome(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    def on_event(_: CallEvent) -> None:
        raise RuntimeError("hush")

    sandbox.faults.on("GET", "*/accounts/*").once().do(Fault.http(503))
    async with Session.sandbox(sandbox, on_event=on_event) as session:
        assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
        with pytest.raises(Forbidden):
            await session.accounts.get("nobody")
    assert caplog.messages == ["on_event failed: RuntimeError"] * 3
