"""The flows from end to end, against the sandbox."""

import hmac
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest

from svc_async import (
    AppCredentials,
    BadRequest,
    BearerToken,
    Endpoints,
    Forbidden,
    OAuth2UserCredentials,
    Retries,
    Session,
    Unauthorized,
    WebhookInvalid,
)
from svc_async.auth.credentials import Credentials
from svc_async.events.models import PostCreated
from svc_async.platform.activity import EventType
from svc_async.platform.filtered_stream import Rule
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.streams.states import Checkpoint


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


def make_session(sandbox: Sandbox, credentials: Credentials | None = None, **settings: object) -> Session:
    return Session(
        credentials or AppCredentials(**sandbox.app),
        app=AppCredentials(**sandbox.app),
        endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url),
        clock=sandbox.clock,
        retries=Retries.none(),
        **settings,  # type: ignore[arg-type]  # one test's own
    )


@pytest.mark.rule("AUTH-01", "AUTH-03", "AUTH-08", "AUTH-14", "AUTH-14c", "AUTH-14d", "AUTH-16", "AUTH-17", "ERR-01")
async def test_a_user_grants_access_by_pin_and_it_is_invalidated(sandbox: Sandbox) -> None:
    async with make_session(sandbox) as session:
        token = await session.oauth1.request_token(callback="oob")
        granted = await session.oauth1.access_token(token, verifier=sandbox.approve(token.oauth_token))
        assert granted.user_id == sandbox.user_id
        with pytest.raises(Unauthorized):
            await session.oauth1.access_token(token, verifier="0000000")
    async with make_session(sandbox, granted.credentials(AppCredentials(**sandbox.app))) as session:
        assert [account.id async for account in session.accounts.list()] == [sandbox.account_id]
        gone = await session.oauth1.invalidate_token()
        assert gone.access_token == granted.oauth_token
        with pytest.raises(Unauthorized) as caught:
            await session.accounts.list().collect()
        assert caught.value.has_code(89)


@pytest.mark.rule("AUTH-12e", "AUTH-14c")
async def test_a_user_grants_access_by_callback(sandbox: Sandbox) -> None:
    async with make_session(sandbox) as session:
        token = await session.oauth1.request_token(callback=sandbox.callback_url)
        verifier = sandbox.approve(token.oauth_token)
        redirect = f"{sandbox.callback_url}?oauth_token={token.oauth_token}&oauth_verifier={verifier}"
        read = session.oauth1.verifier(token, redirect)
        assert (await session.oauth1.access_token(token, verifier=read)).user_id == sandbox.user_id


async def test_a_callback_that_is_not_configured_is_refused(sandbox: Sandbox) -> None:
    async with make_session(sandbox) as session:
        with pytest.raises(Forbidden):
            await session.oauth1.request_token(callback="https://elsewhere.example.test/back")


@pytest.mark.rule("AUTH-20", "AUTH-20d", "AUTH-22b")
async def test_the_bearer_token_of_the_app_is_one_and_the_same(sandbox: Sandbox) -> None:
    async with make_session(sandbox) as session, make_session(sandbox) as another:
        assert await session.oauth2.token() == await another.oauth2.token()


@pytest.mark.rule("AUTH-22", "ERR-02")
async def test_an_app_with_a_wrong_secret_is_refused_with_code_99(sandbox: Sandbox) -> None:
    wrong = AppCredentials(consumer_key=sandbox.app["consumer_key"], consumer_secret="wrong")

    async with Session(wrong, endpoints=Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)) as session:
        for _ in range(2):
            with pytest.raises(Forbidden) as caught:
                await session.oauth2.token()
            assert caught.value.has_code(99)

    assert len([request for request in sandbox.requests if request.path == "/oauth2/token"]) == 1


async def grant_token(sandbox: Sandbox, session: Session) -> OAuth2UserCredentials:
    pending = session.oauth2.authorization_url(
        scopes=["follow.read", "offline.access"], redirect_uri=sandbox.callback_url
    )
    redirect = sandbox.approve_oauth2(pending.url)
    assert parse_qs(urlsplit(redirect).query)["state"] == [pending.state]
    return await session.oauth2.exchange(pending, redirect=redirect)


@pytest.mark.rule("AUTH-26")
async def test_a_user_grants_scopes_and_the_token_rotates(sandbox: Sandbox) -> None:
    received: list[OAuth2UserCredentials] = []

    async with make_session(sandbox) as session:
        first = await grant_token(sandbox, session)

    assert set(first.scopes) == {"follow.read", "offline.access"}

    async with make_session(sandbox, first, on_token=received.append) as session:
        second = await session.oauth2.refresh()
        third = await session.oauth2.refresh()

    assert received == [second, third]
    assert len({each.refresh_token for each in (first, second, third)}) == 3


async def test_a_refresh_token_works_once(sandbox: Sandbox) -> None:
    async with make_session(sandbox) as session:
        first = await grant_token(sandbox, session)
    async with make_session(sandbox, first) as session:
        await session.oauth2.refresh()
    async with make_session(sandbox, first) as session:
        with pytest.raises(BadRequest) as caught:
            await session.oauth2.refresh()

    assert caught.value.has_code("invalid_grant")


# --- webhooks, subscriptions, rules

URL = "https://hooks.example.test/svc"


@attrs.define
class Receiver:
    """Answers checks with a secret, and takes every delivery."""

    secret: str
    delivered: list[bytes] = attrs.field(factory=list)

    async def handle(
        self, method: str, raw_query: str | bytes, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        del headers
        if method == "POST":
            self.delivered.append(body)
            return 200, {}, b""
        query = raw_query.decode() if isinstance(raw_query, bytes) else raw_query
        (token,) = parse_qs(query)["crc_token"]
        proof = b64encode(hmac.digest(self.secret.encode(), token.encode(), "sha256")).decode()
        answer = {"response_token": f"sha256={proof}"}
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


@pytest.fixture
async def timed() -> AsyncIterator[Sandbox]:
    """A sandbox whose waits take no time."""
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox:
        yield sandbox


def make_receiver(sandbox: Sandbox) -> Receiver:
    return Receiver(sandbox.app["consumer_secret"])


@pytest.mark.rule("WH-09", "WH-10", "WH-11", "ERR-10")
async def test_a_webhook_is_ensured_loses_its_validity_and_gets_it_back(timed: Sandbox) -> None:
    wrong, right = Receiver("wrong"), make_receiver(timed)
    async with Session.sandbox(timed) as session:
        timed.deliver_to(URL, wrong)
        with pytest.raises(BadRequest) as caught:
            await session.webhooks.ensure(URL)
        assert caught.value.has_code("CrcValidationFailed")

        timed.deliver_to(URL, right)
        webhook = await session.webhooks.ensure(URL)
        assert webhook.valid
        assert await session.webhooks.ensure(URL) == webhook
        with pytest.raises(BadRequest) as caught:
            await session.webhooks.create(URL)
        assert caught.value.has_code("DuplicateUrlFailed")

        timed.deliver_to(URL, wrong)
        await session.webhooks.validate(webhook.id)
        assert [each.valid async for each in session.webhooks.list()] == [False]
        with pytest.raises(WebhookInvalid):
            await session.webhooks.ensure(URL, within=10)

        timed.deliver_to(URL, right)
        assert await session.webhooks.ensure(URL) == webhook
        assert (await session.webhooks.delete(webhook.id)).deleted
        assert await session.webhooks.list().collect() == []


@pytest.mark.rule("ACT-01", "WH-60", "EV-04")
async def test_what_was_delivered_is_delivered_again_for_a_gap(timed: Sandbox) -> None:
    receiver = make_receiver(timed)
    timed.deliver_to(URL, receiver)

    async with Session.sandbox(timed) as session:
        webhook = await session.webhooks.ensure(URL)
        subscription = await session.activity.subscriptions.create(
            event_type="post.create", user_id=timed.user_id, webhook_id=webhook.id, tag="mine"
        )
        assert subscription.filter.user_id == timed.user_id
        since = timed.clock.now()
        await timed.trigger("post.create")
        await timed.clock.sleep(60)
        (first,) = receiver.delivered
        await timed.clock.sleep(7200)
        await session.webhooks.replay_gap(since)
        await timed.clock.sleep(60)

    events = [json.loads(body) for body in receiver.delivered]
    uuids = [each["data"]["event_uuid"] for each in events if "data" in each]

    assert set(uuids) == {json.loads(first)["data"]["event_uuid"]}
    assert len(uuids) > 1


async def test_the_events_of_an_invalid_webhook_come_by_a_stream_and_by_no_replay(timed: Sandbox) -> None:
    right, wrong = make_receiver(timed), Receiver("wrong")
    timed.deliver_to(URL, right)

    async with Session.sandbox(timed) as session:
        webhook = await session.webhooks.ensure(URL)
        await session.activity.subscriptions.create(
            event_type="post.create", user_id=timed.user_id, webhook_id=webhook.id
        )
        since = timed.clock.now()
        timed.deliver_to(URL, wrong)
        await session.webhooks.validate(webhook.id)
        await timed.trigger("post.create", payload={"text": "nobody listens"})
        await timed.clock.sleep(7200)
        timed.deliver_to(URL, right)
        await session.webhooks.ensure(URL)
        await session.webhooks.replay_gap(since)
        await timed.clock.sleep(60)
        assert [json.loads(body).keys() for body in right.delivered] == [{"replay_job_status"}] * 2
        async with session.activity.stream(since=Checkpoint(at=since)) as stream:
            event = await anext(stream)

    assert isinstance(event, PostCreated)
    assert event.post.text == "nobody listens"


@pytest.mark.rule("ACT-01", "ACT-03")
async def test_subscriptions_are_created_listed_updated_and_deleted(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        subscriptions = session.activity.subscriptions
        one = await subscriptions.create(event_type="dm.received", user_id=sandbox.user_id, direction="received")
        other = await subscriptions.create(event_type=EventType.POST_CREATE, user_id=sandbox.user_id)
        assert [each.subscription_id async for each in subscriptions.list(max_results=1)] == [
            one.subscription_id,
            other.subscription_id,
        ]
        assert (await subscriptions.update(one.subscription_id, tag="mine")).tag == "mine"
        assert (await subscriptions.delete(one.subscription_id)).deleted
        assert [each.subscription_id async for each in subscriptions.list()] == [other.subscription_id]


@pytest.mark.rule("FS-01")
async def test_rules_are_added_listed_and_deleted(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        rules = session.filtered_stream.rules
        await rules.add(["cat"], dry_run=True)
        assert await rules.list().collect() == []
        added = await rules.add([Rule("cat", tag="pets"), "dog", "dog"])
        assert [(rule.value, rule.tag) for rule in added.created] == [("cat", "pets"), ("dog", None)]
        assert [(refused.position, refused.code) for refused in added.not_created] == [(2, "DuplicateRule")]
        cat, dog = await rules.list().collect()
        deleted = await rules.delete([cat.id, "999"])
        assert [refused.position for refused in deleted.not_deleted] == [1]
        assert await rules.list().collect() == [dog]


@pytest.mark.rule("AUTH-17", "ERR-01", "AUTH-25")
async def test_a_bearer_token_that_does_not_work_any_more_is_renewed(sandbox: Sandbox) -> None:
    async with make_session(sandbox, BearerToken("of-yesterday")) as session:
        assert await session.webhooks.list().collect() == []

    asked = [(request.path, request.status) for request in sandbox.requests]

    assert asked == [("/2/webhooks", 401), ("/oauth2/token", 200), ("/2/webhooks", 200)]


@pytest.mark.rule("AUTH-24", "AUTH-24b", "AUTH-24d")
async def test_the_bearer_token_is_invalidated_as_it_came(sandbox: Sandbox) -> None:
    endpoints = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)
    async with make_session(sandbox) as session:
        token = (await session.oauth2.token()).access_token
        async with Session(BearerToken(token), endpoints=endpoints, retries=Retries.none()) as other:
            assert await other.webhooks.list().collect() == []
            assert (await session.oauth2.invalidate_token()).access_token == token
            with pytest.raises(Unauthorized):
                await other.webhooks.list().collect()
        assert (await session.oauth2.token()).access_token != token
