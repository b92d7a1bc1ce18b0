"""Lets tasks run without waiting for time to pass."""

import asyncio

__all__ = ["run_ready_tasks"]


async def run_ready_tasks() -> None:
    """Yield to the event loop until tasks that need no time have run."""
    for _ in range(50):
        await asyncio.sleep(0)
