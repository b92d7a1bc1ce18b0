"""Uploads rows to the service under test, in a process that is killed. `without` removes what protects the rows."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async import Endpoints, Governor, Retries, Session, Timeouts, UserCredentials
from svc_async.batch.destination import Verdict
from svc_async.batch.journal.ledger import LedgerFactory, create_ledger
from svc_async.batch.lane import Lane
from svc_async.batch.lane_events import Command, Event, Resumed
from svc_async.batch.lists.destination import ListDestination
from svc_async.batch.packing.limits import Limits
from svc_async.governor.limits import LIMITS, change_limit

__all__ = ["Order", "make_rows"]

_CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="ts")

_HANDLE = Lane.handle


@attrs.frozen(kw_only=True)
class Order:
    """What a client does.

    Attributes:
        die_at: the commit of the journal at which it kills itself; 0 for never.
        die_after: after the commit, not before it.
        without: `lanes`, `counts`, `quarantine` or `wait`; empty for none.
    """

    address: str
    journal: str | None
    seed: int
    rows: int = 1500
    keys: int = 400
    quarantine: float = 0.4
    die_at: int = 0
    die_after: bool = False
    without: str = ""


def make_rows(seed: int, rows: int, keys: int) -> list[Mapping[str, str]]:
    """Return the rows; no value comes twice."""
    dice = random.Random(seed)
    return [{"partner_user_id": f"p{dice.randrange(keys)}", "svc_id": str(number)} for number in range(rows)]


async def upload(order: Order) -> Mapping[str, Any]:
    endpoints = Endpoints(base_url=order.address, ads_url=order.address)
    limits = change_limit(LIMITS, "ads.audience_users", requests=1_000_000)
    async with Session(
        _CREDENTIALS,
        endpoints=endpoints,
        governor=Governor(limits=limits),
        retries=Retries.none(),
        timeouts=Timeouts(total=0.3),
    ) as session:
        users = attrs.evolve(
            session.account("a").custom_audience("c").users,
            limits=Limits(operations=12),
            create_ledger=_create_dying_ledgers(order.die_at, after=order.die_after),
        )
        report = await users.upload(
            make_rows(order.seed, order.rows, order.keys),
            journal=None if order.journal is None else Path(order.journal),
            concurrency=4,
            users_per_operation=2,
            ordering="none" if order.without == "lanes" else "key",
            quarantine=0 if order.without == "quarantine" else order.quarantine,
            retry_delays=[0.01] * 100,
        )
        return report.as_dict()


def prepare(order: Order) -> None:
    """Remove protection."""
    if order.without == "counts":
        ListDestination.evaluate = lambda *_: Verdict()  # type: ignore[method-assign]  # a control
    if order.without == "wait":
        Lane.handle = _handle_at_once  # type: ignore[method-assign,assignment]  # a control


def _create_dying_ledgers(commit: int, *, after: bool) -> LedgerFactory:
    class Connection(sqlite3.Connection):
        commits = -2  # two commits open a journal

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super().execute(sql, parameters)
            self.commits += 1
            is_last = commit > 0 and self.commits == commit
            if is_last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            cursor = super().execute(sql)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return cursor

    return partial(create_ledger, factory=Connection)


def _handle_at_once(lane: Lane, event: Event) -> Command | None:
    return _HANDLE(lane, attrs.evolve(event, pause=0.0) if isinstance(event, Resumed) else event)


if __name__ == "__main__":
    ordered = Order(**json.loads(sys.argv[1]))
    prepare(ordered)
    sys.stdout.write(json.dumps(asyncio.run(upload(ordered))))
