"""A raw client: aiohttp and a dozen lines that sign, none of them the SDK's."""

import base64
import hashlib
import hmac
import io
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import aiohttp
import attrs
import pytest
from yarl import URL

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock


def _escape(text: str) -> str:
    return quote(text, safe="~")


def oauth_header(method: str, url: str, credentials: Mapping[str, str], protocol: Mapping[str, str]) -> str:
    """Sign as RFC 5849 3.4 says."""
    parts = urlsplit(url)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *protocol.items()]
    joined = "&".join("=".join(pair) for pair in sorted((_escape(k), _escape(v)) for k, v in pairs))
    base = "&".join(map(_escape, (method, f"{parts.scheme}://{parts.netloc}{parts.path}", joined)))
    key = f"{_escape(credentials['consumer_secret'])}&{_escape(credentials['token_secret'])}"
    signed = base64.b64encode(hmac.digest(key.encode(), base.encode(), hashlib.sha1)).decode()
    sent = {**protocol, "oauth_signature": signed}
    return "OAuth " + ", ".join(f'{name}="{_escape(value)}"' for name, value in sent.items())


@attrs.frozen
class Got:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.json["data"]

    @property
    def codes(self) -> list[tuple[str, str | None]]:
        return [(error["code"], error.get("parameter")) for error in self.json["errors"]]

    @property
    def rule(self) -> str:
        return self.headers["x-sandbox-rule"]

    @property
    def basis(self) -> str:
        return self.headers["x-sandbox-basis"]


class Raw:
    """Sends what it is told to, however wrong."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http
        self.credentials = sandbox.credentials
        self._nonces = itertools.count(1)

    def protocol(self, **changes: str | None) -> dict[str, str]:
        usual = {
            "oauth_consumer_key": self.credentials["consumer_key"],
            "oauth_nonce": f"nonce{next(self._nonces)}",
            "oauth_signature_method": "HMAC-SHA1",
            "oauth_timestamp": str(int(self.sandbox.clock.now().timestamp())),
            "oauth_token": self.credentials["token"],
            "oauth_version": "1.0",
        }
        return {name: value for name, value in (usual | changes).items() if value is not None}

    def header(self, method: str, url: str, **changes: str | None) -> str:
        return oauth_header(method, url, self.credentials, self.protocol(**changes))

    async def __call__(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        *,
        base: str | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
    ) -> Got:
        pairs = query.items() if isinstance(query, Mapping) else query
        joined = "&".join(f"{_escape(name)}={_escape(str(value))}" for name, value in pairs)
        url = f"{base or self.sandbox.ads_url}{path}" + (f"?{joined}" if joined else "")
        sent = {"Authorization": authorization or self.header(method, url), **(headers or {})}
        skip = () if "Content-Type" in sent else ("Content-Type",)
        payload = None if data is None else io.BytesIO(data)
        async with self.http.request(
            method, URL(url, encoded=True), data=payload, headers=sent, skip_auto_headers=skip
        ) as answer:
            return Got(answer.status, answer.headers.copy(), await answer.read())

    @property
    def account(self) -> str:
        return f"/12/accounts/{self.sandbox.account_id}"

    async def users(self, operations: Any, *, audience: str | None = None, **kwargs: Any) -> Got:
        """Send a group of operations, as JSON unless they are bytes already."""
        body = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
        path = f"{self.account}/custom_audiences/{audience or self.sandbox.audience_id}/users"
        kwargs.setdefault("headers", {"Content-Type": "application/json"})
        return await self("POST", path, data=body, **kwargs)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig()


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=clock, config=config) as running:
        yield running


@asynccontextmanager
async def _raw_with(sandbox: Sandbox) -> AsyncIterator[Raw]:
    async with aiohttp.ClientSession() as http:
        yield Raw(sandbox, http)


@pytest.fixture
def raw_with() -> Callable[[Sandbox], AbstractAsyncContextManager[Raw]]:
    """For tests that start their own sandbox."""
    return _raw_with


@pytest.fixture
async def raw(sandbox: Sandbox) -> AsyncIterator[Raw]:
    async with _raw_with(sandbox) as raw:
        yield raw


@pytest.fixture
def sha256() -> Callable[[str], str]:
    return lambda value: hashlib.sha256(value.encode()).hexdigest()
