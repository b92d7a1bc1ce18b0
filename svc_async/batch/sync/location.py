"""Where the state of a list is kept: in a file, or where several processes have access to it."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from svc_async.batch.sync.state import SyncState
from svc_async.errors import InvalidArgument
from svc_async.store.file import FileFormat, FileLocation
from svc_async.store.records import RecordLocation
from svc_async.value_rules import ValueRule, has_members

__all__ = ["FORMAT", "SharedSyncs", "StateLocation", "check_location", "check_shared", "open_sync_state"]


FORMAT = FileFormat(
    kind="a sync state",
    parameter="state",
    application_id=0x73766373,
    version=6,
    has_log=False,  # a transaction may be as large as the file
    shrinks=True,
    in_memory="the next sync needs it",
    advice="without it, the next sync sends all rows and removes none: move the file away",
)


class SharedSyncs(Protocol):
    """The states of any number of lists; a `SharedState` is one."""

    def open_sync_tables(self, target: str) -> RecordLocation:
        """Return where the state of a list is kept.

        Args:
            target: the list and its host.
        """
        ...


StateLocation = str | Path | SharedSyncs
"""The path of a file, one for each list; or the shared state, which has all of them."""


_IS_SHARED = has_members("a shared state", "open_sync_tables")
_STATE = ValueRule(
    lambda value: isinstance(value, str | Path) or _IS_SHARED.accepts(value),
    "the path of a file or a shared state, such as SharedState.open(url)",
)


def check_location(location: Any) -> StateLocation:
    """Check what a sync is given as its state, before it reads its source, and return it.

    Raises:
        InvalidArgument: it is neither the path of a file nor a shared state, or no file can have the path.
    """
    _STATE.check("state", location)
    if isinstance(location, str | Path):
        FORMAT.check_path(location)
    found: StateLocation = location
    return found


def check_shared(location: object) -> None:
    """Check that the state of a sync on a cluster is shared: a later sync may begin on another machine.

    Raises:
        InvalidArgument: it is in a file.
    """
    if isinstance(location, str | Path):
        raise InvalidArgument("state", "must be the shared state where cluster= is given: SharedState.open()")


@asynccontextmanager
async def open_sync_state(location: StateLocation, target: str) -> AsyncGenerator[SyncState]:
    """Open the state of a list; it is created if there is none.

    Args:
        location: where it is.
        target: the list and its host.

    Raises:
        UnusableFile: the file belongs to another list, is locked, or cannot be used.
        SvcError: the shared state cannot be used.
    """
    place: RecordLocation
    if isinstance(location, str | Path):
        place, folder = FileLocation(Path(location), FORMAT), Path(location).parent
    else:
        place, folder = location.open_sync_tables(target), Path(tempfile.gettempdir())
    _, store = await place.open(lambda _: (None, {}), kinds=())
    try:
        async with SyncState(store, place, target=target, folder=folder) as state:
            yield state
    finally:
        await store.close()
