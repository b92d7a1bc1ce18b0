"""A sandbox in a thread of its own, for programs that begin an event loop themselves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from svc_async.sandbox import Sandbox


@contextmanager
def run_sandbox() -> Iterator[dict[str, str]]:
    """Run a sandbox; yield the variables that a program needs to reach it."""
    loop, sandbox = asyncio.new_event_loop(), Sandbox()
    thread = threading.Thread(target=loop.run_forever, name="sandbox")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result(30)
        keys = sandbox.credentials
        yield {
            "ACCOUNT_ID": sandbox.account_id,
            "AUDIENCE_ID": sandbox.audience_id,
            "SVC_ACCESS_TOKEN": keys["token"],
            "SVC_ACCESS_TOKEN_SECRET": keys["token_secret"],
            "SVC_ADS_URL": sandbox.ads_url,
            "SVC_BASE_URL": sandbox.base_url,
            "SVC_CONSUMER_KEY": keys["consumer_key"],
            "SVC_CONSUMER_SECRET": keys["consumer_secret"],
        }
        asyncio.run_coroutine_threadsafe(sandbox.aclose(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
