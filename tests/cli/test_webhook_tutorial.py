"""The commands of docs/tutorial-webhooks.md, as they stand on the page; only the ports are free ones."""

import re
import shlex
import signal
from pathlib import Path

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox
from svc_async.webhooks import SigningKey, WebhookReceiver
from tests.support.command import ROOT, Command
from tests.support.tiers import keep_short

PAGE = (ROOT / "docs" / "tutorial-webhooks.md").read_text(encoding="utf-8")
LINES = re.findall(r"^svc-async (.*)$", PAGE, re.MULTILINE)


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_the_commands_of_the_page_bring_an_event_to_a_receiver(tmp_path: Path, unused_tcp_port: int) -> None:
    serve, listen, register, trigger = (
        shlex.split(line.partition(" > ")[0].replace("9000", str(unused_tcp_port))) for line in LINES
    )
    sandbox = await Command(tmp_path, {}).start(*serve, "--port", "0", "--json")
    described = await sandbox.item()
    command = Command(tmp_path, described["environment"])
    receiver = await command.start(*listen, "--json")
    await receiver.line()
    for _ in range(2):  # what stands already is left as it is
        registered = await command(*register, "--json")
        assert registered.code == 0
        assert [each["event_type"] for each in registered.result["subscriptions"]] == ["post.create"]
    happened = (await command(*trigger, "--url", described["base_url"], "--json")).result
    assert (happened["user_id"], happened["deliveries"]) == (described["user_id"], 1)
    event = await receiver.item()
    assert (event["event_type"], event["event"]["payload"]["text"]) == ("post.create", "good morning")
    for running in (receiver, sandbox):
        running.send(signal.SIGTERM)
        assert (await running.wait()).code == 0


async def test_a_receiver_that_is_not_up_is_named(command: Command, sandbox: Sandbox) -> None:
    sandbox.deliver_to("https://hooks.example.test/svc", "http://127.0.0.1:9/svc")
    ended = await command("webhook", "register", "https://hooks.example.test/svc", "--json")
    assert (ended.code, ended.error["status"], ended.error["codes"]) == (1, 400, ["CrcValidationFailed"])
    assert len(ended.err.splitlines()) == 1
    assert "svc-async webhook check" in ended.err


async def test_a_url_that_the_sandbox_does_not_forward_is_explained(command: Command) -> None:
    ended = await command("webhook", "register", "https://hooks.example.test/svc")
    assert ended.code == 1
    assert "svc-async sandbox --forward URL=" in ended.err
    assert "deliver_to" not in ended.err


@pytest.mark.long("runs five commands in processes of their own")
async def test_a_second_url_for_an_event_says_to_which_webhook_it_goes(command: Command, sandbox: Sandbox) -> None:
    first, second = (f"https://hooks.example.test/{name}" for name in ("first", "second"))
    for url in (first, second):
        sandbox.deliver_to(url, WebhookReceiver(keys=[SigningKey(sandbox.credentials["consumer_secret"])]))
    events = ("--event", "dm.read", "--event", "post.create", "--user", sandbox.user_id)
    assert (await command("webhook", "register", first, *events[2:])).code == 0
    refused = await command("webhook", "register", second, *events, "--json")
    assert (refused.code, refused.error["parameter"]) == (2, "--event")
    assert first in refused.err
    assert len(sandbox.webhooks) == 1  # nothing was registered
    moved = await command("webhook", "register", second, *events, "--move", "--json")
    described = moved.result
    assert (moved.code, described["url"]) == (0, second)
    assert [each["event_type"] for each in described["subscriptions"]] == ["dm.read", "post.create"]
    back = await command("webhook", "register", first, *events)
    assert second in back.err
    plain = await command("webhook", "register", first.replace("https", "http"), *events, "--json")
    assert (plain.code, plain.error["parameter"]) == (2, "url")


@pytest.mark.long("a token is requested ten times")
async def test_a_bearer_token_that_was_requested_too_often_is_explained(command: Command, sandbox: Sandbox) -> None:
    url = "https://hooks.example.test/svc"
    sandbox.deliver_to(url, WebhookReceiver(keys=[SigningKey(sandbox.app["consumer_secret"])]))
    for _ in range(10):
        async with Session.sandbox(sandbox) as session:
            await session.oauth2.token()
    ended = await command("webhook", "register", url, "--json")
    assert (ended.code, ended.error["status"], ended.error["codes"]) == (1, 403, [99])
    assert "auth whoami" not in ended.err
    hosts = {name: value for name, value in command.environ.items() if name.endswith("_URL")}
    token = {"SVC_BEARER_TOKEN": sandbox.bearer_token()}
    assert (await Command(command.folder, {**hosts, **token})("webhook", "register", url)).code == 0


async def test_a_registration_is_described(command: Command, sandbox: Sandbox) -> None:
    url = "https://hooks.example.test/svc"
    sandbox.deliver_to(url, WebhookReceiver(keys=[SigningKey(sandbox.credentials["consumer_secret"])]))
    ended = await command("webhook", "register", url, "--event", "dm.read", "--user", sandbox.user_id)
    (webhook_id,) = sandbox.webhooks
    assert (ended.code, ended.out) == (0, "")
    assert [name in ended.err for name in (webhook_id, url, "dm.read", sandbox.user_id)] == [True] * 4


@pytest.mark.long("runs three commands in processes of their own")
async def test_a_webhook_that_is_valid_already_is_not_said_to_be_checked(command: Command, sandbox: Sandbox) -> None:
    url = "https://hooks.example.test/svc"
    register = ("webhook", "register", url)
    sandbox.deliver_to(url, WebhookReceiver(keys=[SigningKey(sandbox.credentials["consumer_secret"])]))
    assert (await command(*register, "--json")).result["checked"] is True
    sandbox.deliver_to(url, "http://127.0.0.1:9/svc")  # the receiver is down
    assert "svc-async webhook check" in (await command(*register)).err
    again = (await command(*register, "--json")).result
    assert (again["valid"], again["checked"]) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    keep_short(
        2,
        [
            (("https://hooks.example.test:443/svc",), "url"),
            (("https://hooks.example.test/a b",), "url"),
            (("https://x.test/svc", "--event", "post.create"), "--event and --user"),
            (("https://x.test/svc", "--user", "7"), "--event and --user"),
            (("https://x.test/svc", "--event", "post.create", "--user", "abc"), "--user"),
        ],
    ),
)
async def test_what_cannot_be_registered_is_exit_2(
    command: Command, arguments: tuple[str, ...], parameter: str
) -> None:
    ended = await command("webhook", "register", *arguments, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)


async def test_a_type_of_event_that_the_service_refuses_is_said_to_be_that_of_the_option(
    command: Command, sandbox: Sandbox
) -> None:
    url = "https://hooks.example.test/svc"
    sandbox.deliver_to(url, WebhookReceiver(keys=[SigningKey(sandbox.credentials["consumer_secret"])]))
    ended = await command("webhook", "register", url, "--event", "post.creat", "--user", "7")
    assert (ended.code, "--event" in ended.err) == (1, True)
    ended = await command("webhook", "register", url, "--event", "PostCreate", "--user", "7", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--event")
