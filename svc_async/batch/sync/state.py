"""What a list held last time, in one SQLite file, so that only what changed need be sent.

    whole snapshot → compare → Plan → leaving rows are removed → coming rows are sent → settle

A row is known by a key of 64 bits. Of each row that was accepted the file has the key, what a removal needs to name it,
a digest of its content and when it expires. A snapshot is sorted by key on disk and compared in one pass, so memory
stays flat whatever its size.

The file learns of a row's fate only from what was accepted. The plan is in it before anything is sent; a run that was
killed leaves rows in doubt (without a content), which are sent again when they are in the next snapshot and removed
when they are not. So a kill at any instant costs requests, never a wrong list.
"""

import asyncio
import sqlite3
from array import array
from collections.abc import AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, TypeVar

import attrs

from svc_async.errors import InvalidArgument

__all__ = ["Entries", "Plan", "Snapshots"]

T = TypeVar("T")
Way = Literal["leaving", "coming"]

_APPLICATION = 0x73766373
_VERSION = 1
_WINDOW = 4_096
_ACCEPTED, _FAILED = 1, 0
_SCHEMA = """
    CREATE TABLE about (target TEXT NOT NULL, expires INTEGER);
    CREATE TABLE held (
        key INTEGER PRIMARY KEY, name BLOB NOT NULL, service_key TEXT, content INTEGER, expires INTEGER
    );
    CREATE TABLE leaving (ordinal INTEGER PRIMARY KEY, key INTEGER NOT NULL, name BLOB NOT NULL, service_key TEXT);
    CREATE TABLE coming (
        ordinal INTEGER PRIMARY KEY, position INTEGER NOT NULL,
        key INTEGER, name BLOB, content INTEGER, why TEXT NOT NULL
    );
    CREATE TABLE told (way TEXT NOT NULL, outcome INTEGER NOT NULL, ordinals BLOB NOT NULL);
    CREATE TABLE made (key INTEGER PRIMARY KEY, service_key TEXT NOT NULL);
"""
_SORTED = """
    INSERT INTO latest SELECT key, max(position), name, content FROM snapshot WHERE key IS NOT NULL
    GROUP BY key ORDER BY key
"""
_COMING = """
    INSERT INTO coming (position, key, name, content, why)
    SELECT position, key, name, content, why FROM (
        SELECT l.position, l.key, l.name, l.content, CASE
            WHEN h.content IS NULL THEN 'addition' WHEN h.content != l.content THEN 'change' ELSE 'refresh' END AS why
        FROM latest l LEFT JOIN held h ON h.key = l.key
        WHERE h.content IS NULL OR h.content != l.content OR h.expires < :soon
        UNION ALL SELECT position, NULL, NULL, NULL, 'misfit' FROM snapshot WHERE key IS NULL
    ) ORDER BY position
"""
_LEAVING = """
    INSERT INTO leaving (key, name, service_key)
    SELECT h.key, h.name, h.service_key FROM held h LEFT JOIN latest l ON l.key = h.key
    WHERE l.key IS NULL OR (:replace AND h.content != l.content) ORDER BY h.key
"""
_COUNTS = """
    SELECT
        (SELECT count(*) FROM held WHERE content IS NOT NULL),
        (SELECT count(*) FROM latest),
        (SELECT count(*) FROM leaving),
        (SELECT count(*) FROM leaving JOIN held USING (key) LEFT JOIN latest USING (key)
         WHERE latest.key IS NULL AND held.content IS NOT NULL)
"""
_GONE = "DELETE FROM held WHERE key IN (SELECT key FROM leaving JOIN done USING (ordinal) WHERE outcome = 1)"
_DOUBTFUL = """
    UPDATE held SET content = NULL WHERE key IN
        (SELECT key FROM leaving LEFT JOIN done USING (ordinal) WHERE outcome IS NOT 1)
"""
_THERE = """
    INSERT INTO held (key, name, service_key, content, expires)
    SELECT c.key, c.name, m.service_key, CASE d.outcome WHEN 1 THEN c.content END, (SELECT expires FROM about)
    FROM coming c LEFT JOIN done d ON d.ordinal = c.ordinal LEFT JOIN made m ON m.key = c.key
    WHERE c.key IS NOT NULL AND d.outcome IS NOT 0 ORDER BY c.key
    ON CONFLICT (key) DO UPDATE SET name = excluded.name, content = excluded.content, expires = excluded.expires,
        service_key = coalesce(excluded.service_key, service_key)
"""


@attrs.frozen
class Entries:
    """Some rows of a snapshot, column by column.

    Attributes:
        positions: where each stands in the snapshot, ascending.
        keys: 64 bits that tell rows apart, without a sign.
        names: what a removal needs.
        contents: 64 bits of a digest of all that is sent, without a sign.
        misfits: positions of rows that have no key; they come with what is sent, so that they fail there.
        size: bytes of what would be sent.
    """

    positions: Sequence[int]
    keys: Sequence[int]
    names: Sequence[bytes]
    contents: Sequence[int]
    misfits: Sequence[int] = ()
    size: int = 0


@attrs.frozen(kw_only=True)
class Plan:
    """What a snapshot changes.

    Attributes:
        held: rows that were accepted before and have not expired.
        listed: different rows of the snapshot.
        additions: rows that are not there, or of which that is not certain.
        changes: rows that are there with another content.
        refreshes: rows that are there and expire soon.
        removals: rows that are there and no longer listed.
        doubtful: rows that may be there after a run that was cut off, and are not listed; they are removed as well.
        unchanged: rows about which nothing is sent.
        misfits: rows of the snapshot without a key; they will fail.
        leaving: how many rows are removed: `removals`, `doubtful`, and those `changes` that are replaced.
        size: bytes of the rows that are sent, about.
    """

    held: int
    listed: int
    additions: int
    changes: int
    refreshes: int
    removals: int
    doubtful: int
    unchanged: int
    misfits: int
    leaving: int
    size: int

    @property
    def coming(self) -> int:
        """How many rows are sent."""
        return self.additions + self.changes + self.refreshes + self.misfits

    @property
    def removal_share(self) -> float:
        """Which share of what is there would be removed."""
        return self.removals / self.held if self.held else 0.0

    def check(self, max_removal_share: float) -> None:
        """Stop a snapshot that would remove too much, such as half of a file.

        Raises:
            InvalidArgument: more than this share of what is there is no longer listed.
        """
        if self.removal_share > max_removal_share:
            raise InvalidArgument(
                "max_removal_share",
                f"is {max_removal_share:.0%}, but {self.removals:,} of the {self.held:,} rows that are there "
                f"({self.removal_share:.1%}) would be removed; nothing was sent: is the file whole?",
            )


class Snapshots:
    """The state of one list; use it as a context manager.

    Args:
        path: the file; it is made when it is not there.
        target: which list it is about; a file is about one list for ever.

    Raises:
        InvalidArgument: the file is about another list, is in use, is newer than this version, or is no such file.
    """

    def __init__(self, path: Path, *, target: str) -> None:
        self._path = path
        with self._told():
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            with self._told():
                self._prepare(target)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a plan that was not begun is forgotten."""
        self._database.close()

    async def compare(
        self, snapshot: AsyncIterable[Entries], *, now: datetime, soon: datetime, replace: bool = False
    ) -> Plan:
        """Find out what a whole snapshot changes. Nothing of it stays in the file until `begin`.

        What a run before left open is settled first. Of rows of one key the last one counts.

        Args:
            snapshot: all that the list is to hold.
            now: rows that expired before are not there.
            soon: rows that expire before are sent again.
            replace: whether a row with another content is removed before it is sent, where sending it would only add.

        Raises:
            InvalidArgument: the file cannot be written.
        """
        with self._told():
            await self.settle()
            self._database.executescript("DROP TABLE IF EXISTS temp.snapshot; DROP TABLE IF EXISTS temp.latest;")
            self._database.executescript(
                """
                CREATE TEMP TABLE snapshot (position INTEGER PRIMARY KEY, key INTEGER, name BLOB, content INTEGER);
                CREATE TEMP TABLE latest (key INTEGER PRIMARY KEY, position INTEGER, name BLOB, content INTEGER);
                BEGIN IMMEDIATE;
                """
            )
            size = await self._take(snapshot)
            await self._run("DELETE FROM held WHERE expires <= :now", now=_seconds(now))
            await self._run(_SORTED)
            await self._run(_COMING, soon=_seconds(soon))
            await self._run(_LEAVING, replace=replace)
            return await asyncio.to_thread(self._plan, size)

    def begin(self, *, expires: datetime | None = None) -> None:
        """Keep the plan: from here on, what happens to its rows is in doubt until it is told.

        Args:
            expires: when the rows that are sent will expire.
        """
        with self._told():
            self._database.execute("UPDATE about SET expires = ?", [None if expires is None else _seconds(expires)])
            self._database.execute("COMMIT")

    def leaving(self) -> Iterator[tuple[int, bytes, str | None]]:
        """Give the rows to remove: number, name and the service's key, if there is one; numbers count from 0."""
        for ordinal, name, service_key in self._walk("SELECT ordinal, name, service_key FROM leaving"):
            yield ordinal - 1, name, service_key

    def coming(self, rows: Iterable[T]) -> Generator[T, None, None]:
        """Pick the rows to send from those of the snapshot, read again from its start; numbers count from 0."""
        walk, read = iter(rows), 0
        for _, position in self._walk("SELECT ordinal, position FROM coming"):
            yield from islice(walk, position - read, position - read + 1)
            read = position + 1

    def position(self, number: int) -> int:
        """Give the position in the snapshot of a row that is sent."""
        with self._told():
            (position,) = self._database.execute(
                "SELECT position FROM coming WHERE ordinal = ?", [number + 1]
            ).fetchone()
        return int(position)

    def accepted(self, way: Way, numbers: Sequence[int]) -> None:
        """Take note of rows that the service has confirmed."""
        self._tell(way, _ACCEPTED, numbers)

    def failed(self, way: Way, numbers: Sequence[int]) -> None:
        """Take note of rows that the service has certainly not taken over; they stay as they were."""
        self._tell(way, _FAILED, numbers)

    def named(self, service_keys: Mapping[int, str]) -> None:
        """Take note of the service's own keys of rows that are sent, by their key."""
        with self._told():
            self._database.executemany(
                "INSERT OR REPLACE INTO made VALUES (?, ?)",
                zip(_signed(list(service_keys)), service_keys.values(), strict=True),
            )

    async def settle(self) -> None:
        """Turn what was told into what is there; rows of the plan of which nothing was told are in doubt from now on.

        It is done at once or not at all, and done again by the next `compare` if it was not.
        """
        with self._told():
            self._database.executescript("DROP TABLE IF EXISTS temp.done; BEGIN IMMEDIATE;")
            try:
                for way, statements in _SETTLED.items():
                    self._database.execute("CREATE TEMP TABLE done (ordinal INTEGER PRIMARY KEY, outcome INTEGER)")
                    await self._expand(way)
                    for statement in statements:
                        await self._run(statement)
                    self._database.execute("DROP TABLE temp.done")
                for table in ("leaving", "coming", "told", "made"):
                    self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - the names stand above
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _prepare(self, target: str) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        run("PRAGMA synchronous = FULL")
        run("PRAGMA temp_store = FILE")
        run("PRAGMA cache_size = -16384")
        run("PRAGMA temp.cache_size = -16384")
        run("BEGIN IMMEDIATE")
        if not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            self._make(target)
        elif (application, version) != (_APPLICATION, _VERSION):
            newer = application == _APPLICATION
            raise self._refused("is of a newer version" if newer else "is no file of snapshots")
        run("COMMIT")
        if run("SELECT target FROM about").fetchone() != (target,):
            raise self._refused("is about another list: give each list a file of its own")

    def _make(self, target: str) -> None:
        for statement in _SCHEMA.split(";"):
            self._database.execute(statement)
        self._database.execute("INSERT INTO about VALUES (?, NULL)", [target])
        self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._database.execute(f"PRAGMA user_version = {_VERSION}")

    async def _take(self, snapshot: AsyncIterable[Entries]) -> int:
        size = 0
        insert = "INSERT INTO snapshot VALUES (?, ?, ?, ?)"
        async for part in snapshot:
            keys, contents = _signed(part.keys), _signed(part.contents)
            self._database.executemany(insert, zip(part.positions, keys, part.names, contents, strict=True))
            self._database.executemany(insert, ((position, None, None, None) for position in part.misfits))
            size += part.size
            await asyncio.sleep(0)
        return size

    def _plan(self, size: int) -> Plan:
        held, listed, leaving, removals = self._database.execute(_COUNTS).fetchone()
        why = dict(self._database.execute("SELECT why, count(*) FROM coming GROUP BY why").fetchall())
        sent = {name: why.get(name, 0) for name in ("addition", "change", "refresh", "misfit")}
        unlisted = "SELECT count(*) FROM leaving LEFT JOIN latest USING (key) WHERE latest.key IS NULL"
        known = sum(sent.values()) - sent["misfit"]
        return Plan(
            held=held,
            listed=listed,
            additions=sent["addition"],
            changes=sent["change"],
            refreshes=sent["refresh"],
            removals=removals,
            doubtful=self._database.execute(unlisted).fetchone()[0] - removals,
            unchanged=listed - known,
            misfits=sent["misfit"],
            leaving=leaving,
            size=round(size * known / listed) if listed else 0,
        )

    def _tell(self, way: Way, outcome: int, numbers: Sequence[int]) -> None:
        if numbers:
            with self._told():
                self._database.execute(
                    "INSERT INTO told VALUES (?, ?, ?)", [way, outcome, array("Q", numbers).tobytes()]
                )

    async def _expand(self, way: Way) -> None:
        told = self._database.execute("SELECT rowid FROM told WHERE way = ?", [way]).fetchall()
        for (row,) in told:
            found = self._database.execute("SELECT outcome, ordinals FROM told WHERE rowid = ?", [row]).fetchone()
            numbers = array("Q", found[1])
            self._database.executemany(
                "INSERT OR REPLACE INTO done VALUES (?, ?)", ((number + 1, found[0]) for number in numbers)
            )
            await asyncio.sleep(0)

    def _walk(self, query: str) -> Iterator[Any]:
        last = 0
        while True:
            with self._told():
                rows = self._database.execute(f"{query} WHERE ordinal > ? LIMIT {_WINDOW}", [last]).fetchall()
            yield from rows
            if not rows:
                return
            last = rows[-1][0]

    async def _run(self, statement: str, **values: object) -> None:
        """Run a statement that may take minutes beside the event loop; a cancellation ends it."""
        work = asyncio.create_task(asyncio.to_thread(self._database.execute, statement, values))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._database.interrupt()
            await asyncio.wait([work])
            raise

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise self._refused("is in use by another job") from None
            if isinstance(error, sqlite3.OperationalError):
                raise self._refused(f"cannot be used: {error}") from None
            raise self._refused("is no file of snapshots, or is damaged") from None

    def _refused(self, what: str) -> InvalidArgument:
        return InvalidArgument("state", f"{self._path} {what}")


_SETTLED: Mapping[Way, Sequence[str]] = MappingProxyType({"leaving": (_GONE, _DOUBTFUL), "coming": (_THERE,)})


def _signed(numbers: Sequence[int]) -> Sequence[int]:
    """Read 64 bits as SQLite keeps them."""
    return memoryview(array("Q", numbers)).cast("B").cast("q").tolist()


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
