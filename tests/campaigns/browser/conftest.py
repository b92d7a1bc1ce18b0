"""Pages in a Chromium of this machine: the inspector of a sandbox, and the page of a job."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.inspector_page import InspectorPage, open_browser
from tests.support.raw_client import RawClient, open_raw_client
from tests.support.sandbox_fixtures import config, hook, v2

__all__ = ["browser", "chromium", "config", "hook", "page", "raw", "sandbox", "v2", "view", "wide_page"]

HERE = Path(__file__).parent
NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have all tests of this folder share the event loop of the browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser."""
    named = os.environ.get("SVC_TEST_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no Chromium is installed: none of {', '.join(NAMES)}, nor SVC_TEST_CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Any]:
    async with open_browser(chromium) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def sandbox(config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=VirtualClock(), config=config) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="session")
async def raw(sandbox: Sandbox) -> AsyncIterator[RawClient]:
    async with open_raw_client(sandbox) as raw:
        yield raw


VIEWS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest) -> tuple[int, str]:
    """The width and the colours of a page."""
    view: tuple[int, str] = request.param
    return view


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Any, sandbox: Sandbox, view: tuple[int, str]) -> AsyncIterator[InspectorPage]:
    """The inspector, at both widths and in both colours; at the end, nothing was wrong."""
    async with InspectorPage.open(browser, sandbox.inspector_url, width=view[0], colours=view[1]) as page:
        yield page


@pytest_asyncio.fixture(loop_scope="session")
async def wide_page(browser: Any, sandbox: Sandbox) -> AsyncIterator[InspectorPage]:
    """The inspector at 1280 pixels."""
    async with InspectorPage.open(browser, sandbox.inspector_url) as page:
        yield page
