"""Follows the statements that a client executes: in files, and in PostgreSQL."""

import sqlite3
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import asyncpg
from asyncpg.pool import Pool

from svc_async.store import postgres
from tests.campaigns.crash.simulated_loop import SimulatedLoop

__all__ = ["watch_files", "watch_postgres"]

_CONNECT = sqlite3.connect
_SHORT_LIMITS = {
    "_SESSION_LIMITS": "SET idle_in_transaction_session_timeout = '300ms'",
    "_TRANSACTION_LIMIT": "3s",
}
"""A client that is stopped within a transaction, or within a statement, holds up the next one for so long."""
_STATEMENTS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")
_EXCHANGES = ("_async__init__", "_acquire", "release", "close")
"""What a pool does with the server besides executing statements."""


def watch_files(loop: SimulatedLoop, on_statement: Callable[[str], object]) -> None:
    """Tell of every statement in a database file that is opened from now on."""

    def connect(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = _CONNECT(*arguments, **keywords)
        connection.set_trace_callback(on_statement)
        loop.databases.append(connection)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]  # in this process only


def watch_postgres(loop: SimulatedLoop, on_statement: Callable[[str], object]) -> None:
    """Tell of every statement that is about to be sent to PostgreSQL; time stands still until it is answered."""
    vars(postgres).update(_SHORT_LIMITS)
    for name in _STATEMENTS:
        setattr(asyncpg.Connection, name, _hold_time(loop, getattr(asyncpg.Connection, name), on_statement))
    for name in _EXCHANGES:
        setattr(Pool, name, _hold_time(loop, getattr(Pool, name), lambda _: None))


def _hold_time(
    loop: SimulatedLoop, method: Callable[..., Awaitable[Any]], on_call: Callable[[str], object]
) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        on_call(str(arguments[0]) if arguments else "")
        loop.statements += 1
        try:
            return await method(self, *arguments, **keywords)
        finally:
            loop.statements -= 1

    return call
