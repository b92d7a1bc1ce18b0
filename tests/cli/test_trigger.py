"""`svc-async trigger`, and `svc-async sandbox --forward` that brings what follows to a receiver."""

import asyncio
import base64
import hashlib
import hmac
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from svc_async import Session
from svc_async.sandbox import Sandbox
from svc_async.webhooks import SigningKey, WebhookReceiver
from tests.support.command import Call, Command
from tests.support.tiers import keep_short

URL = "https://hooks.example.test/svc"


async def test_an_event_happens_on_a_running_sandbox(command: Command, sandbox: Sandbox) -> None:
    arguments = ("--set", "text=Hello there", "--set", "public_metrics.like_count=7", "--url", sandbox.base_url)
    ended = await command("trigger", "post.create", *arguments)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"post.create happened to user {sandbox.user_id}; no webhook is subscribed to it.\n"
    ended = await command("trigger", "post.create", "--user", "42", *arguments, "--json")
    happened = ended.result
    assert (happened["event_type"], happened["user_id"]) == ("post.create", "42")
    assert (happened["payload"]["text"], happened["payload"]["public_metrics"]["like_count"]) == ("Hello there", 7)


async def test_an_event_of_a_user_to_whom_nobody_is_subscribed_names_those_that_have_subscribers(
    command: Command, sandbox: Sandbox
) -> None:
    receiver = WebhookReceiver(keys=[SigningKey(sandbox.app["consumer_secret"])])
    trigger = ("trigger", "post.create", "--user", "12", "--url", sandbox.base_url)
    sandbox.deliver_to(URL, receiver)
    async with receiver, Session.sandbox(sandbox) as session:
        webhook = await session.webhooks.create(URL)
        for event, user, webhook_id in (
            ("post.create", "21", webhook.id),
            ("dm.read", "3", webhook.id),
            ("post.create", "4", None),
        ):
            await session.activity.subscriptions.create(event_type=event, user_id=user, webhook_id=webhook_id)
        ended = await command(*trigger)
        assert ended.out == (
            "post.create happened to user 12; no webhook is subscribed to it, but to that of user 21 (--user).\n"
        )
        assert (await command(*trigger, "--json")).result["subscribed_users"] == ["21"]
        await session.activity.subscriptions.create(
            event_type="post.create", user_id="12", keyword="harbour", webhook_id=webhook.id
        )
        assert (await command(*trigger)).out == "post.create happened to user 12; no webhook is subscribed to it.\n"


async def test_an_event_for_an_invalid_webhook_goes_nowhere(command: Command, sandbox: Sandbox) -> None:
    other = "https://hooks.example.test/other"
    right, wrong = (WebhookReceiver(keys=[SigningKey(secret)]) for secret in (sandbox.app["consumer_secret"], "wrong"))
    trigger = ("trigger", "post.create", "--url", sandbox.base_url)
    async with right, wrong, Session.sandbox(sandbox) as session:
        for url in (URL, other):
            sandbox.deliver_to(url, right)
        webhooks = [await session.webhooks.create(url) for url in (URL, other)]
        for webhook, keyword in zip(webhooks, (None, "harbour"), strict=True):
            await session.activity.subscriptions.create(
                event_type="post.create", user_id=sandbox.user_id, keyword=keyword, webhook_id=webhook.id
            )
        sandbox.deliver_to(URL, wrong)
        await session.webhooks.validate(webhooks[0].id)
        assert (await command(*trigger)).out == (
            f"post.create happened to user {sandbox.user_id}; it goes to no webhook: the one that is subscribed is "
            "invalid, and `svc-async webhook register URL` has it checked again.\n"
        )
        assert (await command(*trigger, "--set", "text=the harbour")).out == (
            f"post.create happened to user {sandbox.user_id}; it goes to 1 webhook, and not to 1 that is invalid.\n"
        )
        sandbox.deliver_to(other, wrong)
        await session.webhooks.validate(webhooks[1].id)
        both = (*trigger, "--set", "text=the harbour")
        assert "it goes to no webhook: the 2 that are subscribed are invalid, and" in (await command(*both)).out
        happened = (await command(*both, "--json")).result
    assert (happened["deliveries"], happened["dropped"]) == (2, 2)
    assert [(each.state, each.attempted) for each in sandbox.deliveries][-2:] == [("dropped", False)] * 2


async def test_the_sandbox_of_the_variables_is_the_default(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    ended = await Command(tmp_path, {**command.environ, "SVC_BASE_URL": sandbox.base_url})("trigger", "post.create")
    assert ended.out == f"post.create happened to user {sandbox.user_id}; no webhook is subscribed to it.\n"


async def test_variables_of_another_service_are_said_not_to_be_used(command: Command, tmp_path: Path) -> None:
    other = Command(tmp_path, {**command.environ, "SVC_BASE_URL": "https://svc.example.test"})
    ended = await other("trigger", "post.create", "--payload", "none.json")
    assert "using the one at" not in ended.err
    ended = await other("trigger", "post.create")
    assert "SVC_BASE_URL is not that of a sandbox; using the one at http://127.0.0.1:8765." in ended.err


async def test_the_payload_comes_from_a_file_or_from_standard_input(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    place = ("--url", sandbox.base_url, "--json")
    (tmp_path / "payload.json").write_text('{"text": "Grüße", "public_metrics": {"like_count": 7}}', encoding="utf-8")
    changes = ("--set", "public_metrics.reply_count=3")
    payload = (await command("trigger", "post.create", "--payload", "payload.json", *changes, *place)).result["payload"]
    assert (payload["text"], payload["author_id"]) == ("Grüße", sandbox.user_id)
    assert (payload["public_metrics"]["like_count"], payload["public_metrics"]["reply_count"]) == (7, 3)
    running = await command.start("trigger", "a.b", "--payload", "-", "--set", "x=1", *place)
    happened = (await running.wait(b'{"x": 0}')).result
    assert (happened["event_type"], happened["payload"]) == ("a.b", {"x": 1})


@pytest.mark.parametrize(
    ("content", "reason"),
    keep_short(
        3,
        [
            (None, "--payload payload.json cannot be read: No such file or directory"),
            (b"", "--payload payload.json is not JSON: the syntax is wrong at line 1, column 1"),
            (b'["secret"]', "--payload payload.json must contain a JSON object, such as "),
            (b'{"a": 1,\n "secret" 2}', "--payload payload.json is not JSON: the syntax is wrong at line 2, column 11"),
            (b'{"text": NaN}', "--payload payload.json is not JSON: numbers cannot be NaN or Infinity"),
            (b'{"text": "\xff"}', "--payload payload.json is not JSON: it is not encoded in UTF-8"),
            (b"[" * 100_000, "--payload payload.json is not JSON: it is nested too deeply"),
            (b'{"text": "' + b"x" * 2**20 + b'"}', "--payload must have at most 1,044,480 bytes"),
            (
                b'{"text": "' + "ü".encode() * 500_000 + b'"}',
                "trigger was refused: INVALID_PARAMETER: the body takes up to 1 MiB",
            ),
        ],
    ),
)
async def test_a_payload_that_cannot_be_one_is_one_line_and_exit_2(
    command: Command, sandbox: Sandbox, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "payload.json").write_bytes(content)
    ended = await command("trigger", "post.create", "--payload", "payload.json", "--url", sandbox.base_url)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert reason in ended.err
    assert "secret" not in ended.err
    assert sandbox.requests.total == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    keep_short(
        2,
        [
            (
                ("post.created",),
                (
                    "trigger was refused: INVALID_PARAMETER: event_type is not documented; similar ones are "
                    "post.create, post.reply.create, post.quote.create; it must be one of post.create, "
                ),
            ),
            (("post.create", "--set", "txet=x"), "names txet"),
            (
                ("posts",),
                ": event_type is not documented; similar ones are post.create, post.delete, post.mention.create; ",
            ),
            (("zzz.x",), ": event_type must be one of post.create, "),
            (("post.create", "--set", "text"), "--set is written PATH=VALUE"),
            (("post.create", "--set", "=x"), "--set is written PATH=VALUE"),
        ],
    ),
)
async def test_what_cannot_happen_is_one_line_and_exit_2(
    command: Command, sandbox: Sandbox, arguments: tuple[str, ...], reason: str
) -> None:
    ended = await command("trigger", *arguments, "--url", sandbox.base_url)
    assert ended.code == 2
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://api.example.com", "--url must be the address of a sandbox"),
        ("http://127.0.0.1:99999", "--url must be the address of a sandbox"),
        ("http://127.0.0.1:8765/ads", "--url must be the address of a sandbox"),
        ("nothing", "--url must be the address of a sandbox"),
        ("http://127.0.0.1:9", "--url names no sandbox that answers"),
    ],
)
def test_where_no_sandbox_is(call: Call, url: str, reason: str) -> None:
    ended = call("trigger", "post.create", "--url", url)
    assert ended.code == 2
    assert reason in ended.err


async def test_another_server_is_no_sandbox(command: Command) -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="hello")

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ended = await command("trigger", "post.create", "--url", f"http://127.0.0.1:{runner.addresses[0][1]}")
    await runner.cleanup()
    assert (ended.code, "--url is no sandbox: it answered HTTP 200 without JSON" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("pair", "rule"),
    [
        (URL, "the URL of the receiver must begin with http://"),
        (f"{URL}=https://127.0.0.1/", "the URL of the receiver must begin with http://"),
        (f"{URL}=http://example.com/", "a target's address is http on loopback, such as http://127.0.0.1:9000/hook"),
        (f"{URL}=", "the URL of the receiver must begin with http://"),
        (f"{URL}=127.0.0.1:9000", "the URL of the receiver must begin with http://"),
    ],
)
def test_what_is_forwarded_goes_to_this_machine(call: Call, pair: str, rule: str) -> None:
    ended = call("sandbox", "--port", "0", "--forward", pair)
    assert ended.code == 2
    assert "--forward is written URL=URL" in ended.err
    assert ended.err.endswith(f": {rule}\n")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example.test/svc", "must use https"),
        ("https://hooks.example.test:443/svc", "carries a port number"),
        ("https://192.0.2.7/svc", "has an IP address for a host"),
        ("hooks", "must use https"),
    ],
)
def test_what_cannot_be_registered_is_not_forwarded(call: Call, url: str, reason: str) -> None:
    ended = call("sandbox", "--port", "0", "--forward", f"{url}=http://127.0.0.1:9000/svc")
    assert ended.code == 2
    assert ended.err.endswith(f": the URL {reason}\n")


async def test_a_trigger_reaches_a_receiver_behind_a_forward(tmp_path: Path) -> None:
    secret = ""
    arrived: asyncio.Queue[Any] = asyncio.Queue()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            digest = hmac.digest(secret.encode(), request.query["crc_token"].encode(), hashlib.sha256)
            return web.json_response({"response_token": "sha256=" + base64.b64encode(digest).decode()})
        arrived.put_nowait(await request.json())
        return web.Response()

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0", "--json", "--forward", f"{URL}={address}")
    described = await running.item()
    base, secret = described["base_url"], described["credentials"]["consumer_secret"]
    async with aiohttp.ClientSession(base, headers={"Authorization": await request_bearer_token(described)}) as http:
        async with http.post("/2/webhooks", json={"url": URL}) as answer:
            webhook_id = (await answer.json())["data"]["id"]
        wish = {"event_type": "dm.received", "filter": {"user_id": "42"}, "webhook_id": webhook_id}
        async with http.post("/2/activity/subscriptions", json=wish) as answer:
            assert answer.status == 200
    assert (await Command(tmp_path, {})("trigger", "dm.received", "--user", "42", "--url", base)).code == 0
    async with asyncio.timeout(30):
        assert (await arrived.get())["data"]["event_type"] == "dm.received"
    running.send(signal.SIGINT)
    assert (await running.wait()).code == 0
    await runner.cleanup()


async def request_bearer_token(described: Any) -> str:
    keys = described["credentials"]
    basic = base64.b64encode(f"{keys['consumer_key']}:{keys['consumer_secret']}".encode()).decode()
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{described['base_url']}/oauth2/token",
            data={"grant_type": "client_credentials"},
            headers={"Authorization": f"Basic {basic}"},
        ) as answer,
    ):
        return f"Bearer {(await answer.json())['access_token']}"
