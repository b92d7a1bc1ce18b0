"""Creates the schema, and changes it from version to version.

Every client knows the versions up to its own. Opening a database applies those that are missing, in one transaction and
one process at a time. A schema that is newer than the client is refused: its tables may mean something else.
"""

from collections.abc import Sequence
from importlib.resources import files

import attrs

from svc_async.state.database import Database
from svc_async.state.errors import UnusableState

__all__ = ["LATEST", "SchemaState", "check_schema", "migrate", "read_version"]

_LOCK = 0x73766361
"""Identifies the advisory lock of a migration among those of the database."""


@attrs.frozen
class _Migration:
    """One step from a version of the schema to the next.

    Attributes:
        version: the version after it.
        files: the files with its statements, in `schema/`.
    """

    version: int
    files: Sequence[str]

    def read(self) -> str:
        """Return its statements, with the one that notes the version."""
        folder = files("svc_async.state.schema")
        texts = [folder.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in self.files]
        note = f"INSERT INTO schema_version (version) VALUES ({self.version});"  # noqa: S608 - our own number
        return "\n".join([*texts, note])


_MIGRATIONS = (_Migration(1, ("limits", "journals", "syncs", "events", "jobs")),)
LATEST = _MIGRATIONS[-1].version


@attrs.frozen
class SchemaState:
    """The version of a schema.

    Attributes:
        found: the version in the database; 0 if there is no schema.
        applied: the versions that a migration has just added.
    """

    found: int
    applied: Sequence[int] = ()


async def read_version(database: Database) -> int:
    """Return the version of the schema; 0 if there is none.

    Raises:
        StateUnavailable: the database cannot be reached.
    """
    if await database.fetch_row("SELECT 1 WHERE to_regclass($1) IS NULL", f"{database.schema}.schema_version"):
        return 0
    row = await database.fetch_row("SELECT max(version) AS version FROM schema_version")
    return 0 if row is None or row["version"] is None else int(row["version"])


async def migrate(database: Database) -> SchemaState:
    """Create the schema or bring it to the latest version; other processes wait meanwhile.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is newer than this client.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found == LATEST:
        return SchemaState(found)
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, database.schema)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        found = int(await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_version"))
        _check_version(database, found)
        missing = [each for each in _MIGRATIONS if each.version > found]
        for migration in missing:
            await connection.execute(migration.read())
    return SchemaState(found, [migration.version for migration in missing])


async def check_schema(database: Database) -> None:
    """Refuse a schema that is not of the latest version; change nothing.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is missing, older or newer.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found < LATEST:
        is_older = "has tables of an earlier version" if found else "has no tables"
        raise UnusableState(database.name, f"{is_older}: run `svc-async state migrate` as a role that may create them")


def _check_version(database: Database, found: int) -> None:
    if found > LATEST:
        raise UnusableState(database.name, "was changed by a newer version of this SDK; install that version")
