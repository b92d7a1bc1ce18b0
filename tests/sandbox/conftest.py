"""A raw client: aiohttp and a dozen lines that sign, none of them the SDK's."""

import base64
import hashlib
import hmac
import inspect
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


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


class V2:
    """Calls the main API with the app's bearer token."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.sandbox = raw.sandbox
        self.authorization = f"Bearer {raw.sandbox.bearer_token()}"

    async def __call__(self, method: str, path: str, query: Any = (), *, json: Any = None, **given: Any) -> Got:
        if json is not None:
            given = {"data": _as_json(json), "headers": {"Content-Type": "application/json"}, **given}
        given = {"base": self.sandbox.base_url, "authorization": self.authorization, **given}
        return await self.raw(method, path, query, **given)

    async def register(self, hook: "Hook", url: str = "https://hooks.example.test/svc") -> str:
        """Map a receiver and register its URL."""
        self.sandbox.deliver_to(url, hook)
        got = await self("POST", "/2/webhooks", json={"url": url})
        assert got.status == 200, got.body
        return str(got.data["id"])

    async def subscribe(self, event_type: str, **given: Any) -> str:
        names = ("user_id", "keyword", "direction")
        chosen = {name: given.pop(name) for name in names if name in given} or {"user_id": self.sandbox.user_id}
        body = {"event_type": event_type, "filter": chosen, **given}
        got = await self("POST", "/2/activity/subscriptions", json=body)
        assert got.status == 200, got.body
        return str(got.data["subscription_id"])

    async def valid(self, webhook_id: str) -> bool:
        hooks = (await self("GET", "/2/webhooks")).data
        return next(bool(hook["valid"]) for hook in hooks if hook["id"] == webhook_id)

    @asynccontextmanager
    async def stream(self, path: str, query: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self.sandbox.base_url}{path}{query}"
        async with self.raw.http.get(URL(url, encoded=True), headers={"Authorization": self.authorization}) as answer:
            yield answer


def sha256_of(secret: str, message: bytes) -> str:
    """Sign as the service is known to: the standard library and nothing of ours."""
    return "sha256=" + base64.b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()


class Hook:
    """A receiver as its owner would write it; `crc` and `ack` make it a wrong one."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.queries: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.crc: Callable[[str], Any] = self.right
        self.ack: Callable[[], Any] = lambda: (200, {}, b"")

    def right(self, token: str) -> Any:
        answer = {"response_token": sha256_of(self.secret, token.encode())}
        return 200, {"Content-Type": "application/json"}, _as_json(answer)

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
            hmac.compare_digest(sent["x-svc-webhooks-signature"], sha256_of(self.secret, body))
            for sent, body in zip(self.headers, self.bodies, strict=True)
        ]


@pytest.fixture
def v2(raw: Raw) -> V2:
    return V2(raw)


@pytest.fixture
def v2_with() -> Callable[[Raw], V2]:
    return V2


@pytest.fixture
def hook(sandbox: Sandbox) -> Hook:
    return Hook(sandbox.app["consumer_secret"])


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
