"""Webhooks: the five calls, the check, and what becomes of a webhook; told by receivers of the standard library."""

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
import trustme
from aiohttp import web

from svc_async.sandbox import Fault, Sandbox, SandboxConfig, SystemClock, VirtualClock
from svc_async.sandbox.push.crc_checks import INTERVAL, INVALID_AFTER, RECHECK_AFTER
from svc_async.sandbox.push.delivery_targets import DeliveryTargets, TargetRequest, UnmappedUrl
from svc_async.sandbox.push.signing import signature

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


@pytest.mark.rule("WH-04", "WH-09", "WH-10", "WH-34", "WH-35", "WH-36")
async def test_a_url_is_registered_after_it_has_answered_the_check(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    assert [query.split("=")[0] for query in hook.queries] == ["crc_token"]
    got = await v2("GET", "/2/webhooks")
    assert (got.status, got.rule) == (200, "WH-10")
    assert got.data == [{"id": webhook_id, "url": URL, "valid": True, "created_at": "2026-06-10T12:00:00Z"}]
    assert got.json["meta"] == {"result_count": 1}
    assert got.headers["x-rate-limit-limit"] == "450"


@pytest.mark.rule("WH-35", "WH-40c")
def test_the_sandbox_and_the_reference_receiver_sign_as_the_published_vectors_do(hook: Any) -> None:
    vectors = {
        b'{"test_number":1,"test_string":"two"}': "sha256=YWHphPn/JFq43jkF0y4/w8R/SelmLjvpunhVFY8JhlI=",
        b"test=1&other_test=2": "sha256=25Cu3iwbbiqBTwQRzcKJZwisjf736V2Q8UaTlkfLSoc=",
    }
    hook.secret = "test"
    for message, expected in vectors.items():
        assert signature("test", message) == expected
        assert json.loads(hook.right(message.decode())[2]) == {"response_token": expected}


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://hooks.example.test/svc", "WH-01"),
        ("ftp://hooks.example.test/svc", "WH-01"),
        ("hooks.example.test/svc", "WH-01"),
        ("https://hooks.example.test:443/svc", "WH-02"),
        ("https://hooks.example.test:8443/svc", "WH-02"),
        ("https://hooks.example.test:/svc", "WH-02"),
        ("https://user@hooks.example.test/svc", "ASM-42"),
        ("https://user:word@hooks.example.test/svc", "ASM-42"),
        ("https://hooks.example.test/svc#part", "ASM-42"),
        ("https://hooks.example.test/svc#", "ASM-42"),
        ("https:///svc", "ASM-42"),
        ("https://[::1", "ASM-42"),
        ("https://[::1]/svc", "ASM-42"),
        ("https://10.0.0.1/svc", "ASM-42"),
        ("https://127.1/svc", "ASM-42"),
        ("https://2130706433/svc", "ASM-42"),
        ("https://0x7f000001/svc", "ASM-42"),
        ("https://hooks.example.test/sv c", "ASM-42"),
        ("https://hooks.example.test/sv\tc", "ASM-42"),
        ("https://hooks.example.test/café", "ASM-42"),
        (f"https://hooks.example.test/{'a' * 174}", "ASM-42"),
    ],
)
@pytest.mark.rule("WH-01", "WH-02", "LIM-01b")
async def test_a_url_that_breaks_a_rule_is_refused_by_name(v2: Any, url: str, rule: str) -> None:
    got = await v2("POST", "/2/webhooks", json={"url": url})
    assert (got.status, got.rule) == (400, rule)
    assert got.json["detail"].startswith("UrlValidationFailed: the URL ")
    assert url not in got.json["detail"]


@pytest.mark.parametrize("url", [f"https://hooks.example.test/{'a' * 173}", "https://hooks.example.test?who=me"])
async def test_a_url_may_be_as_long_as_200_characters_and_have_a_query(v2: Any, hook: Any, url: str) -> None:
    await v2.register(hook, url)
    assert hook.queries[0].startswith("who=me&crc_token=" if "?" in url else "crc_token=")


@pytest.mark.rule("WH-03")
async def test_what_is_mapped_nowhere_does_not_leave_the_machine(v2: Any) -> None:
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (got.status, got.rule) == (400, "ASM-42")
    assert got.json["title"] == "Bad Request"
    assert got.json["detail"].startswith("CrcValidationFailed: ")
    assert "no delivery mapping" in got.json["detail"]
    assert (await v2("GET", "/2/webhooks")).data == []


async def test_a_url_is_registered_once_and_only_so_many(v2: Any, hook: Any) -> None:
    first = await v2.register(hook)
    again = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (again.status, again.json["detail"].split(":")[0]) == (400, "DuplicateUrlFailed")
    for number in range(4):
        await v2.register(hook, f"{URL}/{number}")
    v2.sandbox.deliver_to(f"{URL}/more", hook)
    more = await v2("POST", "/2/webhooks", json={"url": f"{URL}/more"})
    assert (more.status, more.json["detail"].split(":")[0]) == (400, "WebhookLimitExceeded")
    await v2("DELETE", f"/2/webhooks/{first}")
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200


async def test_of_two_that_register_at_once_one_is_late(v2: Any, hook: Any) -> None:
    hook.crc = lambda token: slow(v2.sandbox, 1, hook.right(token))
    v2.sandbox.deliver_to(URL, hook)
    both = [asyncio.create_task(v2("POST", "/2/webhooks", json={"url": URL})) for _ in range(2)]
    await v2.sandbox.requests.wait(count=2)
    await v2.sandbox.clock.advance(seconds=1)
    assert sorted([(await task).status for task in both]) == [200, 400]


@pytest.mark.parametrize("body", [{}, {"url": 1}, {"url": None}, {"url": ""}, {"url": URL, "more": 1}, [URL]])
async def test_a_body_that_is_none_of_the_call_is_refused(v2: Any, body: Any) -> None:
    got = await v2("POST", "/2/webhooks", json=body)
    assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.rule("WH-11")
async def test_a_deleted_webhook_is_gone(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    got = await v2("DELETE", f"/2/webhooks/{webhook_id}")
    assert (got.data, got.rule) == ({"deleted": True}, "WH-11")
    for method in ("DELETE", "PUT"):
        again = await v2(method, f"/2/webhooks/{webhook_id}")
        assert (again.status, again.json["detail"].split(":")[0]) == (404, "WebhookIdInvalid")
    await v2.sandbox.clock.advance(days=3)
    assert len(hook.queries) == 1


async def test_only_an_app_with_its_bearer_token_may_call(v2: Any) -> None:
    assert (await v2("GET", "/2/webhooks", authorization="Bearer nothing")).status == 401
    assert (await v2.raw("GET", "/2/webhooks", base=v2.sandbox.base_url)).status in {401, 403}


async def test_each_app_has_webhooks_of_its_own(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    other = f"Bearer {v2.sandbox.bearer_token(v2.sandbox.public_app['consumer_key'])}"
    assert (await v2("GET", "/2/webhooks", authorization=other)).data == []
    assert (await v2("DELETE", f"/2/webhooks/{webhook_id}", authorization=other)).status == 404


async def slow(sandbox: Sandbox, seconds: float, answer: Any) -> Any:
    await sandbox.clock.sleep(seconds)
    return answer


def fails_with(error: Exception) -> Any:
    def crc(_token: str) -> Any:
        raise error

    return crc


def answers(status: int, token: Any = None, body: bytes | None = None) -> Any:
    """Make an answer to the check, with another token, or another body altogether."""

    def made(hook: Any) -> Any:
        def crc(value: str) -> Any:
            right = json.loads(hook.right(value)[2])["response_token"]
            shown = right if token is None else token(hook.secret, value)
            return status, {}, json.dumps({"response_token": shown}).encode() if body is None else body

        return crc

    return made


def hexadecimal(secret: str, value: str) -> str:
    return "sha256=" + hmac.digest(secret.encode(), value.encode(), hashlib.sha256).hex()


def unpadded(secret: str, value: str) -> str:
    digest = hmac.digest(secret.encode(), value.encode(), hashlib.sha256)
    return "sha256=" + base64.b64encode(digest).decode().rstrip("=")


def bare(secret: str, value: str) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), value.encode(), hashlib.sha256)).decode()


def of_another_secret(_secret: str, value: str) -> str:
    return "sha256=" + bare("another", value)


AT_ONCE = [
    ("hex instead of base64", answers(200, hexadecimal), "wrong token", "WH-21"),
    ("base64 without padding", answers(200, unpadded), "wrong token", "WH-21"),
    ("without sha256=", answers(200, bare), "wrong token", "WH-21"),
    ("another secret", answers(200, of_another_secret), "wrong token", "WH-21"),
    ("201 and a wrong token", answers(201, of_another_secret), "wrong token", "WH-21"),
    ("204 and nothing", answers(204, body=b""), "wrong token", "WH-21"),
    ("no JSON", answers(200, body=b"ok"), "wrong token", "WH-21"),
    ("JSON, but no object", answers(200, body=b"[1]"), "wrong token", "WH-21"),
    ("no response_token", answers(200, body=b"{}"), "wrong token", "WH-21"),
    ("deep nonsense", answers(200, body=b"[" * 9_000), "wrong token", "WH-21"),
    ("a redirect, however right", answers(302), "3XX", "WH-22"),
    ("304", answers(304), "3XX", "WH-22"),
    ("TLS", lambda _: fails_with(ssl.SSLError("certificate has expired")), "TLS error", "WH-23"),
]
IN_PASSING = [
    ("400, however right", answers(400), "4XX", "WH-24"),
    ("404", answers(404, body=b""), "4XX", "WH-24"),
    ("429", answers(429, body=b""), "4XX", "WH-24"),
    ("500", answers(500, body=b""), "5XX", "WH-25"),
    ("503", answers(503, body=b""), "5XX", "WH-25"),
    ("a receiver that breaks", lambda _: fails_with(ZeroDivisionError()), "5XX", "WH-25"),
    ("closed", lambda _: fails_with(ConnectionResetError("closed")), "closed", "WH-27"),
]


@pytest.mark.parametrize(
    ("wrong", "verdict", "rule"), [case[1:] for case in AT_ONCE], ids=[case[0] for case in AT_ONCE]
)
@pytest.mark.rule("WH-21", "WH-22", "WH-23", "WH-37", "ERR-10")
async def test_a_wrong_answer_makes_a_webhook_invalid_at_once(
    v2: Any, hook: Any, wrong: Any, verdict: str, rule: str
) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = wrong(hook)
    got = await v2("PUT", f"/2/webhooks/{webhook_id}")
    assert got.data == {"valid": False}
    check = v2.sandbox.webhooks[webhook_id].checks[-1]
    assert (check.occasion, check.verdict, check.rule) == ("put", verdict, rule)
    assert not await v2.valid(webhook_id)


@pytest.mark.parametrize(
    ("wrong", "verdict", "rule"), [case[1:] for case in IN_PASSING], ids=[case[0] for case in IN_PASSING]
)
@pytest.mark.rule("WH-24", "WH-25", "WH-27", "WH-29")
async def test_what_may_pass_leaves_a_webhook_valid(v2: Any, hook: Any, wrong: Any, verdict: str, rule: str) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = wrong(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
    check = v2.sandbox.webhooks[webhook_id].checks[-1]
    assert (check.verdict, check.rule) == (verdict, rule)
    await v2.sandbox.clock.advance(hours=28)
    assert await v2.valid(webhook_id)


@pytest.mark.parametrize(
    "wrong", [case[1] for case in AT_ONCE + IN_PASSING], ids=[case[0] for case in AT_ONCE + IN_PASSING]
)
@pytest.mark.rule("WH-04")
async def test_a_url_that_fails_its_first_check_is_not_registered(v2: Any, hook: Any, wrong: Any) -> None:
    hook.crc = wrong(hook)
    v2.sandbox.deliver_to(URL, hook)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (got.status, got.json["detail"].split(":")[0]) == (400, "CrcValidationFailed")
    assert (await v2("GET", "/2/webhooks")).data == []


@pytest.mark.rule("WH-26")
async def test_an_answer_that_takes_too_long_is_a_failure_that_may_pass(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    for seconds, verdict, rule in ((9.5, "ok", "ASM-32"), (10.5, "timeout", "WH-26")):
        hook.crc = lambda token, seconds=seconds: slow(v2.sandbox, seconds, hook.right(token))
        task = asyncio.create_task(v2("PUT", f"/2/webhooks/{webhook_id}"))
        await v2.sandbox.requests.wait(count=len(v2.sandbox.requests) + 1)
        await v2.sandbox.clock.advance(seconds=11)
        assert (await task).data == {"valid": True}
        check = v2.sandbox.webhooks[webhook_id].checks[-1]
        assert (check.verdict, check.rule, check.latency) == (verdict, rule, min(seconds, 10))


@pytest.mark.rule("WH-21", "WH-35")
async def test_another_2xx_with_the_right_token_validates(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = answers(201)(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
    assert v2.sandbox.webhooks[webhook_id].checks[-1].verdict == "ok"


@pytest.mark.parametrize("config", [SandboxConfig(crc_needs_200=True)])
async def test_unless_the_setting_wants_200(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = answers(201)(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
    assert v2.sandbox.webhooks[webhook_id].checks[-1].verdict == "2XX other than 200"


@pytest.mark.rule("WH-20", "WH-37", "LIM-02")
async def test_thirty_days_of_upkeep(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    clock = v2.sandbox.clock
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
    assert await v2.valid(webhook_id)


@pytest.mark.rule("WH-20", "WH-28", "WH-28b", "WH-29", "LIM-03", "WH-24")
async def test_forty_hours_of_a_failing_hook(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (503, {}, b"")
    clock = v2.sandbox.clock
    states: list[tuple[int, bool]] = []
    for _ in range(80):
        await clock.advance(minutes=30)
        states.append((len(hook.queries) - 1, await v2.valid(webhook_id)))
    assert states[46] == (0, True)  # 23:30
    assert states[47] == (1, True)  # 24:00
    assert states[48] == (2, True)  # 24:30: every 30 minutes from now on
    assert states[55] == (9, True)  # 28:00 is not more than 28 hours
    assert states[56] == (10, False)  # 28:30
    assert states[79] == (10, False)  # nothing more is asked of what is invalid


@pytest.mark.rule("WH-20", "WH-29")
async def test_a_good_check_in_the_time_of_grace_starts_the_day_anew(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (503, {}, b"")
    await v2.sandbox.clock.advance(hours=27, minutes=30)
    hook.crc = hook.right
    await v2.sandbox.clock.advance(minutes=30)
    asked = len(hook.queries)
    await v2.sandbox.clock.advance(hours=23, minutes=30)
    assert (len(hook.queries), await v2.valid(webhook_id)) == (asked, True)
    await v2.sandbox.clock.advance(minutes=30)
    assert len(hook.queries) == asked + 1


@pytest.mark.rule("WH-20")
async def test_a_sandbox_that_was_closed_goes_on_with_its_checks(v2: Any, hook: Any) -> None:
    await v2.register(hook)
    sandbox = v2.sandbox
    await sandbox.clock.advance(hours=1, minutes=10)
    await sandbox.aclose()
    await sandbox.clock.advance(days=1)
    await sandbox.start()
    assert len(hook.queries) == 1
    await sandbox.clock.advance(minutes=19)
    assert len(hook.queries) == 1
    await sandbox.clock.advance(minutes=1)
    assert len(hook.queries) == 2


@pytest.mark.parametrize("answer", [("wrong", {}, b""), (200, {}, None), (200, {}, "text"), None])
async def test_a_receiver_that_answers_with_nonsense_is_a_server_that_fails(v2: Any, hook: Any, answer: Any) -> None:
    hook.crc = lambda _: answer
    v2.sandbox.deliver_to(URL, hook)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (got.status, "5XX" in got.json["detail"]) == (400, True)


@pytest.mark.rule("WH-12", "WH-12b")
async def test_only_put_re_enables_an_invalid_webhook(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (302, {"Location": "https://elsewhere.example/"}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    hook.crc = hook.right
    await v2.sandbox.clock.advance(days=2)
    assert not await v2.valid(webhook_id)
    got = await v2("PUT", f"/2/webhooks/{webhook_id}")
    assert (got.data, got.rule) == ({"valid": True}, "WH-12")
    assert await v2.valid(webhook_id)


@pytest.mark.parametrize("config", [SandboxConfig(invalid_webhooks_revive=True)])
async def test_unless_the_setting_lets_checks_do_so_too(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    hook.crc = lambda _: (302, {}, b"")
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    hook.crc = hook.right
    await v2.sandbox.clock.advance(hours=24)
    assert await v2.valid(webhook_id)


@pytest.mark.parametrize("config", [SandboxConfig(webhook_put_answer="attempted")])
async def test_put_may_say_only_that_it_tried(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"attempted": True}


@pytest.mark.parametrize("config", [SandboxConfig(crc_nonce=True, crc_signed=True, crc_fresh_token=False)])
async def test_the_check_in_its_other_forms(v2: Any, hook: Any) -> None:
    webhook_id = await v2.register(hook)
    await v2("PUT", f"/2/webhooks/{webhook_id}")
    first, second = v2.sandbox.webhooks[webhook_id].checks
    assert first.query == second.query
    assert "&nonce=" in first.query
    assert set(first.headers) == {"x-svc-webhooks-signature"}


async def served(handler: Any, context: ssl.SSLContext | None = None) -> tuple[web.ServerRunner, str]:
    """Serve on a free port of this machine."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


async def test_a_receiver_behind_a_socket_is_checked_too(v2: Any, hook: Any) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        status, headers, body = await hook.handle(
            request.method, request.query_string, dict(request.headers), await request.read()
        )
        return web.Response(status=status, headers=headers, body=body)

    runner, address = await served(handler)
    v2.sandbox.deliver_to(URL, address)
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200
    await v2.sandbox.clock.advance(days=3)
    assert len(hook.queries) == 4
    hook.crc = lambda _: (302, {"Location": address}, b"")
    await v2.sandbox.clock.advance(days=1)
    assert not (await v2("GET", "/2/webhooks")).data[0]["valid"]
    await runner.cleanup()


@pytest.mark.rule("WH-27")
async def test_a_receiver_that_hangs_up_or_is_not_there_is_closed(v2: Any) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    runner, address = await served(handler)
    v2.sandbox.deliver_to(URL, address)
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert "CrcValidationFailed: the challenge was not answered as it should be: closed" in got.json["detail"]
    await runner.cleanup()
    again = await v2("POST", "/2/webhooks", json={"url": URL})
    assert ": closed (" in again.json["detail"]


@pytest.mark.rule("WH-26")
async def test_a_receiver_that_is_silent_behind_a_socket_times_out_on_the_sandbox_s_clock(v2: Any) -> None:
    silent = asyncio.Event()

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    runner, address = await served(handler)
    v2.sandbox.deliver_to(URL, address)
    task = asyncio.create_task(v2("POST", "/2/webhooks", json={"url": URL}))
    await v2.sandbox.requests.wait()
    await v2.sandbox.clock.advance(seconds=10)
    assert ": timeout (no answer within 10 s)" in (await task).json["detail"]
    silent.set()
    await runner.cleanup()


@pytest.mark.rule("WH-23")
async def test_what_leaves_the_machine_when_it_may_is_held_to_a_good_certificate() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.path_qs)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    runner, address = await served(handler, context)
    targets = DeliveryTargets(allow_egress=True)
    with pytest.raises(ssl.SSLError):
        await targets.send(TargetRequest(method="GET", url=address.replace("http:", "https:"), query="crc_token=x"))
    await targets.close()
    await runner.cleanup()
    runner, address = await served(handler)
    answer = await targets.send(TargetRequest(method="GET", url=f"{address}?who=me", query="crc_token=x"))
    assert answer.body == b"/hook?who=me&crc_token=x"
    await targets.close()
    await runner.cleanup()


async def test_an_answer_without_end_is_cut() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(20):
            await response.write(b"x" * 100_000)
        return response

    runner, address = await served(handler)
    targets = DeliveryTargets(allow_egress=False)
    targets.add(URL, address)
    with pytest.raises(ConnectionError, match="too long"):
        await targets.send(TargetRequest(method="GET", url=URL))
    targets.remove(URL)
    with pytest.raises(UnmappedUrl):
        await targets.send(TargetRequest(method="GET", url=URL))
    await targets.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "http://10.0.0.1/",
        "hook",
        "http://127.0.0.1.example/",
        "http://127.0.0.1@example.com/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:port/",
        "http://[127.0.0.1/",
    ],
)
def test_a_target_s_address_is_http_on_loopback(address: str) -> None:
    with pytest.raises(ValueError, match="http on loopback"):
        Sandbox().deliver_to(URL, address)


def test_a_target_is_something_that_can_answer() -> None:
    with pytest.raises(TypeError, match="a target is"):
        Sandbox().deliver_to(URL, 7)  # type: ignore[arg-type] # on purpose


async def test_an_asgi_application_is_a_target(v2: Any, hook: Any) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, answered, content = await hook.handle(scope["method"], scope["query_string"].decode(), headers, body)
        pairs = [(name.encode(), value.encode()) for name, value in answered.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content[:5], "more_body": True})
        await send({"type": "http.response.body", "body": content[5:]})
        assert (await receive())["type"] == "http.disconnect"

    v2.sandbox.deliver_to(URL, app)
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200
    await v2.sandbox.deliver({"hello": "there"})
    assert hook.events == [{"hello": "there"}]
    assert hook.verified == [True]
    assert (scopes[1]["method"], scopes[1]["scheme"], scopes[1]["path"]) == ("POST", "https", "/svc")

    async def mute(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send

    v2.sandbox.deliver_to(URL, mute)
    await v2.sandbox.deliver({"hello": "there"})
    assert v2.sandbox.deliveries[-1].attempts[0].verdict == "closed"


async def test_with_the_machine_s_clock_all_of_it_works_too(raw_with: Any, v2_with: Any, hook: Any) -> None:
    async with Sandbox(clock=SystemClock()) as sandbox, raw_with(sandbox) as raw:
        v2 = v2_with(raw)
        webhook_id = await v2.register(hook)
        (delivery,) = await sandbox.deliver({"hello": "there"})
        async with asyncio.timeout(10):
            await delivery.done.wait()
        assert (delivery.state, hook.events) == ("delivered", [{"hello": "there"}])
        assert await v2.valid(webhook_id)


async def test_a_clock_that_jumps_is_not_moved_by_upkeep(raw_with: Any, v2_with: Any, hook: Any) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, raw_with(sandbox) as raw:
        await v2_with(raw).register(hook)
        for _ in range(500):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0.0


async def test_a_clock_that_jumps_goes_on_while_a_check_is_under_way(raw_with: Any, v2_with: Any, hook: Any) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, raw_with(sandbox) as raw:
        v2 = v2_with(raw)
        hook.crc = lambda token: slow(sandbox, 7, hook.right(token))
        webhook_id = await v2.register(hook)
        assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
        assert clock.monotonic() == 14.0


async def test_faults_strike_these_calls_too(v2: Any, hook: Any) -> None:
    v2.sandbox.faults.on("GET", "/2/webhooks").once().do(Fault.http(503))
    assert (await v2("GET", "/2/webhooks")).status == 503
    await v2.register(hook)
