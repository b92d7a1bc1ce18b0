"""Writes inspector.png beside it: the sandbox's inspector after some calls, as Chromium shows it.

Run it with `PYTHONPATH=. .nox/browser/bin/python docs/images/inspector.py`.
"""

import asyncio
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from svc_async import ApiError, Session
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.inspector_page import InspectorPage, open_browser

PICTURE = Path(__file__).with_suffix(".png")


async def make_calls(sandbox: Sandbox) -> None:
    """Call the sandbox as a client does, not always successfully."""
    async with Session.sandbox(sandbox) as session:
        audience = session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
        await session.accounts.list().collect()
        sandbox.faults.on("GET", "*/accounts/*").once().do(Fault.http(503, retry_after=1))
        await session.accounts.get(sandbox.account_id)
        sandbox.faults.on("POST", "*/users").once().do(Fault.latency(2))
        await audience.users.upload([{"email": f"customer{number}@example.com"} for number in range(40)])
        unhashed = [sha256(b"bruno@example.com").hexdigest(), "anna@example.com"]
        users = [{"operation_type": "Update", "params": {"users": [{"email": [each]} for each in unhashed]}}]
        path = f"/12/accounts/{sandbox.account_id}/custom_audiences/{sandbox.audience_id}/users"
        with suppress(ApiError):
            await session.request("POST", path, json=users)


async def main() -> None:
    """Write the picture."""
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox:
        await make_calls(sandbox)
        async with (
            open_browser(shutil.which("chromium") or "google-chrome") as browser,
            InspectorPage.open(browser, sandbox.inspector_url) as page,
        ):
            await page.rows().first.click()
            await page.detail().locator("h2").wait_for()
            await page.page.screenshot(path=PICTURE)


if __name__ == "__main__":
    asyncio.run(main())
