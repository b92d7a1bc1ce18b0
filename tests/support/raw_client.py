"""A raw client of the sandbox: aiohttp and a dozen lines that sign, none of them the SDK's."""

import base64
import hashlib
import hmac
import io
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import aiohttp
import attrs
from yarl import URL

from svc_async.sandbox import Sandbox, VirtualClock

__all__ = ["RawAnswer", "RawClient", "encode_basic", "encode_json", "hash_sha256", "open_raw_client", "sign_oauth"]

JSON = {"Content-Type": "application/json"}


def _escape(text: str) -> str:
    return quote(text, safe="~")


def _encode_query(pairs: Iterable[tuple[str, Any]]) -> str:
    return "&".join(f"{_escape(name)}={_escape(str(value))}" for name, value in pairs)


def encode_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def encode_basic(key: str, secret: str) -> str:
    """Return a header of HTTP Basic, each part percent-encoded."""
    return "Basic " + base64.b64encode(f"{_escape(key)}:{_escape(secret)}".encode()).decode()


def hash_sha256(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def sign_oauth(method: str, url: str, credentials: Mapping[str, str], protocol: Mapping[str, str]) -> str:
    """Return an `Authorization` header that is signed as RFC 5849 3.4 says."""
    parts = urlsplit(url)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *protocol.items()]
    joined = "&".join("=".join(pair) for pair in sorted((_escape(k), _escape(v)) for k, v in pairs))
    base = "&".join(map(_escape, (method, f"{parts.scheme}://{parts.netloc}{parts.path}", joined)))
    key = f"{_escape(credentials['consumer_secret'])}&{_escape(credentials.get('token_secret', ''))}"
    signature = base64.b64encode(hmac.digest(key.encode(), base.encode(), hashlib.sha1)).decode()
    parameters = {**protocol, "oauth_signature": signature}
    return "OAuth " + ", ".join(f'{name}="{_escape(value)}"' for name, value in parameters.items())


@attrs.frozen
class RawAnswer:
    """The answer to a raw call."""

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
        """The target of a redirect, without its query."""
        return self.headers["Location"].partition("?")[0]

    @property
    def added(self) -> dict[str, str]:
        """The query of a redirect."""
        return dict(parse_qsl(urlsplit(self.headers["Location"]).query, strict_parsing=True))

    @property
    def codes(self) -> list[tuple[str | int, str | None]]:
        return [(error["code"], error.get("parameter")) for error in self.json["errors"]]

    @property
    def failure(self) -> tuple[str, str]:
        """The name of a failure of v2, and the first word after it, which is the parameter if there is one."""
        name, _, rest = self.json["detail"].partition(": ")
        return name, rest.partition(" ")[0]

    @property
    def rule(self) -> str:
        return self.headers["x-sandbox-rule"]

    @property
    def basis(self) -> str:
        return self.headers["x-sandbox-basis"]


class RawClient:
    """Sends any request, however wrong; signs it as the first user unless another authorization is given."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http
        self.credentials = sandbox.credentials
        self._nonces = itertools.count(1)

    @property
    def clock(self) -> VirtualClock:
        """The sandbox's clock, which must be a virtual one."""
        assert isinstance(self.sandbox.clock, VirtualClock)
        return self.sandbox.clock

    @property
    def account(self) -> str:
        """The path of the first user's account."""
        return f"/12/accounts/{self.sandbox.account_id}"

    def make_protocol(self, **changes: str | None) -> dict[str, str]:
        """Return the `oauth_` parameters of a new request; None leaves one out."""
        usual = {
            "oauth_consumer_key": self.credentials["consumer_key"],
            "oauth_nonce": f"nonce{next(self._nonces)}",
            "oauth_signature_method": "HMAC-SHA1",
            "oauth_timestamp": str(int(self.sandbox.clock.now().timestamp())),
            "oauth_token": self.credentials.get("token"),
            "oauth_version": "1.0",
        }
        return {name: value for name, value in (usual | changes).items() if value is not None}

    def sign(self, method: str, url: str, **changes: str | None) -> str:
        """Return the `Authorization` header of a request as the first user."""
        return sign_oauth(method, url, self.credentials, self.make_protocol(**changes))

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
    ) -> RawAnswer:
        """Make a call, by default of the advertising API; an empty `authorization` sends none."""
        joined = _encode_query(query.items() if isinstance(query, Mapping) else query)
        url = f"{base or self.sandbox.ads_url}{path}" + (f"?{joined}" if joined else "")
        authorization = self.sign(method, url) if authorization is None else authorization
        sent = {**({"Authorization": authorization} if authorization else {}), **(headers or {})}
        skip = () if "Content-Type" in sent else ("Content-Type",)
        payload = None if data is None else io.BytesIO(data)
        async with self.http.request(
            method, URL(url, encoded=True), data=payload, headers=sent, skip_auto_headers=skip
        ) as answer:
            return RawAnswer(answer.status, answer.headers.copy(), await answer.read())

    async def call_signed(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        /,
        *,
        credentials: Mapping[str, str],
        **protocol: str,
    ) -> RawAnswer:
        """Make a call of the main API, signed with these credentials; `token` is optional."""
        joined = _encode_query((query or {}).items())
        url = f"{self.sandbox.base_url}{path}" + (f"?{joined}" if joined else "")
        usual = self.make_protocol(oauth_token=credentials.get("token"), oauth_consumer_key=credentials["consumer_key"])
        header = sign_oauth(method, url, credentials, usual | protocol)
        return await self(method, path, query or {}, base=self.sandbox.base_url, authorization=header)

    async def call_with_token(self, method: str, path: str, token: str) -> RawAnswer:
        """Make a call of the main API with a bearer token."""
        return await self(method, path, base=self.sandbox.base_url, authorization=f"Bearer {token}")

    async def post_form(
        self, path: str, fields: Mapping[str, str], *, authorization: str = "", **headers: str
    ) -> RawAnswer:
        """Send a form to the main API."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        data = urlencode(fields).encode()
        return await self(
            "POST", path, base=self.sandbox.base_url, data=data, headers=sent, authorization=authorization
        )

    async def send_users(
        self,
        operations: Any,
        *,
        audience: str | None = None,
        query: Mapping[str, Any] | tuple[()] = (),
        headers: Mapping[str, str] = JSON,
        base: str | None = None,
        authorization: str | None = None,
    ) -> RawAnswer:
        """Send a group of operations to an audience, as JSON unless they are bytes already."""
        body = operations if isinstance(operations, bytes) else encode_json(operations)
        path = f"{self.account}/custom_audiences/{audience or self.sandbox.audience_id}/users"
        return await self("POST", path, query, data=body, headers=headers, base=base, authorization=authorization)


@asynccontextmanager
async def open_raw_client(sandbox: Sandbox) -> AsyncIterator[RawClient]:
    """Open a raw client of a running sandbox."""
    async with aiohttp.ClientSession() as http:
        yield RawClient(sandbox, http)
