"""The receiver and the sandbox's deliveries, which were written apart, meet."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import attrs
import pytest

from svc_async.events.models import (
    DirectMessage,
    Event,
    EventType,
    PostCreated,
    ProfileUpdated,
    ReplayJobStatus,
    UnknownEvent,
)
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.webhooks import Ack, MemoryDedupe, SigningKey, WebhookReceiver
from tests.support.receivers import PATH, SERVERS

URL = "https://hooks.example.test/svc"


@attrs.frozen
class Client:
    """Calls the main API as an app."""

    sandbox: Sandbox
    http: aiohttp.ClientSession
    clock: VirtualClock

    async def sign_in(self) -> None:
        basic = aiohttp.encode_basic_auth(self.sandbox.app["consumer_key"], self.sandbox.app["consumer_secret"])
        async with self.http.post(
            f"{self.sandbox.base_url}/oauth2/token",
            data={"grant_type": "client_credentials"},
            headers={"Authorization": basic},
        ) as answer:
            bearer = (await answer.json())["access_token"]
        self.http.headers["Authorization"] = f"Bearer {bearer}"

    async def call(self, method: str, path: str, **body: Any) -> tuple[int, Any]:
        async with self.http.request(method, f"{self.sandbox.base_url}{path}", json=body or None) as answer:
            return answer.status, await answer.json()

    async def register(self, url: str = URL) -> str:
        status, answer = await self.call("POST", "/2/webhooks", url=url)
        assert status in {200, 201}, answer
        assert answer["data"]["valid"] is True
        return str(answer["data"]["id"])

    async def subscribe(self, event_type: str, webhook_id: str) -> None:
        status, answer = await self.call(
            "POST",
            "/2/activity/subscriptions",
            event_type=event_type,
            filter={"user_id": self.sandbox.user_id},
            webhook_id=webhook_id,
            tag="mine",
        )
        assert status in {200, 201}, answer


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    clock = VirtualClock()
    async with Sandbox(clock=clock) as sandbox, aiohttp.ClientSession() as http:
        client = Client(sandbox, http, clock)
        await client.sign_in()
        yield client


def create_receiver(sandbox: Sandbox, **settings: Any) -> tuple[WebhookReceiver, list[Event]]:
    events: list[Event] = []
    dedupe = MemoryDedupe(clock=sandbox.clock)
    receiver = WebhookReceiver(
        keys=[SigningKey(sandbox.app["consumer_secret"])], clock=sandbox.clock, dedupe=dedupe, **settings
    )
    receiver.on("*")(lambda event, _: events.append(event))
    return receiver, events


@pytest.mark.rule("WH-34", "WH-35", "WH-36", "WH-40c", "WH-41", "WH-60", "EV-01")
@pytest.mark.long("delivers an event of each type")
async def test_every_event_comes_through_in_process(client: Client, subtests: pytest.Subtests) -> None:
    receiver, events = create_receiver(client.sandbox, ack=Ack.inline())
    client.sandbox.deliver_to(URL, receiver)
    async with receiver:
        webhook_id = await client.register()
        for event_type in EventType:
            with subtests.test(event_type.value):
                await client.subscribe(event_type, webhook_id)
                await client.sandbox.trigger(event_type)
                await client.clock.advance(seconds=1)
                (event,) = events
                assert event.event_type == event_type
                assert not isinstance(event, UnknownEvent)
                assert event.user_id == client.sandbox.user_id
            events.clear()
    assert receiver.stats.rejected == {}


@pytest.mark.rule("WH-34", "WH-35", "WH-36", "WH-40c", "WH-41")
@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
async def test_events_come_through_over_loopback(client: Client, server: Any) -> None:
    receiver, events = create_receiver(client.sandbox)
    arrived = asyncio.Event()
    receiver.on("*")(lambda *_: arrived.set())
    async with server(receiver) as port:
        client.sandbox.deliver_to(URL, f"http://127.0.0.1:{port}{PATH}")
        webhook_id = await client.register()
        for event_type in ("post.create", "dm.received", "profile.update.bio"):
            await client.subscribe(event_type, webhook_id)
            await client.sandbox.trigger(event_type)
        while len(events) < 3:
            await arrived.wait()
            arrived.clear()
    assert {type(event) for event in events} == {PostCreated, DirectMessage, ProfileUpdated}
    assert receiver.stats.crc_answered >= 1
    assert receiver.stats.rejected == {}


@pytest.mark.rule("WH-35")
async def test_a_receiver_with_another_secret_is_not_registered(client: Client) -> None:
    client.sandbox.deliver_to(URL, WebhookReceiver(keys=[SigningKey("another")]))
    status, _ = await client.call("POST", "/2/webhooks", url=URL)
    assert status >= 400


async def test_an_asgi_receiver_in_process(client: Client) -> None:
    receiver, events = create_receiver(client.sandbox, ack=Ack.inline())
    client.sandbox.deliver_to(URL, receiver.asgi())
    async with receiver:
        webhook_id = await client.register()
        await client.subscribe("post.create", webhook_id)
        await client.sandbox.trigger("post.create")
        await client.clock.advance(seconds=1)
    assert len(events) == 1


async def test_faults_of_deliveries(client: Client) -> None:
    receiver, events = create_receiver(client.sandbox, ack=Ack.inline())
    client.sandbox.deliver_to(URL, receiver)
    async with receiver:
        webhook_id = await client.register()
        await client.subscribe("post.create", webhook_id)
        client.sandbox.deliveries.faults.next(duplicate=2)
        await client.sandbox.trigger("post.create")
        await client.clock.advance(seconds=1)
        assert len(events) == 1
        assert receiver.stats.duplicates == 2
        client.sandbox.deliveries.faults.next(corrupt_signature=True)
        await client.sandbox.trigger("post.create")
        await client.clock.advance(seconds=1)
        assert receiver.stats.rejected == {"signature_wrong": 1}
        await client.clock.advance(hours=1)
    assert len(events) == len({event.key for event in events})


async def test_what_an_offline_receiver_missed_is_replayed_once(client: Client) -> None:
    receiver, events = create_receiver(client.sandbox, ack=Ack.inline())
    client.sandbox.deliver_to(URL, receiver)
    async with receiver:
        webhook_id = await client.register()
        await client.subscribe("post.create", webhook_id)
        await client.sandbox.trigger("post.create")
        await client.clock.advance(seconds=1)
    await client.sandbox.trigger("post.create")  # nobody is there
    began = client.clock.now()
    await client.clock.advance(hours=1)
    assert len(events) == 1
    async with receiver:
        status, answer = await client.call(
            "POST",
            "/2/webhooks/replay",
            webhook_id=webhook_id,
            from_date=(began - timedelta(minutes=5)).strftime("%Y%m%d%H%M"),
            to_date=(began + timedelta(minutes=20)).strftime("%Y%m%d%H%M"),
        )
        assert status < 300, answer
        await client.clock.advance(minutes=10)
    replayed = [event for event in events[1:] if event.event_type == "post.create"]
    (end,) = [event for event in events if isinstance(event, ReplayJobStatus)]
    assert [event.replayed for event in replayed] == [True]
    assert end.job_id == str(answer["data"]["job_id"])
    assert receiver.stats.duplicates >= 1
