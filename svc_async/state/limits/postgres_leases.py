"""Leases from PostgreSQL: one call of the function `lease` each."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from svc_async.errors import Hint, UnusableState
from svc_async.state.limits.holding import Lease, LeaseRequest
from svc_async.store.postgres import Database

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PARAMETERS", "fetch_lease", "list_arguments", "parse_lease"]

PARAMETERS: Mapping[str, str] = {
    "p_bucket": "uuid",
    "p_name": "text",
    "p_quota": "bigint",
    "p_period": "bigint",
    "p_headroom": "bigint",
    "p_documented": "boolean",
    "p_process": "uuid",
    "p_interactive": "bigint",
    "p_bulk": "bigint",
    "p_outstanding": "bigint",
    "p_answered": "bigint",
    "p_ages": "bigint[]",
    "p_counts": "bigint[]",
    "p_generation": "bigint",
    "p_succeeded": "bigint",
    "p_silent": "bigint",
    "p_retires_guess": "boolean",
    "p_said_quota": "bigint",
    "p_said_remaining": "bigint",
    "p_said_reset": "bigint",
    "p_said_reset_in": "bigint",
    "p_refused": "bigint",
    "p_closed_for": "bigint",
    "p_jitter": "bigint",
}  # fmt: skip - as the function has them
"""The parameters of the function, with their types; the time is not among them: it is that of the server."""
_STATEMENT = f"SELECT * FROM lease({', '.join(f'${number + 1}' for number in range(len(PARAMETERS)))})"  # noqa: S608 - no text from outside


async def fetch_lease(connect: Callable[[], Awaitable[Database]], request: LeaseRequest) -> Lease:
    """Return what is granted from the tables of a shared state.

    Raises:
        StateUnavailable: the database cannot be reached.
        WrongState: the shared state is not open.
        UnusableState: the function answered nothing.
    """
    database = await connect()
    row = await database.fetch_row_often(_STATEMENT, *list_arguments(request))
    if row is None:
        raise UnusableState(database.name, "grants no leases", hint=Hint.READ_THE_LOG)
    return parse_lease(row)


def list_arguments(request: LeaseRequest) -> tuple[object, ...]:
    """Return the arguments of the function."""
    limit, report = request.limit, request.report
    return (
        limit.bucket,
        limit.name,
        limit.limit,
        limit.period,
        limit.headroom,
        limit.documented,
        request.process,
        request.interactive,
        request.bulk,
        report.outstanding,
        report.answered,
        [*report.ages],
        [*report.counts],
        report.generation,
        report.succeeded,
        report.silent,
        report.retires_guess,
        report.limit,
        report.remaining,
        report.reset,
        report.reset_in,
        report.refused,
        report.closed_for,
        report.jitter,
    )  # fmt: skip - as the parameters of the function


def parse_lease(row: "asyncpg.Record") -> Lease:
    """Return what the function answered."""
    return Lease(
        granted=row["granted"],
        ask_in=row["ask_in"],
        opens_in=row["opens_in"],
        closed_for=row["closed_for"],
        firm_for=row["firm_for"],
        generation=row["generation"],
        allowed=row["allowed"],
        limit=row["quota"],
        period=row["period"],
        is_guess=row["is_guess"],
        remaining=row["remaining"],
        used=row["used"],
        processes=row["processes"],
    )
