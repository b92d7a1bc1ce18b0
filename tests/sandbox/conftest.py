"""A raw client: aiohttp and a dozen lines that sign, none of them the SDK's."""

import base64
import hashlib
import hmac
import io
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

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
    key = f"{_escape(credentials['consumer_secret'])}&{_escape(credentials.get('token_secret', ''))}"
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
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), strict_parsing=True))

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        """Where a redirect leads, without what it adds."""
        return self.headers["Location"].partition("?")[0]

    @property
    def added(self) -> dict[str, str]:
        """What a redirect adds."""
        return dict(parse_qsl(urlsplit(self.headers["Location"]).query, strict_parsing=True))

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
            "oauth_token": self.credentials.get("token"),
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
        authorization = self.header(method, url) if authorization is None else authorization
        sent = {**({"Authorization": authorization} if authorization else {}), **(headers or {})}
        skip = () if "Content-Type" in sent else ("Content-Type",)
        payload = None if data is None else io.BytesIO(data)
        async with self.http.request(
            method, URL(url, encoded=True), data=payload, headers=sent, skip_auto_headers=skip
        ) as answer:
            return Got(answer.status, answer.headers.copy(), await answer.read())

    async def oauth(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        credentials: Mapping[str, str],
        data: bytes | None = None,
        **protocol: str,
    ) -> Got:
        """Make a call of the main API, signed with these credentials; `token` may be absent."""
        joined = "&".join(f"{_escape(name)}={_escape(str(value))}" for name, value in (query or {}).items())
        url = f"{self.sandbox.base_url}{path}" + (f"?{joined}" if joined else "")
        usual = self.protocol(oauth_token=credentials.get("token"), oauth_consumer_key=credentials["consumer_key"])
        header = oauth_header(method, url, credentials, usual | protocol)
        return await self(method, path, query or {}, base=self.sandbox.base_url, data=data, authorization=header)

    async def post(self, path: str, fields: Mapping[str, str], *, authorization: str = "", **headers: str) -> Got:
        """Send a form to the main API."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        data = urlencode(fields).encode()
        return await self(
            "POST", path, base=self.sandbox.base_url, data=data, headers=sent, authorization=authorization
        )

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
def basic() -> Callable[[str, str], str]:
    """Write the header of HTTP Basic, each part percent-encoded."""
    return lambda key, secret: "Basic " + base64.b64encode(f"{_escape(key)}:{_escape(secret)}".encode()).decode()


class _Form(HTMLParser):
    """The fields of a page's form, with their values, and where it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.buttons: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = given["action"]
        elif tag == "input":
            self.fields[given["name"]] = given.get("value", "")
        elif tag == "button":
            self.buttons.append((given["name"], given["value"]))


class Browser:
    """Opens pages, keeps cookies, clicks; follows no redirect."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http
        self.page = _Form()

    async def open(self, path: str, query: Mapping[str, str] | None = None) -> Got:
        url = path if path.startswith("http") else f"{self.sandbox.base_url}{path}"
        return await self._ask("GET", url, params=query)

    async def click(self, decision: str, *, headers: Mapping[str, str] | None = None, **changes: str) -> Got:
        fields = {**self.page.fields, "decision": decision, **changes}
        return await self._ask("POST", f"{self.sandbox.base_url}{self.page.action}", data=fields, headers=headers)

    async def _ask(self, method: str, url: str, **kwargs: Any) -> Got:
        async with self.http.request(method, url, allow_redirects=False, **kwargs) as answer:
            got = Got(answer.status, answer.headers.copy(), await answer.read())
        if "<form" in got.text:
            self.page = _Form()
            self.page.feed(got.text)
        return got


@pytest.fixture
async def browser(sandbox: Sandbox) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Browser(sandbox, http)


@pytest.fixture
def bearing(raw: Raw) -> Callable[..., Awaitable[Got]]:
    """Make a call of the main API with a bearer token."""

    async def call(method: str, path: str, token: str) -> Got:
        return await raw(method, path, base=raw.sandbox.base_url, authorization=f"Bearer {token}")

    return call


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
