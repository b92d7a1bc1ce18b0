"""Client, receiver and sandbox in the words of other platforms; the walks of every operation are in the file beside."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from svc_async import (
    AppCredentials,
    BadRequest,
    Dialect,
    Endpoints,
    InvalidArgument,
    Session,
    UnusableFile,
    UserCredentials,
)
from svc_async.ads.placements import AdProductType
from svc_async.events.models import ActivityEvent
from svc_async.events.parser import EventParser
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.webhooks import Rejected, SigningKey, WebhookReceiver, unwrap
from svc_async.webhooks.testing import build_delivery
from svc_async.wire.hmac_sha256 import sign
from tests.support.dialects import ACME, ACME_FILE, EVERY_WORD, translate
from tests.support.event_records import PAYLOADS, build_payload
from tests.support.event_samples import activity, encode_body

pytestmark = pytest.mark.rule("GEN-01")
URL = "https://hooks.acme.example/events"


@pytest.fixture(params=[ACME, EVERY_WORD], ids=["acme", "every word"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


@pytest.fixture
async def sandbox(dialect: Dialect) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=VirtualClock(mode="jump"), dialect=dialect) as sandbox:
        yield sandbox


def log_in(sandbox: Sandbox, credentials: Any = None) -> Session:
    """Return a session for another host than that of the pages."""
    assert sandbox.dialect is not None
    return Session(
        credentials or AppCredentials(**sandbox.app),
        app=AppCredentials(**sandbox.app),
        endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
        clock=sandbox.clock,
        dialect=sandbox.dialect.on_one_host(),
    )


async def test_a_user_grants_access_by_pin(sandbox: Sandbox) -> None:
    async with log_in(sandbox) as session:
        token = await session.oauth1.request_token(callback="oob")
        granted = await session.oauth1.access_token(token, verifier=sandbox.approve(token.oauth_token))
        page = urlsplit(session.oauth1.authorize_url(token))
    assert granted.user_id == sandbox.user_id
    assert page.path == session_path(sandbox, "/oauth/authorize")


def session_path(sandbox: Sandbox, page: str) -> str:
    assert sandbox.dialect is not None
    return sandbox.dialect.on_one_host().pages[page]


async def test_a_user_grants_scopes_on_the_page_of_the_platform(sandbox: Sandbox) -> None:
    async with log_in(sandbox) as session, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        pending = session.oauth2.authorization_url(
            scopes=["follow.read", "offline.access"], redirect_uri=sandbox.callback_url
        )
        assert urlsplit(pending.url).path == session_path(sandbox, "/2/oauth2/authorize")
        async with browser.get(pending.url) as shown:
            page = await shown.text()
        inputs = dict[str, str]()
        for part in page.split('<input type="hidden" ')[1:]:
            name, value = part.split('"')[1:4:2]
            inputs[name] = value
        action = page.split('action="')[1].split('"')[0]
        assert sandbox.dialect is not None
        screen_name, decision = (sandbox.dialect.names.get(name, name) for name in ("screen_name", "decision"))
        answer = {**inputs, screen_name: "anna", decision: "approve"}
        async with browser.post(sandbox.base_url + action, data=answer, allow_redirects=False) as left:
            redirect = left.headers["Location"]
        granted = await session.oauth2.exchange(pending, redirect=redirect)
    assert {*granted.scopes} == {"follow.read", "offline.access"}


async def test_a_webhook_receives_what_the_platform_signs(sandbox: Sandbox, dialect: Dialect) -> None:
    received: list[ActivityEvent] = []
    receiver = WebhookReceiver(keys=[SigningKey(sandbox.app["consumer_secret"])], dialect=dialect, clock=sandbox.clock)
    receiver.on("post.create")(lambda event, _: received.append(event))
    sandbox.deliver_to(URL, receiver)
    async with receiver, Session.sandbox(sandbox) as session:
        webhook = await session.webhooks.ensure(URL)
        subscription = await session.activity.subscriptions.create(
            event_type="post.create", user_id=sandbox.user_id, webhook_id=webhook.id
        )
        await sandbox.trigger("post.create")
        await sandbox.clock.sleep(60)
    (delivery,) = sandbox.deliveries
    assert subscription.event_type == "post.create"
    assert [event.event_type for event in received] == ["post.create"]
    assert json.loads(delivery.body) == translate(delivery.event, dialect.names, dialect.values)


async def test_a_stream_is_read_in_our_words(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id)
        async with session.activity.stream() as stream:
            await sandbox.trigger("post.create")
            event = await anext(stream)
    assert event.event_type == "post.create"


@pytest.mark.parametrize("event_type", sorted(PAYLOADS))
def test_every_event_is_read_in_our_words(event_type: str, dialect: Dialect) -> None:
    body = encode_body(activity(event_type, payload=build_payload(event_type)))
    (plain,) = EventParser().parse(body)
    (read,) = EventParser(dialect=dialect).parse(dialect.write_json(body))
    assert (read, read.raw) == (plain, plain.raw)


def test_a_delivery_and_a_check_have_the_header_of_the_platform() -> None:
    key = SigningKey("secret", header="x-acme-webhooks-signature")
    delivery = build_delivery({"data": activity("note.create")}, key)
    (event,) = unwrap(delivery.body, delivery.headers, keys=[SigningKey("secret")], dialect=ACME)
    assert event.event_type == "post.create"
    with pytest.raises(Rejected):
        unwrap(delivery.body, delivery.headers, keys=[SigningKey("secret")])


async def test_a_check_is_answered_in_the_words_of_the_platform() -> None:
    dialect = Dialect(name="x", names={"crc_token": "check", "response_token": "proof"})
    receiver = WebhookReceiver(keys=[SigningKey("secret")], dialect=dialect)
    answer = await receiver.handle("GET", "check=a%2Bb", {}, b"")
    assert (answer.status, json.loads(answer.body)) == (200, {"proof": sign(SigningKey("secret"), b"a+b")})


async def test_an_error_names_our_parameter_and_keeps_what_came(sandbox: Sandbox, dialect: Dialect) -> None:
    async with Session.sandbox(sandbox, validate=False) as session:
        with pytest.raises(BadRequest) as caught:
            await session.placements.list(product_type=AdProductType("NOTHING")).collect()
    (reason,) = caught.value.errors
    assert (reason.parameter, reason.code) == ("product_type", "INVALID_PARAMETER")
    (kept,) = translate(json.loads(caught.value.body), invert(dialect.names), invert(dialect.values))["errors"]
    assert kept["parameter"] == "product_type"
    if dialect is EVERY_WORD:
        assert b'"its_parameter":"its_product_type"' in caught.value.body


def invert(words: Any) -> dict[str, str]:
    return {other: word for word, other in words.items()}


async def test_the_words_of_the_contract_are_unknown_on_the_wire(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        plain = Session(
            UserCredentials(**sandbox.credentials),
            endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
            clock=sandbox.clock,
        )
        path = f"/12/accounts/{sandbox.account_id}/post"
        assert await session.request("POST", path, params={"as_user_id": sandbox.user_id, "text": "x"})
        async with plain:
            with pytest.raises(Exception, match="404") as caught:
                await plain.request("POST", path, params={"as_user_id": sandbox.user_id, "text": "x"})
    assert type(caught.value).__name__ == "NotFound"


async def test_a_word_of_the_platform_is_not_sent(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        sent = len(sandbox.requests)
        word = next(iter(sandbox.dialect.names.values())) if sandbox.dialect else ""
        with pytest.raises(InvalidArgument) as caught:
            await session.request("GET", "/12/accounts", params={word: 1})
    assert caught.value.parameter == word
    assert len(sandbox.requests) == sent


def make_members(count: int) -> list[dict[str, str]]:
    return [{"svc_id": str(10**12 + number)} for number in range(count)]


@pytest.mark.long("sends five megabytes")
async def test_a_request_is_full_to_the_byte_in_the_words_of_the_platform() -> None:
    longer = Dialect(name="longer", names={"svc_id": "acme_identifier", "users": "persons", "params": "arguments"})
    members = [{"svc_id": f"{number}", "partner_user_id": f"{number:02500}"} for number in range(1, 4_001)]
    async with Sandbox(dialect=longer) as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.upload(members, users_per_operation=1, concurrency=1)
    sizes = [entry.size for entry in sandbox.requests if entry.path.endswith("/users")]
    assert report.accepted == report.read == 4_000
    assert max(sizes) <= 5_000_000
    assert max(sizes) > 5_000_000 - 2 * 2_600


async def test_a_journal_belongs_to_the_words_that_it_was_begun_with(tmp_path: Path) -> None:
    journal, members = tmp_path / "a.journal", make_members(20)
    async with Sandbox(dialect=ACME) as sandbox:
        async with Session.sandbox(sandbox) as session:
            users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
            report = await users.upload(members, journal=journal)
            assert (await users.upload(members, journal=journal)).accepted == report.accepted == 20
        renamed = Dialect(
            name="other", names=ACME.names, values=ACME.values, paths=ACME.paths, pages=ACME.pages, headers=ACME.headers
        )
        async with Session.sandbox(sandbox, dialect=renamed) as session:
            users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
            assert (await users.upload(members, journal=journal)).accepted == 20
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        with pytest.raises(UnusableFile):
            await users.upload(members, journal=journal)


async def test_a_sync_and_what_is_beside_it_are_written_in_the_words_of_the_platform(
    tmp_path: Path, dialect: Dialect
) -> None:
    async with (
        Sandbox(dialect=dialect, clock=VirtualClock(mode="jump")) as sandbox,
        Session.sandbox(sandbox) as session,
    ):
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        state = tmp_path / "state"
        await users.sync(make_members(50), state=state, max_removal_share=1)
        await users.remove(make_members(5), state=state)
        await sandbox.clock.sleep(timedelta(minutes=5).total_seconds())
        report = await users.sync(make_members(40), state=state, max_removal_share=1)
        assert report.sent is not None
        assert len(sandbox.audience(sandbox.audience_id).users) >= 40


def test_a_session_reads_the_file_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SVC_CONSUMER_KEY": "k",
        "SVC_CONSUMER_SECRET": "s",
        "SVC_BASE_URL": "https://api.acme.example",
        "SVC_ADS_URL": "https://ads.acme.example",
        "SVC_DIALECT": str(ACME_FILE),
    }.items():
        monkeypatch.setenv(name, value)
    assert Session.from_env()._settings.dialect == ACME
