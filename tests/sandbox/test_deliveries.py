"""Deliveries: signed, acknowledged or repeated, replayed, and broken on purpose."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from functools import partial
from typing import Any

import pytest

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.push.deliveries import DeliveryFaults
from tests.support.raw_client import open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

REPLAY = "/2/webhooks/replay"
OLD_REPLAY = "/2/account_activity/replay/webhooks/{}/subscriptions/all"


@pytest.mark.rule("WH-40", "WH-40b", "WH-40c", "WH-41", "WH-60")
async def test_an_event_arrives_as_a_signed_post_with_json(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    await v2.subscribe("post.create", webhook_id=webhook_id)
    await v2.sandbox.trigger("post.create")
    (headers,) = hook.headers
    assert headers["content-type"] == "application/json"
    assert hook.verified == [True]
    (delivery,) = v2.sandbox.deliveries
    (attempt,) = delivery.attempts
    assert (delivery.state, delivery.event_uuid) == ("delivered", hook.events[0]["data"]["event_uuid"])
    assert (attempt.method, attempt.status, attempt.verdict, attempt.rule) == ("POST", 200, "ok", "WH-41")
    assert (attempt.body, attempt.headers, attempt.latency) == (hook.bodies[0], headers, 0.0)
    assert v2.sandbox.deliveries[-1:] == [delivery]


async def acknowledge_slowly(sandbox: Sandbox, seconds: float) -> Any:
    await sandbox.clock.sleep(seconds)
    return 200, {}, b""


def break_with(error: Exception) -> Any:
    def ack() -> Any:
        raise error

    return ack


@pytest.mark.rule("WH-60")
async def test_any_json_may_be_pushed_such_as_that_of_the_account_activity_product(
    v2: V2Client, hook: RecordingReceiver
) -> None:
    await v2.register(hook)
    event = {"for_user_id": v2.sandbox.user_id, "follow_events": [{"type": "follow", "source": {"id": "42"}}]}
    (delivery,) = await v2.sandbox.deliver(event)
    assert (hook.events, hook.verified, delivery.event_uuid) == ([event], [True], None)


REFUSALS = [
    ((201, {}, b""), "2XX other than 200", "ASM-03"),
    ((204, {}, b""), "2XX other than 200", "ASM-03"),
    ((302, {"Location": "https://elsewhere.example/"}, b""), "3XX", "WH-41"),
    ((401, {}, b""), "4XX", "WH-41"),
    ((503, {}, b""), "5XX", "WH-41"),
    (break_with(ConnectionResetError("closed")), "closed", "WH-41"),
    (break_with(ssl.SSLError("expired")), "TLS error", "WH-41"),
    (break_with(KeyError("bug")), "5XX", "WH-41"),
]


@pytest.mark.parametrize(("ack", "verdict", "rule"), REFUSALS)
@pytest.mark.rule("WH-41")
async def test_only_200_acknowledges_and_the_rest_is_sent_again(
    v2: V2Client, hook: RecordingReceiver, ack: Any, verdict: str, rule: str
) -> None:
    await v2.register(hook)
    hook.ack = ack if callable(ack) else lambda: ack
    (delivery,) = await v2.sandbox.deliver({"hello": "there"})
    assert (delivery.state, delivery.attempts[0].verdict, delivery.attempts[0].rule) == ("retrying", verdict, rule)
    await v2.clock.advance(seconds=59)
    assert len(delivery.attempts) == 1
    await v2.clock.advance(seconds=1)
    assert len(delivery.attempts) == 2
    await v2.clock.advance(seconds=300)
    assert (delivery.state, len(hook.bodies), len(set(hook.bodies))) == ("exhausted", 3, 1)
    await v2.clock.advance(hours=1)
    assert len(hook.bodies) == 3
    assert hook.verified == [True] * 3


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, b"not_running", "not_running"),
        (401, b'{\n  "detail": "wrong\x1b[31m"\n}', '{ "detail": "wrong\ufffd[31m" }'),
        (500, b"\xff" * 5_000, "\ufffd" * 200),
        (302, b"", ""),
        (202, b"later", ""),
    ],
)
async def test_an_attempt_has_the_reason_of_a_refusal(
    v2: V2Client, hook: RecordingReceiver, status: int, body: bytes, reason: str
) -> None:
    await v2.register(hook)
    hook.ack = lambda: (status, {}, body)
    (delivery,) = await v2.sandbox.deliver({"data": {}})
    assert delivery.attempts[0].reason == reason
    shown = await v2("GET", "/_sandbox/deliveries")
    assert shown.json["deliveries"][0]["attempts"][0]["reason"] == reason


def sign_hex(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, hashlib.sha256).hex()


def sign_reencoded(secret: str, body: bytes) -> str:
    again = json.dumps(json.loads(body)).encode()
    return "sha256=" + base64.b64encode(hmac.digest(secret.encode(), again, hashlib.sha256)).decode()


@pytest.mark.parametrize("expected", [sign_hex, sign_reencoded])
@pytest.mark.rule("WH-40b", "WH-41")
async def test_a_receiver_that_verifies_wrongly_refuses_what_is_signed_well(
    v2: V2Client, hook: RecordingReceiver, expected: Any
) -> None:
    def ack() -> Any:
        signed = hook.headers[-1]["x-svc-webhooks-signature"]
        return (200 if signed == expected(hook.secret, hook.bodies[-1]) else 401), {}, b""

    await v2.register(hook)
    hook.ack = ack
    (delivery,) = await v2.sandbox.deliver({"hello": ["there"]})
    assert (delivery.state, delivery.attempts[0].verdict, hook.verified) == ("retrying", "4XX", [True])


@pytest.mark.rule("WH-42", "LIM-01")
async def test_ten_seconds_are_what_a_receiver_has(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    for seconds, state, verdict, latency in ((9.9, "delivered", "ok", 9.9), (10.1, "retrying", "timeout", 10)):
        hook.ack = partial(acknowledge_slowly, v2.sandbox, seconds)
        (delivery,) = await v2.sandbox.deliver({"hello": "there"})
        assert delivery.attempts == []
        await v2.clock.advance(seconds=11)
        assert (delivery.state, delivery.attempts[0].verdict) == (state, verdict)
        assert delivery.attempts[0].latency == pytest.approx(latency)
    assert delivery.attempts[0].rule == "WH-42"


@pytest.mark.usefixtures("little_patience")
@pytest.mark.rule("WH-42")
async def test_one_that_never_answers_has_timed_out_after_ten_seconds(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    hook.ack = asyncio.Event().wait
    (delivery,) = await v2.sandbox.deliver({"hello": "there"})
    await v2.clock.advance(seconds=10)
    assert [attempt.verdict for attempt in delivery.attempts] == ["timeout"]


async def test_advance_waits_for_a_receiver_that_works_in_a_thread(v2: V2Client, hook: RecordingReceiver) -> None:
    def store() -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps(list(range(50_000))).encode()[:1]

    await v2.register(hook)
    hook.ack = lambda: asyncio.to_thread(store)
    await v2.sandbox.deliver({"hello": "there"})
    await v2.clock.advance(minutes=1)
    assert v2.sandbox.deliveries[0].attempts[0].verdict == "ok"
    assert v2.sandbox.deliveries[0].attempts[0].latency == 0.0


async def test_deliveries_do_not_wait_for_one_another(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    hook.ack = partial(acknowledge_slowly, v2.sandbox, 5)
    for number in range(3):
        await v2.sandbox.deliver({"number": number})
    await v2.clock.advance(seconds=5)
    assert [delivery.state for delivery in v2.sandbox.deliveries] == ["delivered"] * 3


async def test_an_invalid_or_deleted_webhook_gets_nothing_more(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.ack = lambda: (500, {}, b"")
    (retrying,) = await v2.sandbox.deliver({"number": 1})
    hook.crc = lambda _: (302, {}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    (dropped,) = await v2.sandbox.deliver({"number": 2})
    await v2.clock.advance(hours=1)
    assert (retrying.state, len(retrying.attempts)) == ("dropped", 1)
    assert (dropped.state, dropped.attempted) == ("dropped", False)
    await v2("DELETE", f"/2/webhooks/{webhook_id}")
    assert await v2.sandbox.deliver({"number": 3}) == []


async def test_faults_of_one_delivery_are_of_no_other(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    faults = v2.sandbox.deliveries.faults
    faults.next(duplicate=2)
    faults.next(corrupt_signature=True)
    faults.next(sign_with="another secret")
    for number in range(4):
        await v2.sandbox.deliver({"number": number})
    assert [event["number"] for event in hook.events] == [0, 0, 0, 1, 2, 3]
    assert hook.verified == [True, True, True, False, False, True]
    assert [delivery.repeated for delivery in v2.sandbox.deliveries] == [False, True, True, False, False, False]
    faults.next(delay=30)
    faults.clear()
    await v2.sandbox.deliver({"number": 4})
    assert len(hook.bodies) == 7


def test_a_secret_that_signs_a_delivery_is_not_shown() -> None:
    faults = DeliveryFaults()
    faults.next(sign_with="hush")
    assert "hush" not in repr(faults)


async def test_a_delivery_may_come_late_or_after_the_next(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    faults = v2.sandbox.deliveries.faults
    faults.next(delay=30)
    faults.next(reorder=True)
    for number in range(4):
        await v2.sandbox.deliver({"number": number})
    assert [event["number"] for event in hook.events] == [2, 1, 3]
    await v2.clock.advance(seconds=30)
    assert [event["number"] for event in hook.events] == [2, 1, 3, 0]


async def test_a_delivery_is_overtaken_by_the_next_to_the_same_webhook(v2: V2Client, hook: RecordingReceiver) -> None:
    for name in ("a", "b"):
        await v2.register(hook, f"https://{name}.example.test/")
    v2.sandbox.deliveries.faults.next(reorder=True)  # of two that go out together, the first
    for number in range(2):
        await v2.sandbox.deliver({"number": number})
    assert [event["number"] for event in hook.events] == [0, 1, 1, 0]


@pytest.mark.usefixtures("little_patience")
async def test_what_was_overtaken_waits_for_the_answer_to_the_next(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    v2.sandbox.deliveries.faults.next(reorder=True, duplicate=1)
    await v2.sandbox.deliver({"number": 0})
    hook.ack = partial(acknowledge_slowly, v2.sandbox, 5)
    await v2.sandbox.deliver({"number": 1})
    assert [event["number"] for event in hook.events] == [1]
    await v2.clock.advance(seconds=5)
    assert [event["number"] for event in hook.events] == [1, 0, 0]


async def make_history(v2: V2Client, hook: RecordingReceiver) -> str:
    """Deliver an event at 12:00, at 12:30, at 13:00 and at 13:30, the second of them in vain; then it is 14:00."""
    webhook_id = str(await v2.register(hook))
    await v2.subscribe("post.create", webhook_id=webhook_id)
    for number in range(4):
        hook.ack = (lambda: (503, {}, b"")) if number == 1 else (lambda: (200, {}, b""))
        await v2.sandbox.trigger("post.create", payload={"text": f"number {number}"})
        await v2.clock.advance(minutes=30)
    hook.bodies.clear()
    hook.headers.clear()
    return webhook_id


def list_texts(hook: RecordingReceiver) -> list[str]:
    return [event["data"]["payload"]["text"] for event in hook.events if "data" in event]


@pytest.mark.rule("WH-50")
async def test_a_replay_sends_the_attempted_deliveries_of_its_window_and_then_its_status(
    v2: V2Client, hook: RecordingReceiver
) -> None:
    webhook_id = await make_history(v2, hook)
    original = {delivery.event_uuid for delivery in v2.sandbox.deliveries}
    body = {"webhook_id": webhook_id, "from_date": "202606101210", "to_date": "202606101300"}
    got = await v2("POST", REPLAY, json=body)
    assert (got.status, got.rule) == (200, "WH-50")
    assert got.data == {"job_id": got.data["job_id"], "created_at": "2026-06-10T14:00:00Z"}
    assert got.headers["x-rate-limit-limit"] == "100"
    await v2.clock.settle()
    assert list_texts(hook) == ["number 1", "number 2"]
    assert all(event["meta"] == {"replay": True} for event in hook.events[:2])
    assert {event["data"]["event_uuid"] for event in hook.events[:2]} <= original
    assert hook.events[2] == {
        "replay_job_status": {
            "webhook_id": webhook_id,
            "job_state": "Complete",
            "job_state_description": "Job completed successfully",
            "job_id": got.data["job_id"],
        }
    }
    assert hook.verified == [True] * 3
    # What was replayed is not replayed again, nor is it live.
    await v2.clock.advance(minutes=31)
    hook.bodies.clear()
    await v2("POST", REPLAY, json={**body, "to_date": "202606101415"})
    await v2.clock.settle()
    assert list_texts(hook) == ["number 1", "number 2", "number 3"]


@pytest.mark.parametrize(
    ("from_date", "to_date"),
    [
        ("202606091359", "202606101300"),
        ("202606101330", "202606101345"),
        ("202606101300", "202606101351"),
        ("202606101300", "202606101300"),
        ("202606101330", "202606101300"),
        ("2026-06-10T12:00", "202606101300"),
        ("202606101261", "202606101300"),
        ("202613101200", "202606101300"),
        ("20260610120", "202606101300"),
        ("٢٠٢٦٠٦١٠١٢٠٠", "202606101300"),
    ],
)
async def test_a_window_that_cannot_be_replayed_is_refused(
    v2: V2Client, hook: RecordingReceiver, from_date: str, to_date: str
) -> None:
    webhook_id = await make_history(v2, hook)
    got = await v2("POST", REPLAY, json={"webhook_id": webhook_id, "from_date": from_date, "to_date": to_date})
    assert (got.status, got.rule) == (400, "ASM-45")
    assert got.failure[0] == "QueryParamInvalid"


async def test_a_replay_needs_a_webhook_that_is_there_and_valid(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await make_history(v2, hook)
    body = {"webhook_id": "1", "from_date": "202606101200", "to_date": "202606101300"}
    got = await v2("POST", REPLAY, json=body)
    assert (got.status, got.failure[0]) == (404, "WebhookIdInvalid")
    hook.crc = lambda _: (302, {}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    got = await v2("POST", REPLAY, json={**body, "webhook_id": webhook_id})
    assert (got.status, got.failure[0]) == (400, "CrcValidationFailed")


async def test_what_was_never_attempted_is_not_replayed(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (302, {}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    await v2.sandbox.deliver({"number": 1})
    hook.crc = hook.answer_check
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    await v2.sandbox.deliver({"number": 2})
    await v2.clock.advance(hours=1)
    dates = {"from_date": "202606101200", "to_date": "202606101230"}
    await v2("POST", REPLAY, json={"webhook_id": webhook_id, **dates})
    await v2.clock.settle()
    assert [event.get("number") for event in hook.events] == [2, 2, None]


@pytest.mark.usefixtures("little_patience")
@pytest.mark.rule("WH-37")
async def test_one_job_at_a_time_and_none_of_them_sends_a_check(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await make_history(v2, hook)
    checks = len(hook.queries)
    hook.ack = lambda: (503, {}, b"")
    body = {"webhook_id": webhook_id, "from_date": "202606101200", "to_date": "202606101300"}
    assert (await v2("POST", REPLAY, json=body)).status == 200
    got = await v2("POST", REPLAY, json=body)
    assert (got.status, got.failure[0]) == (409, "ReplayConflictError")
    hook.ack = lambda: (200, {}, b"")
    await v2.clock.advance(minutes=1)
    assert (await v2("POST", REPLAY, json=body)).status == 200
    assert len(hook.queries) == checks


@pytest.mark.long("makes the history of a webhook")
async def test_a_job_whose_webhook_becomes_invalid_is_recorded_as_dropped(
    v2: V2Client, hook: RecordingReceiver
) -> None:
    webhook_id = await make_history(v2, hook)
    body = {"webhook_id": webhook_id, "from_date": "202606101200", "to_date": "202606101300"}
    hook.ack = lambda: (503, {}, b"")
    await v2("POST", REPLAY, json=body)
    hook.crc = lambda _: (302, {}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    await v2.clock.advance(minutes=1)
    replayed = v2.sandbox.deliveries[-4:]
    assert [delivery.state for delivery in replayed] == ["dropped"] * 4
    assert replayed[-1].event["replay_job_status"]["job_state"] == "Incomplete"


@pytest.mark.rule("WH-51")
@pytest.mark.parametrize(("start", "status"), [("13:59", 200), ("14:00", 410)])
async def test_the_old_replay_call_works_until_its_date(hook: RecordingReceiver, start: str, status: int) -> None:
    """The date is 2026-03-25 12:00 in New York, which is 16:00 in UTC: two hours after the start."""
    clock = VirtualClock(f"2026-03-25T{start}:00Z")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        v2 = V2Client(raw)
        webhook_id = await v2.register(hook)
        await sandbox.deliver({"hello": "there"})
        await clock.advance(hours=2)
        dates = {"from_date": "202603251300", "to_date": "202603251500"}
        got = await v2("POST", OLD_REPLAY.format(webhook_id), dates)
        assert (got.status, got.rule) == (status, "WH-51")
        if status == 410:
            assert "POST /2/webhooks/replay" in got.json["detail"]
        else:
            await clock.settle()
            assert hook.events[1] == {"hello": "there", "meta": {"replay": True}}


async def test_the_log_is_there_over_http_too(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    await v2.sandbox.deliver({"hello": "there"})
    got = await v2("GET", "/_sandbox/deliveries")
    (shown,) = got.json["deliveries"]
    assert (shown["webhook_id"], shown["state"], shown["event"]) == (webhook_id, "delivered", {"hello": "there"})
    assert [attempt["verdict"] for attempt in shown["attempts"]] == ["ok"]


@pytest.mark.parametrize("config", [SandboxConfig(events_kept=2)])
async def test_the_latest_deliveries_and_events_are_kept(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.subscribe("post.create", webhook_id=await v2.register(hook))
    for number in range(4):
        await v2.sandbox.trigger("post.create", payload={"id": str(number)})
    deliveries = v2.sandbox.deliveries
    assert [delivery.event["data"]["payload"]["id"] for delivery in deliveries] == ["2", "3"]
    assert (len(deliveries), deliveries.total, len(hook.events)) == (2, 4, 4)
    now = v2.clock.now()
    assert len(v2.sandbox.streams["activity"].list_recorded(now, now)) == 2
