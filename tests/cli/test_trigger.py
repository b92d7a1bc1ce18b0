"""`svc-async trigger`, and `svc-async sandbox --forward` that brings what follows to a receiver."""

from pathlib import Path

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
    assert (ended.code, ended.out.count("\n"), ended.err) == (0, 1, "")
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
        assert "user 21" in (await command(*trigger)).out
        assert (await command(*trigger, "--json")).result["subscribed_users"] == ["21"]
        await session.activity.subscriptions.create(
            event_type="post.create", user_id="12", keyword="harbour", webhook_id=webhook.id
        )
        assert "user 21" not in (await command(*trigger)).out


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
        assert "svc-async webhook register" in (await command(*trigger)).out
        assert "goes to 1 webhook" in (await command(*trigger, "--set", "text=the harbour")).out
        sandbox.deliver_to(other, wrong)
        await session.webhooks.validate(webhooks[1].id)
        both = (*trigger, "--set", "text=the harbour")
        happened = (await command(*both, "--json")).result
    assert (happened["deliveries"], happened["dropped"]) == (2, 2)
    assert [(each.state, each.attempted) for each in sandbox.deliveries][-2:] == [("dropped", False)] * 2


async def test_the_sandbox_of_the_variables_is_the_default(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    by_variable = Command(tmp_path, {**command.environ, "SVC_BASE_URL": sandbox.base_url})
    assert (await by_variable("trigger", "post.create", "--json")).result["user_id"] == sandbox.user_id


async def test_variables_of_another_service_are_said_not_to_be_used(command: Command, tmp_path: Path) -> None:
    other = Command(tmp_path, {**command.environ, "SVC_BASE_URL": "https://svc.example.test"})
    ended = await other("trigger", "post.create", "--payload", "none.json")
    assert "SVC_BASE_URL" not in ended.err
    ended = await other("trigger", "post.create")
    assert "SVC_BASE_URL" in ended.err


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
    ("content", "told"),
    keep_short(
        3,
        [
            (None, ("--payload", "")),
            (b"", ("--payload", "line 1, column 1")),
            (b'["secret"]', ("--payload", "")),
            (b'{"a": 1,\n "secret" 2}', ("--payload", "line 2, column 11")),
            (b'{"text": NaN}', ("--payload", "")),
            (b'{"text": "\xff"}', ("--payload", "")),
            (b"[" * 100_000, ("--payload", "")),
            (b'{"text": "' + b"x" * 2**20 + b'"}', ("--payload", "1,044,480 bytes")),
            (b'{"text": "' + "ü".encode() * 500_000 + b'"}', ("trigger", "1 MiB")),
        ],
    ),
)
async def test_a_payload_that_cannot_be_one_is_one_line_and_exit_2(
    command: Command, sandbox: Sandbox, tmp_path: Path, content: bytes | None, told: tuple[str, str]
) -> None:
    if content is not None:
        (tmp_path / "payload.json").write_bytes(content)
    ended = await command("trigger", "post.create", "--payload", "payload.json", "--url", sandbox.base_url, "--json")
    parameter, place = told
    assert (ended.code, ended.error["parameter"], len(ended.err.splitlines())) == (2, parameter, 1)
    assert place in ended.err
    assert "secret" not in ended.err
    assert sandbox.requests.total == 0


@pytest.mark.parametrize(
    ("arguments", "parameter", "named"),
    keep_short(
        2,
        [
            (("post.created",), "trigger", "post.create, post.reply.create, post.quote.create"),
            (("post.create", "--set", "txet=x"), "trigger", "txet"),
            (("posts",), "trigger", "post.create, post.delete, post.mention.create"),
            (("zzz.x",), "trigger", "post.create"),
            (("post.create", "--set", "text"), "--set", ""),
            (("post.create", "--set", "=x"), "--set", ""),
        ],
    ),
)
async def test_what_cannot_happen_is_one_line_and_exit_2(
    command: Command, sandbox: Sandbox, arguments: tuple[str, ...], parameter: str, named: str
) -> None:
    ended = await command("trigger", *arguments, "--url", sandbox.base_url, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)
    assert named in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    ["https://api.example.com", "http://127.0.0.1:99999", "http://127.0.0.1:8765/ads", "nothing", "http://127.0.0.1:9"],
)
def test_where_no_sandbox_is(call: Call, url: str) -> None:
    ended = call("trigger", "post.create", "--url", url, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--url")


async def test_another_server_is_no_sandbox(command: Command) -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="hello")

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ended = await command("trigger", "post.create", "--url", f"http://127.0.0.1:{runner.addresses[0][1]}", "--json")
    await runner.cleanup()
    assert (ended.code, ended.error["parameter"]) == (2, "--url")


@pytest.mark.parametrize(
    "pair",
    [
        URL,
        *(f"{URL}={target}" for target in ("https://127.0.0.1/", "http://example.com/", "", "127.0.0.1:9000")),
        *(
            f"{url}=http://127.0.0.1:9000/svc"  # it cannot be registered
            for url in (
                "http://hooks.example.test/svc",
                "https://hooks.example.test:443/svc",
                "https://192.0.2.7/svc",
                "hooks",
            )
        ),
    ],
)
def test_what_is_forwarded_can_be_registered_and_goes_to_this_machine(call: Call, pair: str) -> None:
    ended = call("sandbox", "--port", "0", "--forward", pair, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--forward")
