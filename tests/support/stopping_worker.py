"""A worker that uploads with a journal in a shared state, and stops itself with SIGSTOP before its first request.

The seconds that it is stopped are in a file: the test decides how many they are.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from svc_async import Endpoints, Session, UserCredentials
from svc_async.batch.journal.journal import JournalLedger
from svc_async.clock import SystemClock
from svc_async.errors import BatchError
from svc_async.state import SharedState
from svc_async.store.postgres import PostgresStore

__all__ = ["MOMENTS"]


class StoppableClock(SystemClock):
    """A clock that reads from a file how long the process was stopped."""

    def __init__(self, seconds: Path) -> None:
        self._seconds = seconds

    def boottime(self) -> float:
        return super().boottime() + float(self._seconds.read_text())


def _stop_before(owner: Any, name: str, *, calls: int) -> None:
    """Stop before the n-th call of a method."""
    method: Callable[..., Any] = getattr(owner, name)
    left = calls

    def stop(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return method(*arguments, **keywords)

    setattr(owner, name, stop)


MOMENTS: dict[str, Callable[[], None]] = {
    "before the intent": lambda: _stop_before(PostgresStore, "write", calls=2),  # the first takes up the journal
    "before the check": lambda: _stop_before(JournalLedger, "check_sendable", calls=1),
}


async def main(moment: str, seconds: str, url: str, schema: str, sandbox: dict[str, Any]) -> None:
    """Upload, and print how that ended."""
    MOMENTS[moment]()
    async with (
        SharedState.open(url, schema=schema) as state,
        Session(
            UserCredentials(**sandbox["credentials"]),
            endpoints=Endpoints(base_url=sandbox["base_url"], ads_url=sandbox["ads_url"]),
            clock=StoppableClock(Path(seconds)),
        ) as session,
    ):
        users = session.account(sandbox["account_id"]).custom_audience(sandbox["audience_id"]).users
        try:
            report = await users.upload([{"email": "a@example.org"}], journal=state.journal("job"), retry_delays=[0])
        except BatchError as error:
            print(type(error.__cause__).__name__, error.report.in_doubt, flush=True)  # noqa: T201 - a worker speaks so
        else:
            print("accepted", report.accepted, flush=True)  # noqa: T201 - likewise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], json.loads(sys.argv[5])))
