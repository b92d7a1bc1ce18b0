"""Webhooks: their registration, listing, deletion and deliveries, with receivers of the standard library."""

import asyncio
import json

import pytest

from svc_async.sandbox import Fault, Sandbox, SystemClock, VirtualClock
from svc_async.sandbox.push.outbound import sign
from tests.support.raw_client import open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

URL = "https://hooks.example.test/svc"


@pytest.mark.rule("WH-04", "WH-09", "WH-10", "WH-34", "WH-35", "WH-36")
async def test_a_url_is_registered_after_it_has_answered_the_check(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    assert [query.split("=")[0] for query in hook.queries] == ["crc_token"]
    got = await v2("GET", "/2/webhooks")
    assert (got.status, got.rule) == (200, "WH-10")
    assert got.data == [{"id": webhook_id, "url": URL, "valid": True, "created_at": "2026-06-10T12:00:00Z"}]
    assert got.json["meta"] == {"result_count": 1}
    assert got.headers["x-rate-limit-limit"] == "450"


@pytest.mark.rule("WH-35", "WH-40c")
def test_the_sandbox_and_the_reference_receiver_sign_as_the_published_vectors_do(hook: RecordingReceiver) -> None:
    vectors = {
        b'{"test_number":1,"test_string":"two"}': "sha256=YWHphPn/JFq43jkF0y4/w8R/SelmLjvpunhVFY8JhlI=",
        b"test=1&other_test=2": "sha256=25Cu3iwbbiqBTwQRzcKJZwisjf736V2Q8UaTlkfLSoc=",
    }
    hook.secret = "test"
    for message, expected in vectors.items():
        assert sign("test", message) == expected
        assert json.loads(hook.answer_check(message.decode())[2]) == {"response_token": expected}


@pytest.mark.rule("WH-01", "WH-02", "LIM-01b")
async def test_a_url_that_breaks_a_rule_is_refused_by_name(v2: V2Client, subtests: pytest.Subtests) -> None:
    for url, rule in [
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
    ]:
        with subtests.test(url=url, rule=rule):
            got = await v2("POST", "/2/webhooks", json={"url": url})
            assert (got.status, got.rule) == (400, rule)
            assert got.failure[0] == "UrlValidationFailed"
            assert url not in got.json["detail"]


@pytest.mark.parametrize("url", [f"https://hooks.example.test/{'a' * 173}", "https://hooks.example.test?who=me"])
async def test_a_url_may_be_as_long_as_200_characters_and_have_a_query(
    v2: V2Client, hook: RecordingReceiver, url: str
) -> None:
    await v2.register(hook, url)
    assert hook.queries[0].startswith("who=me&crc_token=" if "?" in url else "crc_token=")


@pytest.mark.rule("WH-03")
async def test_what_is_mapped_nowhere_does_not_leave_the_machine(v2: V2Client) -> None:
    got = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (got.status, got.rule) == (400, "ASM-42")
    assert got.json["title"] == "Bad Request"
    assert got.failure[0] == "CrcValidationFailed"
    assert (await v2("GET", "/2/webhooks")).data == []


async def test_a_url_is_registered_once_and_an_app_has_a_maximum(v2: V2Client, hook: RecordingReceiver) -> None:
    first = await v2.register(hook)
    again = await v2("POST", "/2/webhooks", json={"url": URL})
    assert (again.status, again.failure[0]) == (400, "DuplicateUrlFailed")
    for number in range(4):
        await v2.register(hook, f"{URL}/{number}")
    v2.sandbox.deliver_to(f"{URL}/more", hook)
    more = await v2("POST", "/2/webhooks", json={"url": f"{URL}/more"})
    assert (more.status, more.failure[0]) == (400, "WebhookLimitExceeded")
    await v2("DELETE", f"/2/webhooks/{first}")
    assert (await v2("POST", "/2/webhooks", json={"url": URL})).status == 200


async def test_of_two_that_register_at_once_one_is_late(v2: V2Client, hook: RecordingReceiver) -> None:
    hook.delay_checks(v2.clock, 1)
    v2.sandbox.deliver_to(URL, hook)
    both = [asyncio.create_task(v2("POST", "/2/webhooks", json={"url": URL})) for _ in range(2)]
    await v2.sandbox.requests.wait(count=2)
    await v2.clock.advance(seconds=1)
    assert sorted([(await task).status for task in both]) == [200, 400]


async def test_a_body_that_is_none_of_the_call_is_refused(v2: V2Client, subtests: pytest.Subtests) -> None:
    for body in [{}, {"url": 1}, {"url": None}, {"url": ""}, {"url": URL, "more": 1}, [URL]]:
        with subtests.test(body=body):
            got = await v2("POST", "/2/webhooks", json=body)
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.rule("WH-11")
async def test_a_deleted_webhook_is_gone(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    got = await v2("DELETE", f"/2/webhooks/{webhook_id}")
    assert (got.data, got.rule) == ({"deleted": True}, "WH-11")
    for method in ("DELETE", "PUT"):
        again = await v2(method, f"/2/webhooks/{webhook_id}")
        assert (again.status, again.failure[0]) == (404, "WebhookIdInvalid")
    await v2.clock.advance(days=3)
    assert len(hook.queries) == 1


async def test_only_an_app_with_its_bearer_token_may_call(v2: V2Client) -> None:
    assert (await v2("GET", "/2/webhooks", authorization="Bearer nothing")).status == 401
    assert (await v2.raw("GET", "/2/webhooks", base=v2.sandbox.base_url)).status in {401, 403}


async def test_each_app_has_webhooks_of_its_own(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    other = f"Bearer {v2.sandbox.bearer_token(v2.sandbox.public_app['consumer_key'])}"
    assert (await v2("GET", "/2/webhooks", authorization=other)).data == []
    assert (await v2("DELETE", f"/2/webhooks/{webhook_id}", authorization=other)).status == 404


async def test_with_the_machine_s_clock_all_of_it_works_too(hook: RecordingReceiver) -> None:
    async with Sandbox(clock=SystemClock()) as sandbox, open_raw_client(sandbox) as raw:
        v2 = V2Client(raw)
        webhook_id = await v2.register(hook)
        (delivery,) = await sandbox.deliver({"hello": "there"})
        async with asyncio.timeout(10):
            await delivery.done.wait()
        assert (delivery.state, hook.events) == ("delivered", [{"hello": "there"}])
        assert await v2.is_valid(webhook_id)


async def test_a_clock_that_jumps_is_not_moved_by_scheduled_checks(hook: RecordingReceiver) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        await V2Client(raw).register(hook)
        for _ in range(500):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0.0


async def test_a_clock_that_jumps_moves_during_a_check(hook: RecordingReceiver) -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        v2 = V2Client(raw)
        hook.delay_checks(clock, 7)
        webhook_id = await v2.register(hook)
        assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": True}
        assert clock.monotonic() == 14.0


async def test_faults_strike_these_calls_too(v2: V2Client, hook: RecordingReceiver) -> None:
    v2.sandbox.faults.on("GET", "/2/webhooks").once().do(Fault.http(503))
    assert (await v2("GET", "/2/webhooks")).status == 503
    await v2.register(hook)
