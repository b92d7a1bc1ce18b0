"""A raw client of the v2 operations, and a webhook receiver as its owner would write it."""

import base64
import hashlib
import hmac
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
from yarl import URL

from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.sandbox.clock import Clock
from tests.support.raw_client import JSON, RawAnswer, RawClient, encode_json

__all__ = ["RecordingReceiver", "V2Client", "sign_sha256"]

HOOK_URL = "https://hooks.example.test/svc"


def sign_sha256(secret: str, message: bytes) -> str:
    """Sign as the service does, with the standard library only."""
    return "sha256=" + base64.b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()


class RecordingReceiver:
    """Answers checks and deliveries, and records them; `crc` and `ack` replace its answers.

    Attributes:
        queries: of the checks.
        headers: of the deliveries.
        bodies: of the deliveries.
    """

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.queries: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.crc: Callable[[str], Any] = self.answer_check
        self.ack: Callable[[], Any] = lambda: (200, {}, b"")

    def answer_check(self, token: str) -> Any:
        answer = {"response_token": sign_sha256(self.secret, token.encode())}
        return 200, JSON, encode_json(answer)

    def delay_checks(self, clock: Clock, seconds: float) -> None:
        """Answer checks only after some seconds on the clock."""

        async def crc(token: str) -> Any:
            await clock.sleep(seconds)
            return self.answer_check(token)

        self.crc = crc

    async def handle(self, method: str, raw_query: str, headers: Mapping[str, str], body: bytes) -> Any:
        if method == "GET":
            self.queries.append(raw_query)
            answer = self.crc(dict(parse_qsl(raw_query))["crc_token"])
        else:
            self.headers.append(headers)
            self.bodies.append(body)
            answer = self.ack()
        return await answer if inspect.isawaitable(answer) else answer

    @property
    def events(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]

    @property
    def verified(self) -> list[bool]:
        """Whether each delivery was signed as it should be."""
        return [
            hmac.compare_digest(sent["x-svc-webhooks-signature"], sign_sha256(self.secret, body))
            for sent, body in zip(self.headers, self.bodies, strict=True)
        ]


class V2Client:
    """Calls the main API with the app's bearer token."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self.sandbox: Sandbox = raw.sandbox
        self.authorization = f"Bearer {raw.sandbox.bearer_token()}"

    @property
    def clock(self) -> VirtualClock:
        """The sandbox's clock, which must be a virtual one."""
        return self.raw.clock

    async def __call__(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | tuple[()] = (),
        *,
        json: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
    ) -> RawAnswer:
        if json is not None:
            data, headers = encode_json(json), JSON if headers is None else headers
        return await self.raw(
            method,
            path,
            query,
            base=self.sandbox.base_url,
            data=data,
            headers=headers,
            authorization=self.authorization if authorization is None else authorization,
        )

    async def register(self, receiver: RecordingReceiver, url: str = HOOK_URL) -> str:
        """Map a receiver and register its URL; return the webhook's id."""
        self.sandbox.deliver_to(url, receiver)
        got = await self("POST", "/2/webhooks", json={"url": url})
        assert got.status == 200, got.body
        return str(got.data["id"])

    async def subscribe(self, event_type: str, **fields: Any) -> str:
        """Subscribe to events, by default of the first user; return the subscription's id."""
        names = ("user_id", "keyword", "direction")
        chosen = {name: fields.pop(name) for name in names if name in fields} or {"user_id": self.sandbox.user_id}
        body = {"event_type": event_type, "filter": chosen, **fields}
        got = await self("POST", "/2/activity/subscriptions", json=body)
        assert got.status == 200, got.body
        return str(got.data["subscription_id"])

    async def is_valid(self, webhook_id: str) -> bool:
        hooks = (await self("GET", "/2/webhooks")).data
        return next(bool(hook["valid"]) for hook in hooks if hook["id"] == webhook_id)

    @asynccontextmanager
    async def stream(self, path: str, query: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self.sandbox.base_url}{path}{query}"
        async with self.raw.http.get(URL(url, encoded=True), headers={"Authorization": self.authorization}) as answer:
            yield answer
