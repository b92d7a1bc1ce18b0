"""The steps of a call at the governor, in order, and the events that it reports."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self, cast

import pytest

from svc_async import (
    Endpoints,
    Forbidden,
    NotFound,
    RateLimited,
    Retries,
    Session,
    TooManyConnections,
    TransportError,
    UnexpectedAnswer,
    UsageCapExceeded,
    UserCredentials,
)
from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.ledger import Ledger, NoLongerSendable
from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings
from svc_async.errors import Sent
from svc_async.governor.governor import Governor, Priority
from svc_async.monitoring import CallEvent
from svc_async.sandbox import Fault, Sandbox
from tests.support.errors import has
from tests.support.scripted_server import Answer, ScriptedServer

CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
UNREACHABLE = "http://127.0.0.1:1"


class RecordingGovernor:
    """Grants every request at once, and records the calls of its slots."""

    max_wait = 7.0
    turn = None
    waited = 0.0

    def __init__(self) -> None:
        self.requests: list[dict[str, object]] = []
        self.steps: list[str] = []

    def slot(self, _: object, **request: object) -> Self:
        self.requests.append(request)
        return self

    def restore(self, _: object, *, user: str, sent_at: Iterable[datetime]) -> None:
        assert user
        assert not list(sent_at)

    def find_pace(self, _: object) -> None:
        """Return no pace: there is no limit."""

    async def __aenter__(self) -> Self:
        self.steps.append("enter")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self.steps.append("leave")

    def mark_sent(self) -> None:
        self.steps.append("mark_sent")

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        assert "x-rate-limit-limit" in headers
        self.steps.append(f"learn {status}")

    def mark_lost(self) -> None:
        self.steps.append("mark_lost")


@pytest.fixture
def governor() -> RecordingGovernor:
    return RecordingGovernor()


def make_session(sandbox: Sandbox, governor: RecordingGovernor) -> Session:
    return Session.sandbox(sandbox, governor=cast(Governor, governor), retries=Retries.none())


async def test_a_call_takes_its_turn_with_the_patience_of_the_governor(
    sandbox: Sandbox, governor: RecordingGovernor
) -> None:
    async with make_session(sandbox, governor) as session:
        await session.accounts.get(sandbox.account_id)

    assert governor.steps == ["enter", "mark_sent", "learn 200", "leave"]
    assert governor.requests[0]["priority"] is Priority.INTERACTIVE
    assert governor.requests[0]["max_wait"] == 7.0


async def test_too_many_streams_keep_no_call_from_its_turn(service: ScriptedServer) -> None:
    crowded = {"title": "ConnectionException", "connection_issue": "TooManyConnections"}  # STR-02
    service.on("GET", "/2/things", Answer(crowded, 429, {"retry-after": "600"}), Answer({"data": 1}))
    async with service.session() as session:
        with pytest.raises(TooManyConnections, check=has(status=429, sent=Sent.YES)):
            await session.request("GET", "/2/things")
        assert [bucket.closed_until for bucket in session.governor.snapshot()] == [None]
        assert await session.request("GET", "/2/things") == {"data": 1}


async def test_a_cap_of_the_plan_closes_no_gate_and_nothing_is_repeated(service: ScriptedServer) -> None:
    capped = {"title": "UsageCapExceeded", "detail": "Monthly product cap", "type": "about:usage-capped"}
    headers = {"retry-after": "600", "x-rate-limit-remaining": "0", "x-rate-limit-reset": "9999999999"}
    service.on("GET", "/2/things", Answer(capped, 429, headers), Answer({"data": 1}))
    async with service.session(retries=Retries()) as session:
        with pytest.raises(UsageCapExceeded, check=has(status=429, sent=Sent.YES, repeatable=False)):
            await session.request("GET", "/2/things")
        assert [bucket.closed_until for bucket in session.governor.snapshot()] == [None]
        assert await session.request("GET", "/2/things") == {"data": 1}


async def test_a_limit_of_a_day_keeps_its_gate_closed_for_an_hour(service: ScriptedServer) -> None:
    now = int(service.clock.now().timestamp())
    headers = {"date": format_datetime(service.clock.now(), usegmt=True)}
    headers |= {"x-rate-limit-limit": "900", "x-rate-limit-remaining": "899", "x-rate-limit-reset": str(now + 2)}
    headers |= {"x-user-limit-24hour-remaining": "0", "x-user-limit-24hour-reset": str(now + 80_000)}
    service.on("GET", "/2/things", Answer({}, 429, headers))
    async with service.session() as session:
        with pytest.raises(RateLimited) as caught:
            await session.request("GET", "/2/things")
        (bucket,) = session.governor.snapshot()

    assert caught.value.retry_after == 80_000
    assert bucket.closed_until is not None
    assert 3_600 <= (bucket.closed_until - service.clock.now()).total_seconds() <= 3_602


@pytest.mark.parametrize(
    ("fault", "error", "step"),
    [
        (Fault.http(404), NotFound, "learn 404"),
        (Fault.http(429), RateLimited, "learn 429"),
        (
            Fault.http(429, body=b'{"connection_issue":"TooManyConnections","title":"x"}'),
            TooManyConnections,
            "learn 200",
        ),
        (Fault.truncate(10), UnexpectedAnswer, "learn 200"),
        (Fault.malformed_json(), UnexpectedAnswer, "learn 200"),
        (Fault.drop_connection(), TransportError, "mark_lost"),
    ],
)
async def test_the_governor_is_told_what_became_of_a_call(
    sandbox: Sandbox, governor: RecordingGovernor, fault: Fault, error: type[Exception], step: str
) -> None:
    sandbox.faults.on("*").do(fault, stage="after")
    async with make_session(sandbox, governor) as session:
        with pytest.raises(error):
            await session.accounts.get(sandbox.account_id)

    assert governor.steps == ["enter", "mark_sent", step, "leave"]


async def test_a_call_that_was_not_sent_gives_its_turn_back(governor: RecordingGovernor) -> None:
    hosts = Endpoints(base_url=UNREACHABLE, ads_url=UNREACHABLE)
    async with Session(
        CREDENTIALS, endpoints=hosts, governor=cast(Governor, governor), retries=Retries.none()
    ) as session:
        with pytest.raises(TransportError, check=has(sent=Sent.NO)):
            await session.accounts.get("a")

    assert governor.steps == ["enter", "leave"]


async def upload_a_row(sandbox: Sandbox, governor: RecordingGovernor, ledger: type[Ledger]) -> Report:
    """Upload a row with a ledger of this type, and return the report."""
    async with make_session(sandbox, governor) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        target = TargetSpec(kind="audience", account_id=sandbox.account_id, list_id=sandbox.audience_id)
        job = Job(target=target, settings=BatchSettings(retry_delays=(0,), quarantine=1_000))
        return (await users.run_job(job, [{"email": "a@example.org"}], ledger=ledger())).total


async def test_a_job_is_told_of_each_request_when_the_governor_admits_it_and_not_earlier(
    sandbox: Sandbox, governor: RecordingGovernor
) -> None:
    class TellingLedger(Ledger):
        async def intend(self, *_: Any) -> None:
            governor.steps.append("intended")

        def check_sendable(self) -> None:
            governor.steps.append("checked")

    await upload_a_row(sandbox, governor, TellingLedger)

    assert governor.steps == ["enter", "intended", "checked", "mark_sent", "learn 200", "leave"]


async def test_what_is_refused_directly_before_its_bytes_is_not_sent_and_does_not_count(
    sandbox: Sandbox, governor: RecordingGovernor
) -> None:
    class RefusingLedger(Ledger):
        def check_sendable(self) -> None:
            governor.steps.append("refused")
            if governor.steps.count("refused") == 1:
                raise NoLongerSendable("too late")

    report = await upload_a_row(sandbox, governor, RefusingLedger)

    assert governor.steps == ["enter", "refused", "leave", "enter", "refused", "mark_sent", "learn 200", "leave"]
    assert (report.accepted, report.requests, sandbox.requests.count("*/users")) == (1, 1, 1)


async def test_a_given_proxy_stands_between_the_session_and_every_host() -> None:
    hosts = Endpoints(base_url=UNREACHABLE, ads_url=UNREACHABLE, ads_sandbox_url=UNREACHABLE)
    proxy = "http://127.0.0.1:2"
    async with Session(CREDENTIALS, endpoints=hosts, proxy=proxy, retries=Retries.none()) as session:
        for call in (session.request("GET", "/2/x"), session.accounts.get("a"), session.accounts.delete("a")):
            with pytest.raises(TransportError, check=has(sent=Sent.NO)):
                await call


async def test_an_event_tells_how_long_the_attempt_took(sandbox: Sandbox) -> None:
    events: list[CallEvent] = []
    sandbox.faults.on("*").do(Fault.latency(3))
    async with Session.sandbox(sandbox, on_event=events.append) as session:
        await session.accounts.get(sandbox.account_id)

    assert events[0].seconds >= 3


async def test_what_an_on_event_raises_changes_no_outcome(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    def on_event(_: CallEvent) -> None:
        raise RuntimeError("hush")

    sandbox.faults.on("GET", "*/accounts/*").once().do(Fault.http(503))
    async with Session.sandbox(sandbox, on_event=on_event) as session:
        assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
        with pytest.raises(Forbidden):
            await session.accounts.get("nobody")

    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["on_event failed: RuntimeError"] * 3
