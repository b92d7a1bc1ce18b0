"""Rows of the usual synchronous drivers, whose queries take long: the event loop goes on meanwhile."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from svc_async.lists.audience_users import AudienceUsers
from svc_async.sources.rows import from_cursor
from tests.support.fake_service import FakeService
from tests.support.tasks import wait_until

pytestmark = pytest.mark.long("needs the drivers, which the group `test-long` brings")

QUERY = "SELECT pause() || 'user' || value || '@example.org' AS email FROM numbers"


class Gate:
    """What a query waits for: until the event loop has seen that it runs.

    Attributes:
        asked: whether it runs.
        opened: whether the loop has seen that.
    """

    def __init__(self) -> None:
        self.asked, self.opened = threading.Event(), threading.Event()

    def pause(self) -> str:
        self.asked.set()
        assert self.opened.wait(30)
        return ""


def connect_sqlite(gate: Gate, path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    database.create_function("pause", 0, gate.pause)
    database.execute("CREATE TABLE numbers AS SELECT 1 AS value UNION SELECT 2 UNION SELECT 3")
    return database


@contextmanager
def query_sqlite(gate: Gate, folder: Path) -> Iterator[Any]:
    with closing(connect_sqlite(gate, folder / "shop.db")) as database:
        gate.opened.set()  # `execute` looks for the first row
        found = database.execute(QUERY)
        gate.opened.clear()
        gate.asked.clear()
        yield from_cursor(found)


@contextmanager
def query_generator(gate: Gate, folder: Path) -> Iterator[Any]:
    with closing(connect_sqlite(gate, folder / "shop.db")) as database:
        yield ({"email": email} for _ in range(1) for (email,) in database.execute(QUERY))


@contextmanager
def query_sqlalchemy(gate: Gate, folder: Path) -> Iterator[Any]:
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - the group `test-long` brings it
    from sqlalchemy.pool import StaticPool  # noqa: PLC0415 - the group `test-long` brings it

    engine = create_engine("sqlite://", creator=lambda: connect_sqlite(gate, folder / "shop.db"), poolclass=StaticPool)
    with engine.connect() as connection:
        yield (dict(row) for _ in range(1) for row in connection.execute(text(QUERY)).mappings())
    engine.dispose()


def connect_duckdb(gate: Gate) -> Any:
    import duckdb  # noqa: PLC0415 - the group `test-long` brings it

    database = duckdb.connect()
    database.create_function("pause", lambda number: gate.pause() or number, ["BIGINT"], "BIGINT", side_effects=True)
    return database


_DUCKDB = "SELECT 'user' || pause(range) || '@example.org' AS email FROM range(3) ORDER BY range"


@contextmanager
def query_duckdb(gate: Gate, _: Path) -> Iterator[Any]:
    with closing(connect_duckdb(gate)) as database:
        yield database.sql(_DUCKDB)


@contextmanager
def stream_duckdb(gate: Gate, _: Path) -> Iterator[Any]:
    with closing(connect_duckdb(gate)) as database:
        yield ({"email": email} for _ in range(1) for (email,) in database.execute(_DUCKDB).fetchall())


SOURCES: list[Callable[[Gate, Path], Any]] = [
    query_sqlite,
    query_generator,
    query_sqlalchemy,
    query_duckdb,
    stream_duckdb,
]


@pytest.mark.parametrize("query", SOURCES)
async def test_the_loop_goes_on_while_a_query_runs(query: Callable[[Gate, Path], Any], tmp_path: Path) -> None:
    gate, service = Gate(), FakeService()
    with query(gate, tmp_path) as rows:
        task = asyncio.create_task(AudienceUsers(service.pipeline, "a1", "c1").upload(rows))
        await wait_until(gate.asked.is_set)
        gate.opened.set()
        assert (await task).accepted == 3


async def test_the_loop_goes_on_while_psycopg_fetches(postgres_url: str) -> None:
    import psycopg  # noqa: PLC0415 - the group `test-long` brings it

    service = FakeService()
    query = "SELECT 'user' || n || '@example.org' || pg_advisory_lock(28) AS email FROM generate_series(1, 3) AS n"
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        psycopg.connect(postgres_url) as holder,
        psycopg.connect(postgres_url) as database,
        database.cursor("customers") as found,  # with a name, it fetches its rows while they are read
    ):
        holder.execute("SELECT pg_advisory_lock(28)")
        found.execute(query)
        task = asyncio.create_task(AudienceUsers(service.pipeline, "a1", "c1").upload(from_cursor(found)))
        await wait_until(lambda: holder.execute(waiting).fetchone() == (1,))
        holder.execute("SELECT pg_advisory_unlock(28)")
        assert (await task).accepted == 3


_DJANGO = """
import asyncio
import sys
import threading

import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
django.setup()

from django.db import connection, models
from django.db.backends.signals import connection_created

from svc_async.lists.audience_users import AudienceUsers
from tests.support.fake_service import FakeService
from tests.support.tasks import wait_until

asked, opened = threading.Event(), threading.Event()


class Customer(models.Model):
    email = models.TextField()

    class Meta:
        app_label = "shop"


def pause():
    asked.set()
    assert opened.wait(30)
    return 1


connection_created.connect(lambda connection, **_: connection.connection.create_function("pause", 0, pause), weak=False)
with connection.schema_editor() as editor:
    editor.create_model(Customer)
Customer.objects.bulk_create(Customer(email=f"user{number}@example.org") for number in range(3))


async def main():
    slow = Customer.objects.extra(where=["pause()"]).order_by("pk").values("email")
    task = asyncio.create_task(AudienceUsers(FakeService().pipeline, "a1", "c1").upload(slow.iterator()))
    await wait_until(asked.is_set)
    opened.set()
    print((await task).accepted)


asyncio.run(main())
"""


def test_the_loop_goes_on_while_django_reads_a_query_set(tmp_path: Path) -> None:
    """Django refuses a query in the thread of an event loop."""
    command = [sys.executable, "-c", _DJANGO, str(tmp_path / "shop.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3\n", "")
