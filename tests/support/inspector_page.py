"""The sandbox's inspector, opened in Chromium."""

from playwright.async_api import Locator, expect

from tests.support.page import OpenPage, open_browser

__all__ = ["InspectorPage", "open_browser"]


class InspectorPage(OpenPage):
    """The open inspector."""

    async def wait_until_ready(self) -> None:
        """Wait until the page is live."""
        await expect(self.connection).to_have_text("Live")

    @property
    def outcome(self) -> Locator:
        """The line that says what an action did."""
        return self.page.locator("#outcome")

    @property
    def dialog(self) -> Locator:
        """The open dialog."""
        return self.page.get_by_role("dialog")

    def rows(self, view: str = "requests") -> Locator:
        """Return the rows of a list."""
        return self.page.locator(f"#{view}-list li")

    def detail(self, view: str = "requests") -> Locator:
        """Return the details of the selected row."""
        return self.page.locator(f"#{view}-detail")

    async def go_to(self, name: str) -> None:
        """Open a view by its tab."""
        await self.page.get_by_role("tab", name=name).click()
