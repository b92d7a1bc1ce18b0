"""The function `lease` of the database at times that a test chooses."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from svc_async.state.limits.holding import Lease, LeaseRequest
from svc_async.state.limits.postgres_leases import PARAMETERS, list_arguments, parse_lease
from tests.campaigns.limits.simulation import LeaseFunction

if TYPE_CHECKING:
    from svc_async.store.postgres import Connection

__all__ = ["lease_by_function"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATEMENT = f"SELECT * FROM lease({', '.join(f'${number + 1}' for number in range(len(PARAMETERS) + 1))})"  # noqa: S608 - no text from outside


def lease_by_function(connection: "Connection") -> LeaseFunction:
    """Return the function, called over one connection."""

    async def lease(request: LeaseRequest, at: int) -> Lease:
        row = await connection.fetchrow(_STATEMENT, *list_arguments(request), _EPOCH + timedelta(microseconds=at))
        assert row is not None
        return parse_lease(row)

    return lease
