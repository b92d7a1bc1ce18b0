"""Creates the schema, and changes it from version to version.

Every client knows the versions up to its own. Opening a database applies those that are missing, in one transaction and
one process at a time. A schema that is newer than the client is refused: its tables may mean something else. So is one
of which a version was created by other statements, as its checksum tells: until a release, a version may still change.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

import attrs

from svc_async.errors import Hint, UnusableState
from svc_async.store.postgres import Database

if TYPE_CHECKING:
    import asyncpg

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
        """Return its statements."""
        folder = files("svc_async.state.schema")
        return "\n".join(folder.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in self.files)

    def compute_checksum(self) -> str:
        """Return the SHA-256 of its statements."""
        return sha256(self.read().encode()).hexdigest()


_MIGRATIONS = (_Migration(1, ("limits", "records", "events")),)
LATEST = _MIGRATIONS[-1].version
_APPLIED = "SELECT version, to_jsonb(each) ->> 'checksum' AS checksum FROM schema_version AS each ORDER BY version"
"""The versions that were applied. The first tables had no checksums: reading one as JSON gives null there."""


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
        UnusableState: a version was created by other statements than this client's.
    """
    if await database.fetch_row("SELECT 1 WHERE to_regclass($1) IS NULL", f"{database.schema}.schema_version"):
        return 0
    return _check_applied(database, await database.fetch(_APPLIED))


async def migrate(database: Database) -> SchemaState:
    """Create the schema or bring it to the latest version; other processes wait meanwhile.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is newer than this client, or was created by other statements.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found == LATEST:
        return SchemaState(found)
    async with database.transaction(is_long=True) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, database.schema)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version integer PRIMARY KEY, checksum text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        found = _check_applied(database, await connection.fetch(_APPLIED))
        _check_version(database, found)
        missing = [each for each in _MIGRATIONS if each.version > found]
        for migration in missing:
            await connection.execute(migration.read())
            note = "INSERT INTO schema_version (version, checksum) VALUES ($1, $2)"
            await connection.execute(note, migration.version, migration.compute_checksum())
    return SchemaState(found, [migration.version for migration in missing])


async def check_schema(database: Database) -> None:
    """Refuse a schema that is not of the latest version; change nothing.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is missing, older or newer, or was created by other statements.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found < LATEST:
        is_older = "has tables of an earlier version" if found else "has no tables"
        raise UnusableState(database.name, is_older, hint=Hint.MIGRATE)


def _check_applied(database: Database, rows: "Iterable[asyncpg.Record]") -> int:
    """Return the latest of the versions that were applied.

    Raises:
        UnusableState: one of them was created by other statements than this client's.
    """
    checksums = {migration.version: migration.compute_checksum() for migration in _MIGRATIONS}
    latest = 0
    for row in rows:
        latest = row["version"]
        if checksums.get(latest, row["checksum"]) != row["checksum"]:
            problem = "has tables of another build of this SDK, which cannot be migrated"
            remedy = f"drop the schema {database.schema}, or name another one with schema= of SharedState"
            raise UnusableState(database.name, f"{problem}: {remedy}")
    return latest


def _check_version(database: Database, found: int) -> None:
    if found > LATEST:
        raise UnusableState(database.name, "was changed by a newer version of this SDK; install that version")
