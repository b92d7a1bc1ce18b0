"""CRC checks: when they happen, their outcomes, and the effect on a webhook."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async.sandbox import SandboxConfig
from svc_async.sandbox.push.crc_checks import INTERVAL, INVALID_AFTER, RECHECK_AFTER
from tests.support.panics import Panic
from tests.support.v2_client import RecordingReceiver, V2Client

URL = "https://hooks.example.test/svc"
CONTRACT = Path(__file__).parents[1] / "contract" / "limits.toml"


@pytest.mark.rule("WH-20", "WH-28", "WH-28b", "WH-42")
def test_the_numbers_are_the_contract_s() -> None:
    limits = {row["id"]: row for row in tomllib.loads(CONTRACT.read_text())["limit"]}
    assert timedelta(minutes=limits["crc.interval"]["value"]) == INTERVAL
    assert timedelta(hours=limits["crc.recheck_after"]["value"]) == RECHECK_AFTER
    assert timedelta(hours=limits["crc.invalid_after"]["value"]) == INVALID_AFTER
    assert timedelta(hours=limits["crc.grace"]["value"]) == INVALID_AFTER - RECHECK_AFTER
    assert limits["webhook.ack"]["value"] == SandboxConfig().ack_timeout


def fail_with(error: BaseException) -> Any:
    def crc(_token: str) -> Any:
        raise error

    return crc


def answer_with(status: int, token: Any = None, body: bytes | None = None) -> Any:
    """Make an answer to the check, with another token, or another body altogether."""

    def make(hook: RecordingReceiver) -> Any:
        def crc(value: str) -> Any:
            right = json.loads(hook.answer_check(value)[2])["response_token"]
            shown = right if token is None else token(hook.secret, value)
            return status, {}, json.dumps({"response_token": shown}).encode() if body is None else body

        return crc

    return make


def encode_hex(secret: str, value: str) -> str:
    return "sha256=" + hmac.digest(secret.encode(), value.encode(), hashlib.sha256).hex()


def encode_unpadded(secret: str, value: str) -> str:
    digest = hmac.digest(secret.encode(), value.encode(), hashlib.sha256)
    return "sha256=" + base64.b64encode(digest).decode().rstrip("=")


def encode_bare(secret: str, value: str) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), value.encode(), hashlib.sha256)).decode()


def sign_with_another_secret(_secret: str, value: str) -> str:
    return "sha256=" + encode_bare("another", value)


AT_ONCE = [
    ("hex instead of base64", answer_with(200, encode_hex), "wrong token", "WH-21"),
    ("base64 without padding", answer_with(200, encode_unpadded), "wrong token", "WH-21"),
    ("without sha256=", answer_with(200, encode_bare), "wrong token", "WH-21"),
    ("another secret", answer_with(200, sign_with_another_secret), "wrong token", "WH-21"),
    ("201 and a wrong token", answer_with(201, sign_with_another_secret), "wrong token", "WH-21"),
    ("204 and nothing", answer_with(204, body=b""), "wrong token", "WH-21"),
    ("no JSON", answer_with(200, body=b"ok"), "wrong token", "WH-21"),
    ("JSON, but no object", answer_with(200, body=b"[1]"), "wrong token", "WH-21"),
    ("no response_token", answer_with(200, body=b"{}"), "wrong token", "WH-21"),
    ("deep nonsense", answer_with(200, body=b"[" * 9_000), "wrong token", "WH-21"),
    ("a redirect, however right", answer_with(302), "3XX", "WH-22"),
    ("304", answer_with(304), "3XX", "WH-22"),
    ("TLS", lambda _: fail_with(ssl.SSLError("certificate has expired")), "TLS error", "WH-23"),
]
IN_PASSING = [
    ("400, however right", answer_with(400), "4XX", "WH-24"),
    ("404", answer_with(404, body=b""), "4XX", "WH-24"),
    ("429", answer_with(429, body=b""), "4XX", "WH-24"),
    ("500", answer_with(500, body=b""), "5XX", "WH-25"),
    ("503", answer_with(503, body=b""), "5XX", "WH-25"),
    ("a receiver that breaks", lambda _: fail_with(ZeroDivisionError()), "5XX", "WH-25"),
    ("a receiver that panics", lambda _: fail_with(Panic()), "5XX", "WH-25"),
    ("closed", lambda _: fail_with(ConnectionResetError("closed")), "closed", "WH-27"),
]


@pytest.mark.parametrize(
    ("wrong", "verdict", "rule"), [case[1:] for case in AT_ONCE], ids=[case[0] for case in AT_ONCE]
)
@pytest.mark.rule("WH-21", "WH-22", "WH-23", "WH-37", "ERR-10")
async def test_a_wrong_answer_makes_a_webhook_invalid_at_once(
    v2: V2Client, hook: RecordingReceiver, wrong: Any, verdict: str, rule: str
) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = wrong(hook)
    got = await v2("PUT", f"/2/webhooks/{webhook_id}")
    assert got.data == {"valid": False}
    check = v2.sandbox.webhooks[webhook_id].checks[-1]
    assert (check.occasion, check.verdict, check.rule) == ("put", verdict, rule)
    assert not await v2.is_valid(webhook_id)


@pytest.mark.parametrize(
    ("wrong", "verdict", "rule"), [case[1:] for case in IN_PASSING], ids=[case[0] for case in IN_PASSING]
)
@pytest.mark.rule("WH-24", "WH-25", "WH-27", "WH-29")
async def test_what_may_pass_leaves_a_webhook_valid(
    v2: V2Client, hook: RecordingReceiver, wrong: Any, verdict: str, rule: str
) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = wrong(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
    check = v2.sandbox.webhooks[webhook_id].checks[-1]
    assert (check.verdict, check.rule) == (verdict, rule)
    await v2.clock.advance(hours=28)
    assert await v2.is_valid(webhook_id)


@pytest.mark.rule("WH-04")
async def test_a_url_that_fails_its_first_check_is_not_registered(
    v2: V2Client, hook: RecordingReceiver, subtests: pytest.Subtests
) -> None:
    for name, wrong, *_ in AT_ONCE + IN_PASSING:
        with subtests.test(name):
            hook.crc = wrong(hook)
            v2.sandbox.deliver_to(URL, hook)
            got = await v2("POST", "/2/webhooks", json={"url": URL})
            assert (got.status, got.failure[0]) == (400, "CrcValidationFailed")
            assert (await v2("GET", "/2/webhooks")).data == []


@pytest.mark.rule("WH-26")
async def test_an_answer_that_takes_too_long_is_a_failure_that_may_pass(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    for seconds, verdict, rule in ((9.5, "ok", "ASM-32"), (10.5, "timeout", "WH-26")):
        hook.delay_checks(v2.clock, seconds)
        task = asyncio.create_task(v2("PUT", f"/2/webhooks/{webhook_id}"))
        await v2.sandbox.requests.wait(count=len(v2.sandbox.requests) + 1)
        await v2.clock.advance(seconds=11)
        assert (await task).data == {"valid": True}
        check = v2.sandbox.webhooks[webhook_id].checks[-1]
        assert (check.verdict, check.rule, check.latency) == (verdict, rule, min(seconds, 10))


@pytest.mark.rule("WH-21", "WH-35")
async def test_another_2xx_with_the_right_token_validates(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = answer_with(201)(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
    assert v2.sandbox.webhooks[webhook_id].checks[-1].verdict == "ok"


@pytest.mark.long("a month of checks")
@pytest.mark.rule("WH-20", "WH-37", "LIM-02")
async def test_thirty_days_of_scheduled_checks(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    clock = v2.clock
    await clock.advance(hours=23, minutes=59)
    assert len(hook.queries) == 1
    await clock.advance(minutes=1)
    assert len(hook.queries) == 2
    await clock.advance(days=29)
    assert len(hook.queries) == 31
    assert len(set(hook.queries)) == 31
    checks = v2.sandbox.webhooks[webhook_id].checks
    assert [check.occasion for check in checks] == ["creation"] + ["every_30_minutes"] * 30
    assert {(check.time - checks[0].time).seconds for check in checks} == {0}
    assert await v2.is_valid(webhook_id)


@pytest.mark.rule("WH-20", "WH-28", "WH-28b", "WH-29", "LIM-03", "WH-24")
async def test_forty_hours_of_a_failing_hook(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (503, {}, b"")
    clock = v2.clock
    states: list[tuple[int, bool]] = []
    for _ in range(80):
        await clock.advance(minutes=30)
        states.append((len(hook.queries) - 1, await v2.is_valid(webhook_id)))
    assert states[46] == (0, True)  # 23:30
    assert states[47] == (1, True)  # 24:00
    assert states[48] == (2, True)  # 24:30: every 30 minutes from now on
    assert states[55] == (9, True)  # 28:00 is not more than 28 hours
    assert states[56] == (10, False)  # 28:30
    assert states[79] == (10, False)  # nothing more is asked of what is invalid


@pytest.mark.rule("WH-20", "WH-29")
async def test_a_passed_check_in_the_grace_period_restarts_the_day(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (503, {}, b"")
    await v2.clock.advance(hours=27, minutes=30)
    hook.crc = hook.answer_check
    await v2.clock.advance(minutes=30)
    asked = len(hook.queries)
    await v2.clock.advance(hours=23, minutes=30)
    assert (len(hook.queries), await v2.is_valid(webhook_id)) == (asked, True)
    await v2.clock.advance(minutes=30)
    assert len(hook.queries) == asked + 1


@pytest.mark.rule("WH-20")
async def test_a_restarted_sandbox_resumes_its_checks(v2: V2Client, hook: RecordingReceiver) -> None:
    await v2.register(hook)
    sandbox, clock = v2.sandbox, v2.clock
    await clock.advance(hours=1, minutes=10)
    await sandbox.aclose()
    await clock.advance(days=1)
    await sandbox.start()
    assert len(hook.queries) == 1
    await clock.advance(minutes=19)
    assert len(hook.queries) == 1
    await clock.advance(minutes=1)
    assert len(hook.queries) == 2


@pytest.mark.parametrize("answer", [("wrong", {}, b""), (200, {}, None), (200, {}, "text"), None])
async def test_a_receiver_that_returns_a_malformed_answer_is_a_server_error(
    v2: V2Client, hook: RecordingReceiver, answer: Any
) -> None:
    hook.crc = lambda _: answer
    v2.sandbox.deliver_to(URL, hook)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (got.status, "HTTP 500" in got.json["detail"]) == (400, True)


@pytest.mark.rule("WH-12", "WH-12b")
async def test_only_put_re_enables_an_invalid_webhook(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (302, {"Location": "https://elsewhere.example/"}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    hook.crc = hook.answer_check
    await v2.clock.advance(days=2)
    assert not await v2.is_valid(webhook_id)
    got = await v2("PUT", f"/2/webhooks/{webhook_id}")
    assert (got.data, got.rule) == ({"valid": True}, "WH-12")
    assert await v2.is_valid(webhook_id)
