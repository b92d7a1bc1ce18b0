"""Pages, opened in Chromium."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

__all__ = ["JobPage", "OpenPage", "open_browser"]

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
expect.set_options(timeout=30_000)  # for a machine that does other things too

_LOCAL = {"127.0.0.1", "localhost", None}
_HEIGHT = 800


@asynccontextmanager
async def open_browser(path: str) -> AsyncIterator[Browser]:
    """Start a Chromium with an empty profile."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class OpenPage:
    """An open page, and what went wrong in it.

    Attributes:
        problems: errors and warnings of the console, and exceptions.
        requests: the URLs of all requests.
    """

    def __init__(self, page: Page, width: int) -> None:
        self.page = page
        self.is_narrow = width < 900
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def _note_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, browser: Browser, url: str, *, width: int = 1280, colours: Any = "light", **context: Any
    ) -> AsyncIterator[Self]:
        """Open the page; when it is closed, check that nothing went wrong and that no request left the machine."""
        opened = await browser.new_context(
            viewport={"width": width, "height": _HEIGHT}, color_scheme=colours, reduced_motion="reduce", **context
        )
        try:
            page = cls(await opened.new_page(), width)
            await page.page.goto(url)
            await page.wait_until_ready()
            yield page
            assert page.problems == []
            assert {urlsplit(sent).hostname for sent in page.requests} <= _LOCAL
        finally:
            await opened.close()

    async def wait_until_ready(self) -> None:
        """Wait until the page shows what it shall."""

    @property
    def connection(self) -> Locator:
        """Whether the page is live."""
        return self.page.locator("#connection")

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self.page.keyboard.press(key)

    async def get_focused(self) -> str:
        """Return the id, or else the text, of the element with the focus."""
        return str(await self.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))

    async def tab_to(self, wanted: str) -> None:
        """Press Tab until an element with this id or text has the focus."""
        for _ in range(60):
            if await self.get_focused() == wanted:
                return
            await self.press("Tab")
        raise AssertionError(f"Tab does not reach {wanted}")

    async def count_pixels_too_wide(self) -> int:
        """Return by how much the content is wider than the window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


class JobPage(OpenPage):
    """The page of a job."""

    @property
    def outcome(self) -> Locator:
        """The first sentence."""
        return self.page.locator(".outcome")

    async def list_violations(self) -> list[str]:
        """Return what axe-core finds, as it is."""
        found = await Axe().run(self.page)
        return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found.response["violations"]]
