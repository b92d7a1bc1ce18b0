"""Snapshots of whole numbers for tests of sync states: a row is a key and a content."""

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.plan import Plan, Stage
from svc_async.store.file import FileLocation
from svc_async.sync.entries import Entries, Removal, SelectRows
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import FORMAT, SyncState

__all__ = [
    "EVERYWHERE",
    "HASHED",
    "NAMED",
    "NOW",
    "YEAR",
    "OpenState",
    "Snapshot",
    "compare",
    "find_none",
    "key_of",
    "list_removals",
    "make_entries",
    "name_of",
    "open_file",
    "read_rows",
    "sync",
]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
HASHED, NAMED = 2, 6

Snapshot = Mapping[int, int] | Sequence[tuple[int, int] | None]
"""Contents by key; or pairs in which a key may come several times, and None for an invalid row."""


OpenState = Callable[..., AbstractAsyncContextManager[SyncState]]
"""Opens the state of a list; `target` names the list."""


def make_entries(
    rows: Iterable[tuple[int, int] | None], *, first: int = 0, kind: int = HASHED, linked: bool = False
) -> Entries:
    """Return some rows, of which the first has this position."""
    placed = [(position, row) for position, row in enumerate(rows, first)]
    valid = [(position, row) for position, row in placed if row is not None]
    keys = [key for _, (key, _) in valid]
    return Entries(
        positions=[position for position, _ in valid],
        ids=b"".join(key_of(key) + content.to_bytes(8, "big") for _, (key, content) in valid),
        kinds=bytes([kind]) * len(valid),
        rests=b"".join(key.to_bytes(16, "big") for key in keys),
        names=[b"%d" % key for key in keys] if kind == NAMED else (),
        invalid_rows=[position for position, row in placed if row is None],
        size=10 * len(valid),
        is_linked=linked,
    )


def key_of(key: int) -> bytes:
    """Return the key of a row; its first bytes differ, so that rows are spread over pages."""
    return (key * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") + key.to_bytes(8, "big")


def name_of(removal: Removal) -> int:
    """Return the number of the row that is removed."""
    return int(removal.name) if removal.kind == NAMED else int.from_bytes(removal.name[16:], "big")


EVERYWHERE = pytest.mark.parametrize("location", ["state_path", "shared_state"], indirect=True)
"""Has a test keep its state in a file and in PostgreSQL, also if it is short."""


class UnsyncedConnection(sqlite3.Connection):
    """Does not wait for the disk: what it wrote survives the end of a process all the same."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in sql else sql, parameters)


@asynccontextmanager
async def open_file(
    path: Path, *, target: str = "a", factory: type[sqlite3.Connection] = sqlite3.Connection
) -> AsyncGenerator[SyncState]:
    """Open the state of a list in a file."""
    location = FileLocation(path, FORMAT, factory)
    _, store = await location.open(lambda _: (None, {}), kinds=())
    try:
        async with SyncState(store, location, target=target, folder=path.parent) as state:
            yield state
    finally:
        await store.close()


async def list_removals(state: SyncState, stage: Stage = "now") -> list[Removal]:
    """Return the rows that are removed in a stage."""
    return [removal async for removals in state.removals(stage) for removal in removals]


async def read_rows(snapshot: Snapshot, *, slice_rows: int = 2, **how: Any) -> AsyncIterator[Entries]:
    """Read a snapshot."""
    rows = list(snapshot.items()) if isinstance(snapshot, Mapping) else list(snapshot)
    for first in range(0, len(rows), slice_rows):
        yield make_entries(rows[first : first + slice_rows], first=first, **how)


def find_none(removals: Sequence[Removal], select: SelectRows) -> Iterator[int]:
    """Find no rows that the removal of others removes as well."""
    del removals, select
    return iter(())


async def compare(
    state: SyncState,
    snapshot: Snapshot,
    *,
    now: datetime = NOW,
    soon: timedelta = timedelta(days=30),
    monotonic: float = 1_000.0,
    boot: str | None = None,
    quarantine: float = 0.0,
    replace: bool = False,
    **how: Any,
) -> Plan:
    """Compare a snapshot with a state."""
    return await state.compare(
        read_rows(snapshot, **how),
        now=ClockReading(now, monotonic, boot),
        find_linked=find_none,
        soon=now + soon,
        quarantine=quarantine,
        replace=replace,
    )


async def sync(state: SyncState, snapshot: Snapshot, *, now: datetime = NOW, **how: Any) -> Plan:
    """Run a whole sync in which every row is accepted."""
    plan = await compare(state, snapshot, now=now, **how)
    await state.begin(expires=now + YEAR)
    state.record_accepted("removals", range(plan.all_removals))
    state.record_accepted("upserts", range(plan.upserts))
    await state.settle()
    return plan
