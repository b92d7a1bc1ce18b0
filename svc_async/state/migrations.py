"""Creates the schema, and changes it from version to version.

Every client knows the versions up to its own. Opening a database applies those that are missing, in one transaction and
one process at a time. A schema that is newer than the client is refused: its tables may mean something else. So is one
of which a version was created by other statements, as its checksum tells: until a release, a version may still change.

A schema is refused, too, if another role could have its code executed with the rights of this one: its owner could, and
whoever may create functions in it, which can be a better match than those of the server, or triggers. The functions of
the schema name what they use in full, and have a search path of their own, for whoever else calls them.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

import attrs

from svc_async.errors import Hint, UnusableState
from svc_async.printable import clean
from svc_async.store.postgres import DEFAULT_SCHEMA, Database

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

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

_STRANGERS = """
    WITH RECURSIVE own (role) AS (
        SELECT oid FROM pg_roles WHERE rolname = current_user
        UNION SELECT roleid FROM pg_auth_members JOIN own ON member = own.role
    ), trusted (role) AS (
        SELECT role FROM own
        UNION SELECT oid FROM pg_roles WHERE rolsuper
        UNION SELECT datdba FROM pg_database WHERE datname = current_database()
    ), space AS (
        SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = $1
    ), tables AS (
        SELECT pg_class.oid, relowner, relacl FROM pg_class JOIN space ON relnamespace = space.oid
    ), found (place, role, can) AS (
        SELECT 1, nspowner, 'owns it' FROM space
        UNION SELECT 2, grantee, 'may create objects in it' FROM space, aclexplode(nspacl)
            WHERE privilege_type = 'CREATE'
        UNION SELECT 3, relowner, 'owns an object in it' FROM tables
        UNION SELECT 3, proowner, 'owns an object in it' FROM pg_proc JOIN space ON pronamespace = space.oid
        UNION SELECT 3, typowner, 'owns an object in it' FROM pg_type JOIN space ON typnamespace = space.oid
        UNION SELECT 3, oprowner, 'owns an object in it' FROM pg_operator JOIN space ON oprnamespace = space.oid
        UNION SELECT 4, grantee, 'may add triggers to a table in it' FROM tables, aclexplode(relacl)
            WHERE privilege_type = 'TRIGGER'
        UNION SELECT 5, proowner, 'owns the function of a trigger in it'
            FROM pg_trigger JOIN tables ON tgrelid = tables.oid JOIN pg_proc ON tgfoid = pg_proc.oid
            WHERE NOT tgisinternal
    )
    SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(role) END AS name, can FROM found
    WHERE role NOT IN (SELECT role FROM trusted) ORDER BY place LIMIT 1
"""
"""Who could have code executed, apart from this role, those it is a member of, superusers and the database's owner.

`pg_has_role` is of no use: it says of a superuser that it is a member of every role.
"""


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
        UnusableState: a version was created by other statements than this client's, or the schema is not safe to use.
    """
    async with database.transaction() as connection:
        await _refuse_strangers(connection, database)
    if await database.fetch_row("SELECT 1 WHERE to_regclass($1) IS NULL", f"{database.schema}.schema_version"):
        return 0
    return _check_applied(database, await database.fetch(_APPLIED))


async def migrate(database: Database) -> SchemaState:
    """Create the schema or bring it to the latest version; other processes wait meanwhile.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is newer than this client, was created by other statements, or is not safe to use.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found == LATEST:
        return SchemaState(found)
    async with database.transaction(is_long=True) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, database.schema)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
        await _refuse_strangers(connection, database)  # somebody may have been faster
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(version integer PRIMARY KEY, checksum text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        found = _check_applied(database, await connection.fetch(_APPLIED))
        _check_version(database, found)
        missing = [each for each in _MIGRATIONS if each.version > found]
        for migration in missing:
            await connection.execute(migration.read().replace(f"{DEFAULT_SCHEMA}.", f"{database.schema}."))
            note = "INSERT INTO schema_version (version, checksum) VALUES ($1, $2)"
            await connection.execute(note, migration.version, migration.compute_checksum())
    return SchemaState(found, [migration.version for migration in missing])


async def check_schema(database: Database) -> None:
    """Refuse a schema that is not of the latest version; change nothing.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnusableState: the schema is missing, older, newer or not safe to use, or was created by other statements.
    """
    found = await read_version(database)
    _check_version(database, found)
    if found < LATEST:
        is_older = "has tables of an earlier version" if found else "has no tables"
        raise UnusableState(database.name, is_older, hint=Hint.MIGRATE)


async def _refuse_strangers(connection: "Connection", database: Database) -> None:
    """Refuse a schema in which a role that is not trusted could have code executed; use no name of it for that.

    Raises:
        UnusableState: there is such a role.
    """
    await connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
    stranger = await connection.fetchrow(_STRANGERS, database.schema)
    await connection.execute("SET LOCAL search_path TO DEFAULT")
    if stranger is not None:
        problem = f"has a schema {database.schema} that is not safe to use: {clean(stranger['name'])} {stranger['can']}"
        remedy = "change that, or name another schema with schema= of SharedState (docs/how-to-share-state.md)"
        raise UnusableState(database.name, f"{problem}; {remedy}")


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
