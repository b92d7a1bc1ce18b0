"""The spans and metrics of sessions."""

import asyncio
import sys
from importlib import import_module

import attrs
import pytest
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from opentelemetry.semconv.metrics import http_metrics
from opentelemetry.trace import SpanKind, StatusCode

from svc_async import NotFound, Session, WouldWaitTooLong, WrongState
from svc_async.errors import SvcError
from svc_async.monitoring import CallEvent
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from svc_async.telemetry import SessionTelemetry, create_meter, create_tracer, instrument
from tests.support.telemetry import Telemetry

READ = ("GET", "*/accounts/*")
NAME = "GET /12/accounts/{account_id}"
TEMPLATE = "url.template"
COMMON = {TEMPLATE: "/12/accounts/{account_id}"}


async def test_a_call_is_a_span_below_that_of_its_caller(sandbox: Sandbox, telemetry: Telemetry) -> None:
    port = int(sandbox.ads_url.split(":")[2].partition("/")[0])
    async with Session.sandbox(sandbox, request_id_header="date") as session:
        telemetry.instrument(session)
        with telemetry.tracers.get_tracer("app").start_as_current_span("the caller"):
            await session.accounts.get(sandbox.account_id)
    span, parent = telemetry.spans

    assert (span.name, span.kind) == (NAME, SpanKind.CLIENT)
    assert span.parent == parent.context
    assert span.status.status_code is StatusCode.UNSET
    attributes = dict(span.attributes or {})
    assert str(attributes.pop("svc_async.request_id")).endswith("GMT")
    assert int(str(attributes.pop("http.response.body.size"))) > 100
    assert attributes == {
        http_attributes.HTTP_REQUEST_METHOD: "GET",
        http_attributes.HTTP_RESPONSE_STATUS_CODE: 200,
        server_attributes.SERVER_ADDRESS: "127.0.0.1",
        server_attributes.SERVER_PORT: port,
        "http.request.body.size": 0,
        "url.full": f"http://127.0.0.1:{port}/ads/12/accounts/REDACTED",
        **COMMON,
    }


async def test_an_address_of_ipv6_is_in_brackets_in_the_url(session: Session, telemetry: Telemetry) -> None:
    events: list[CallEvent] = []
    session.subscribe(events.append)
    await session.accounts.list().first()
    observer = SessionTelemetry(create_tracer(telemetry.tracers), create_meter(telemetry.meters))
    observer.observe(attrs.evolve(events[0], host="::1", port=443, is_secure=True))  # not every machine has IPv6
    (span,) = telemetry.spans
    assert (span.attributes or {})["url.full"] == "https://[::1]/ads/12/accounts"
    assert (span.attributes or {})[server_attributes.SERVER_ADDRESS] == "::1"


async def test_each_attempt_is_a_span_with_its_times(
    session: Session, sandbox: Sandbox, clock: VirtualClock, telemetry: Telemetry
) -> None:
    telemetry.instrument(session)
    sandbox.faults.on(*READ).once().do(Fault.http(503, retry_after=7))
    sandbox.faults.on(*READ).once().do(Fault.latency(3))
    await session.accounts.get(sandbox.account_id)
    first, second = telemetry.spans

    assert first.status.status_code is StatusCode.ERROR
    assert (first.attributes or {})[error_attributes.ERROR_TYPE] == "503"
    assert (second.attributes or {})[http_attributes.HTTP_REQUEST_RESEND_COUNT] == 1
    assert (second.attributes or {})["svc_async.backoff"] == 7
    assert first.end_time is not None
    assert second.start_time is not None
    assert second.end_time is not None
    assert (second.start_time - first.end_time) / 1e9 == pytest.approx(7, abs=0.5)
    assert (second.end_time - second.start_time) / 1e9 == pytest.approx(3, abs=0.5)
    assert second.end_time / 1e9 == pytest.approx(clock.now().timestamp(), abs=0.5)


async def test_a_span_begins_after_the_wait_at_the_governor(
    session: Session, sandbox: Sandbox, telemetry: Telemetry
) -> None:
    telemetry.instrument(session)
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=30))
    await session.accounts.get(sandbox.account_id)
    _, second = telemetry.spans
    metrics = telemetry.read_metrics()

    assert float(str((second.attributes or {})["svc_async.governor.wait"])) > 20
    assert second.end_time is not None
    assert second.start_time is not None
    assert (second.end_time - second.start_time) / 1e9 < 5
    ((limit, _),) = metrics["svc_async.governor.exceeded"]
    ((wait, seconds),) = metrics["svc_async.governor.wait.duration"]
    assert wait == {**limit, "svc_async.priority": "interactive"}
    assert seconds > 20
    durations = metrics[http_metrics.HTTP_CLIENT_REQUEST_DURATION]
    assert sorted(int(str(attributes["http.response.status_code"])) for attributes, _ in durations) == [200, 429]


async def test_no_attempt_waits_longer_than_it_takes_so_that_each_is_counted(
    session: Session, sandbox: Sandbox, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[CallEvent] = []
    session.subscribe(lambda event: events.append(event) if isinstance(event, CallEvent) else None)
    telemetry.instrument(session)
    for _ in range(10):
        sandbox.faults.on(*READ).once().do(Fault.rate_limited(10))
        await session.accounts.get(sandbox.account_id)

    assert len(events) == 20
    assert [event for event in events if event.waited > event.seconds] == []
    assert caplog.text.count("non-negative") == 0  # OpenTelemetry leaves such a measurement out


@pytest.mark.parametrize(
    ("fault", "error_type"),
    [(Fault.drop_connection(), "TransportError"), (Fault.empty(), "UnexpectedAnswer"), (Fault.http(404), "404")],
)
async def test_a_failure_has_its_type(
    session: Session, sandbox: Sandbox, telemetry: Telemetry, fault: Fault, error_type: str
) -> None:
    telemetry.instrument(session)
    sandbox.faults.on("POST", "*").do(fault)
    with pytest.raises(SvcError):
        await session.accounts.create()
    (span,) = telemetry.spans
    assert (span.attributes or {})["error.type"] == error_type
    assert span.status.status_code is StatusCode.ERROR


async def test_a_call_that_was_not_sent_is_no_span(session: Session, telemetry: Telemetry) -> None:
    telemetry.instrument(session)
    for _ in range(5):
        await session.accounts.list().first()
    with pytest.raises(WouldWaitTooLong):
        await session.accounts.list().first()
    assert len(telemetry.spans) == 5


async def test_a_call_that_is_cancelled_is_a_span(session: Session, sandbox: Sandbox, telemetry: Telemetry) -> None:
    telemetry.instrument(session)
    sandbox.faults.on("*").do(Fault.hang())
    call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
    await sandbox.requests.wait(count=1)
    call.cancel()
    await asyncio.wait([call])
    assert [(span.attributes or {})["error.type"] for span in telemetry.spans] == ["CancelledError"]


async def test_nothing_names_an_account_a_person_or_a_value(
    session: Session, sandbox: Sandbox, telemetry: Telemetry
) -> None:
    telemetry.instrument(session)
    await session.accounts.get(sandbox.account_id)
    await session.account(sandbox.account_id).cards.list(card_uris=["card://ann"]).collect()
    sandbox.faults.on("*").once().do(Fault.rate_limited(reset=1))
    with pytest.raises(NotFound):
        await session.request("PATCH", "/2/users/by/username/ann", params={"q": "ann@example.test"})

    spans = [(span.name, dict(span.attributes or {})) for span in telemetry.spans]
    assert spans[-1][0] == "PATCH /2/users/..."
    assert spans[-1][1]["http.request.method"] == "PATCH"
    assert not [word for word in ("ann", sandbox.account_id, *sandbox.credentials.values()) if word in repr(telemetry)]


async def test_jobs_and_streams_are_metrics(telemetry: Telemetry) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, Session.sandbox(sandbox) as session:
        telemetry.instrument(session)
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        sandbox.faults.on("POST", "*/users").once().do(Fault.drop_connection(), stage="after")
        rows = [{"email": f"person{number}@example.test"} for number in range(10)]
        await users.upload([*rows, {"email": "nobody"}, rows[0]])
        await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id, tag="mine")
        async with session.activity.stream() as stream:
            await sandbox.trigger("post.create", payload={"text": "hello"})
            await anext(stream)
    metrics = telemetry.read_metrics()

    rows_by_outcome = {attributes["svc_async.outcome"]: count for attributes, count in metrics["svc_async.job.rows"]}
    assert rows_by_outcome == {"accepted": 10, "coalesced": 1, "failed": 1}
    path = {TEMPLATE: "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"}
    assert metrics["svc_async.job.rows.in_doubt"] == [(path, 0)]
    assert metrics["svc_async.job.requests"] == [(path, 2)]
    states = {attributes["svc_async.stream.state"] for attributes, _ in metrics["svc_async.stream.state_changes"]}
    assert states == {"connecting", "open", "closed"}
    assert [attributes for attributes, _ in metrics["svc_async.stream.lag"]] == [{TEMPLATE: "/2/activity/stream"}]


async def test_instrumenting_ends_and_happens_once(session: Session, sandbox: Sandbox, telemetry: Telemetry) -> None:
    end = telemetry.instrument(session)
    with pytest.raises(WrongState):
        telemetry.instrument(session)
    end()
    await session.accounts.get(sandbox.account_id)
    assert telemetry.spans == ()
    telemetry.instrument(session)
    await session.but(timeout=5).accounts.get(sandbox.account_id)
    assert len(telemetry.spans) == 1


async def test_without_a_provider_nothing_happens(session: Session, sandbox: Sandbox) -> None:
    instrument(session)
    assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id


def test_without_the_extra_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "svc_async.telemetry")
    for name in ["opentelemetry", *(name for name in sys.modules if name.startswith("opentelemetry."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'needs the extra "otel": pip install "svc-async\[otel\]"$'):
        import_module("svc_async.telemetry")
