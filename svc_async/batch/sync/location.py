"""Where the state of a list is kept: in a file, or where several processes have access to it."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from svc_async.batch.sync.pages.file import StateFile
from svc_async.batch.sync.pages.tables import StateTables
from svc_async.batch.sync.state import SyncState
from svc_async.errors import InvalidArgument

__all__ = ["SharedSyncs", "StateLocation", "check_shared", "open_sync_state"]


class SharedSyncs(Protocol):
    """The states of any number of lists; a `SharedState` is one."""

    def open_sync_tables(self, target: str) -> AbstractAsyncContextManager[StateTables]:
        """Take up the state of a list; who has used it before can write nothing more of it.

        Args:
            target: the list and its host.
        """
        ...


StateLocation = str | Path | SharedSyncs
"""The path of a file, one for each list; or the shared state, which has all of them."""


def check_shared(location: StateLocation) -> None:
    """Check that a state is shared, as that of a sync on a cluster: a later one may begin on another machine.

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
    tables = StateFile(Path(location)) if isinstance(location, str | Path) else location.open_sync_tables(target)
    async with tables as opened, SyncState(opened, target=target) as state:
        yield state
