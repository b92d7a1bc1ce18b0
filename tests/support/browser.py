"""A browser that opens the sandbox's pages and submits their forms."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp

from svc_async.sandbox import Sandbox
from tests.support.raw_client import RawAnswer

__all__ = ["Browser", "open_browser"]


class _Form(HTMLParser):
    """The form of a page: its action, fields and buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.buttons: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = values["action"]
        elif tag == "input":
            self.fields[values["name"]] = values.get("value", "")
        elif tag == "button":
            self.buttons.append((values["name"], values["value"]))


class Browser:
    """Opens pages, keeps cookies, clicks; follows no redirect."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http
        self.page = _Form()

    async def open(self, path: str, query: Mapping[str, str] | None = None) -> RawAnswer:
        url = path if path.startswith("http") else f"{self.sandbox.base_url}{path}"
        return await self._request("GET", url, params=query)

    async def click(self, decision: str, *, headers: Mapping[str, str] | None = None, **changes: str) -> RawAnswer:
        """Submit the form of the page with one of its buttons."""
        fields = {**self.page.fields, "decision": decision, **changes}
        return await self._request("POST", f"{self.sandbox.base_url}{self.page.action}", data=fields, headers=headers)

    async def _request(self, method: str, url: str, **options: Any) -> RawAnswer:
        async with self.http.request(method, url, allow_redirects=False, **options) as answer:
            got = RawAnswer(answer.status, answer.headers.copy(), await answer.read())
        if "<form" in got.text:
            self.page = _Form()
            self.page.feed(got.text)
        return got


@asynccontextmanager
async def open_browser(sandbox: Sandbox) -> AsyncIterator[Browser]:
    """Open a browser without cookies."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Browser(sandbox, http)
