"""A schema in which another role could have code executed with the rights of this one is not used."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import attrs
import pytest

from svc_async.errors import InvalidArgument, UnusableState
from svc_async.state import SharedState
from svc_async.state.migrations import LATEST
from tests.support.errors import has
from tests.support.postgres import create_database


@attrs.frozen
class Roles:
    """Two roles of a database, that a superuser owns.

    Attributes:
        url: the URL of the database, for the superuser.
        own: the role that opens the state.
        other: one that it has nothing to do with.
    """

    url: str
    own: str
    other: str

    def open(self, role: str | None = None, *, migrate: bool = True) -> SharedState:
        """Return the state of the database, opened by a role."""
        return SharedState.open(self.name_role(role or self.own), migrate=migrate)

    def name_role(self, role: str) -> str:
        """Return the URL for a role."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()

    async def execute(self, statements: str, role: str | None = None) -> None:
        """Execute statements as a role, or as the superuser."""
        connection = await asyncpg.connect(self.url if role is None else self.name_role(role))
        try:
            await connection.execute(statements.format(own=self.own, other=self.other))
        finally:
            await connection.close()


@pytest.fixture
async def roles(postgres_url: str) -> AsyncIterator[Roles]:
    own, other = (f"svc_test_{uuid4().hex}" for _ in range(2))
    async with create_database(postgres_url) as url:
        found = Roles(url, own, other)
        await found.execute("CREATE ROLE {own} LOGIN; CREATE ROLE {other} LOGIN")
        await found.execute(f"GRANT CREATE ON DATABASE {urlsplit(url).path[1:]} TO {{own}}, {{other}}")
        yield found
        await found.execute("DROP OWNED BY {own}, {other} CASCADE; DROP ROLE {own}, {other}")


LOOT = """
    CREATE TABLE svc_async.loot (who text);
    GRANT ALL ON svc_async.loot TO PUBLIC;
    CREATE FUNCTION svc_async.steal(uuid[], uuid) RETURNS uuid[] LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO svc_async.loot VALUES (current_user); RETURN $1 || $2; END $$;
    CREATE AGGREGATE svc_async.array_agg(uuid) (sfunc = svc_async.steal, stype = uuid[]);
"""
"""An exact match of types is better than the aggregate of the server, wherever it is in the search path."""


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_schema_that_another_role_has_made_is_refused(roles: Roles, migrate: bool) -> None:
    await roles.execute("CREATE SCHEMA svc_async; GRANT ALL ON SCHEMA svc_async TO PUBLIC;" + LOOT, roles.other)

    with pytest.raises(UnusableState) as caught:
        async with roles.open(migrate=migrate):
            pass

    assert roles.other in caught.value.problem


async def test_a_superuser_refuses_the_schema_of_a_role_without_its_rights(roles: Roles) -> None:
    await roles.execute("CREATE SCHEMA svc_async", roles.other)
    with pytest.raises(UnusableState):
        async with SharedState.open(roles.url):
            pass


@pytest.mark.parametrize(
    "statements",
    [
        "GRANT CREATE ON SCHEMA svc_async TO PUBLIC",
        "GRANT TRIGGER ON svc_async.stores TO {other}",
        "CREATE TABLE svc_async.more (); ALTER TABLE svc_async.more OWNER TO {other}",
        "GRANT CREATE ON SCHEMA svc_async TO {other}",
        "ALTER TABLE svc_async.records OWNER TO {other}",
        "ALTER FUNCTION svc_async.hold_store OWNER TO {other}",
        "CREATE TYPE svc_async.more AS ENUM (); ALTER TYPE svc_async.more OWNER TO {other}",
        """
        CREATE FUNCTION public.run() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
        ALTER FUNCTION public.run OWNER TO {other};
        CREATE TRIGGER more BEFORE INSERT ON svc_async.stores FOR EACH ROW EXECUTE FUNCTION public.run()
        """,
        "ALTER SCHEMA svc_async OWNER TO {other}",
    ],
)
async def test_a_schema_into_which_another_role_could_put_code_is_refused(roles: Roles, statements: str) -> None:
    async with roles.open():
        pass
    await roles.execute(statements)
    for migrate in (True, False):
        with pytest.raises(UnusableState):
            async with roles.open(migrate=migrate):
                pass


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE SCHEMA svc_async AUTHORIZATION {own}",
        "CREATE SCHEMA svc_async; GRANT ALL ON SCHEMA svc_async TO {own}",  # of a superuser, who owns the database
        "GRANT {other} TO {own}; CREATE SCHEMA svc_async AUTHORIZATION {other}",
    ],
)
async def test_the_schema_may_belong_to_whoever_has_the_same_rights_or_more(roles: Roles, statements: str) -> None:
    await roles.execute(statements)
    async with roles.open() as state:
        assert state.migrated == [*range(1, LATEST + 1)]


async def test_other_roles_may_read_and_write_the_tables(roles: Roles) -> None:
    async with roles.open() as state:
        await state.database.execute(f"GRANT USAGE ON SCHEMA svc_async TO {roles.other}")
        await state.database.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA svc_async TO {roles.other}"
        )
    async with roles.open():
        pass


async def test_functions_use_nothing_that_was_put_beside_them(roles: Roles) -> None:
    async with roles.open() as state:
        await roles.execute("GRANT CREATE, USAGE ON SCHEMA svc_async TO {other}")
        await roles.execute(LOOT, roles.other)
        async with state.events() as events:
            await events.claim("1")
        assert not await state.database.fetch("SELECT FROM svc_async.loot")


async def test_functions_that_use_tables_have_a_search_path_of_their_own(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state:
        found = await state.database.fetch(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = $1::regnamespace AND provolatile = 'v'", schema
        )
    assert len(found) > 10
    assert {tuple(each["proconfig"]) for each in found} == {("search_path=pg_catalog, pg_temp",)}


@pytest.mark.parametrize("schema", ["public", "information_schema", "pg_catalog", "pg_temp", "pg_toast"])
async def test_a_schema_that_is_shared_is_refused(schema: str, postgres_url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="schema")):
        async with SharedState.open(postgres_url, schema=schema):
            pass
