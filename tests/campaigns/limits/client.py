"""One process that shares a limit and sends as much as it may: `python -m tests.campaigns.limits.client SETTINGS`.

It says `ready` once it has imported everything, and begins when it is told until when to send.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from svc_async import Endpoints, Governor, Retries, Session, UserCredentials
from svc_async.errors import StateUnavailable, SvcError
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.state import SharedState

_SENDERS = 8
_OPERATIONS = [{"operation_type": "Update", "params": {"users": [{"email": ["0" * 64]}]}}]


async def main(settings: Mapping[str, Any]) -> None:
    """Send until the time is over; a database that is away at the start is waited for."""
    while time.time() < settings["until"]:
        try:
            async with SharedState.open(settings["state"], schema=settings["schema"]) as state:
                await _send_until(state, settings)
        except StateUnavailable:
            await asyncio.sleep(0.2)


async def _send_until(state: SharedState, settings: Mapping[str, Any]) -> None:
    limits = change_limit(LIMITS, "ads.audience_users", requests=settings["limit"], period=settings["period"])
    async with (
        Governor(limits=limits, headroom=settings["headroom"], max_wait=None, windows=state.windows()) as governor,
        Session(
            UserCredentials(**settings["credentials"]),
            endpoints=Endpoints(**settings["endpoints"]),
            governor=governor,
            state=state,
            retries=Retries(attempts=1),
        ) as session,
    ):
        users = session.account(settings["account"]).custom_audience(settings["audience"]).users

        async def keep_sending() -> None:
            while time.time() < settings["until"]:
                try:
                    await users.send(_OPERATIONS)
                except SvcError as error:
                    sys.stderr.write(f"{error}\n")

        await asyncio.gather(*(keep_sending() for _ in range(_SENDERS)))


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asyncio.run(main({**json.loads(sys.argv[1]), "until": float(sys.stdin.readline())}))
