"""The file of a state: pages, and what became of a plan.

    about         what belongs to the file as a whole
    page, mark    the rows; settling a plan writes marks only, which are 3 bytes a row
    plan          what is planned for each page
    selection     which rows of the snapshot are sent
    outcome       the outcomes that are known so far
    sending       the parts of the plan that were begun, and when each was sent last
    sent          how many requests were sent within the last minutes
    service_key   the service's own keys that are known since

Every row of a table has a checksum.
"""

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import attrs

from svc_async.batch.sync.pages.database import CheckedDatabase
from svc_async.batch.sync.pages.page import (
    ID_SIZE,
    REST_SIZE,
    StatePage,
    pack_numbers,
    pack_texts,
    unpack_numbers,
    unpack_texts,
)
from svc_async.batch.sync.pages.planned import PlannedPage
from svc_async.batch.sync.pages.sendings import Sendings
from svc_async.batch.sync.plan import PARTS, Part
from svc_async.batch.sync.sending import SendingNote
from svc_async.sqlite import FileFormat

__all__ = ["FORMAT", "About", "RecordedOutcome", "StateFile"]

FORMAT = FileFormat(
    kind="a sync state",
    parameter="state",
    application_id=0x73766373,
    version=4,
    shrinks=True,
    advice="without it, the next sync sends all rows and removes none: move the file away",
    tables="""
    CREATE TABLE about (
        id INTEGER PRIMARY KEY, target TEXT, pages INTEGER, rows INTEGER, expires INTEGER,
        monotonic REAL, boot TEXT, checksum INTEGER
    );
    CREATE TABLE page (
        id INTEGER PRIMARY KEY, ids BLOB, rests BLOB, names BLOB, service_keys BLOB, checksum INTEGER
    );
    CREATE TABLE mark (id INTEGER PRIMARY KEY, days BLOB, flags BLOB, checksum INTEGER);
    CREATE TABLE plan (
        id INTEGER PRIMARY KEY, places BLOB, actions BLOB, positions BLOB, flags BLOB, days BLOB, contents BLOB,
        added_places BLOB, added_positions BLOB, checksum INTEGER
    );
    CREATE TABLE selection (id INTEGER PRIMARY KEY, codes BLOB, checksum INTEGER);
    CREATE TABLE outcome (
        id INTEGER PRIMARY KEY, part INTEGER, outcome INTEGER, first INTEGER, count INTEGER, numbers BLOB,
        checksum INTEGER
    );
    CREATE TABLE sending (
        id INTEGER PRIMARY KEY, stage INTEGER, part INTEGER, monotonic REAL, boot TEXT, ended INTEGER, checksum INTEGER
    );
    CREATE TABLE sent (
        id INTEGER PRIMARY KEY, part INTEGER, moment REAL, count INTEGER, governor TEXT, checksum INTEGER
    );
    CREATE TABLE service_key (id INTEGER PRIMARY KEY, key BLOB, service_key BLOB, checksum INTEGER)
    """,
)
_PLAN_TABLES = ("plan", "selection", "outcome", "sending", "service_key")
"""What is empty when nothing is left to settle."""
_PLAN_COLUMNS = "places, actions, positions, flags, days, contents, added_places, added_positions"
_CODES_TOGETHER = 2**20


@attrs.frozen
class About:
    """What belongs to a file as a whole.

    Attributes:
        target: the list.
        pages: how many pages there are.
        rows: how many rows the list was to have after the last plan.
        expires: the day on which rows that are sent expire.
        late: when requests were last sent of which some may still take effect.
    """

    target: str
    pages: int = 1
    rows: int = 0
    expires: int = 0
    late: SendingNote | None = None


@attrs.frozen
class RecordedOutcome:
    """The outcome of some rows of a part.

    Attributes:
        numbers: their numbers.
    """

    part: Part
    outcome: int
    numbers: Sequence[int]


class StateFile:
    """The file of a state; every method may raise UnusableFile.

    Attributes:
        sendings: when requests were sent.

    Args:
        path: the file; it is created if it does not exist.
        factory: the class of the connection.

    Raises:
        UnusableFile: the file is of another kind or version, is locked, or cannot be used.
    """

    def __init__(self, path: Path, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self.path = path
        self._database = CheckedDatabase(path, FORMAT, factory=factory)
        self.sendings = Sendings(self._database)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Commit what the block does, or nothing of it."""
        return self._database.transaction()

    def shrink(self) -> None:
        """Return what is no longer used to the file system."""
        self._database.shrink()

    @property
    def has_plan(self) -> bool:
        """Whether a plan is left that is not settled."""
        return not all(map(self._database.is_empty, _PLAN_TABLES))

    def clear_plan(self) -> None:
        """Delete the plan."""
        for table in _PLAN_TABLES:
            self._database.delete(table)

    def read_about(self) -> About | None:
        """Return what belongs to the file as a whole; None if it is new."""
        found = self._database.find("about", "target, pages, rows, expires, monotonic, boot", 1)
        if found is None:
            return None
        target, pages, rows, expires, monotonic, boot = found
        return About(target, pages, rows, expires, None if monotonic is None else SendingNote(monotonic, boot))

    def write_about(self, about: About) -> None:
        """Store what belongs to the file as a whole."""
        late = (None, None) if about.late is None else (about.late.monotonic, about.late.boot)
        self._database.put("about", 1, about.target, about.pages, about.rows, about.expires, *late)

    def read_page(self, index: int, pages: int) -> StatePage:
        """Return a page with its marks."""
        ids, rests, names, service_keys = self._find_row("page", "ids, rests, names, service_keys", pages + index)
        page = self.read_marks(index, pages)
        count = len(page)
        with self._database.report():
            return StatePage(
                bytearray(ids),
                bytearray(rests or bytes(REST_SIZE * count)),
                unpack_texts(names, count),
                unpack_texts(service_keys, count),
                page.days,
                page.flags,
            )

    def read_marks(self, index: int, pages: int) -> StatePage:
        """Return a page with its marks only; the other columns hold zeros."""
        days, flags = self._find_row("mark", "days, flags", pages + index)
        count = len(flags)
        with self._database.report():
            return StatePage(
                bytearray(ID_SIZE * count),
                bytearray(REST_SIZE * count),
                days=unpack_numbers("H", days),
                flags=bytearray(flags),
            )

    def write_page(self, index: int, pages: int, page: StatePage) -> None:
        """Store a page with its marks."""
        rests = b"" if page.rests.count(0) == len(page.rests) else bytes(page.rests)
        texts = pack_texts(page.names), pack_texts(page.service_keys)
        self._database.put("page", pages + index, bytes(page.ids), rests, *texts)
        self.write_marks(index, pages, page)

    def write_marks(self, index: int, pages: int, page: StatePage) -> None:
        """Store the marks of a page."""
        self._database.put("mark", pages + index, pack_numbers(page.days), bytes(page.flags))

    def delete_page(self, index: int, pages: int) -> None:
        """Delete a page."""
        for table in ("page", "mark"):
            self._database.delete(table, f"WHERE id = {pages + index}")

    def list_planned(self, pages: int) -> list[int]:
        """Return the indexes of the pages for which something is planned."""
        return [number - pages for (number,) in self._database.query("SELECT id FROM plan ORDER BY id")]

    def read_plan(self, index: int, pages: int) -> PlannedPage:
        """Return what is planned for a page."""
        found = self._database.find("plan", _PLAN_COLUMNS, pages + index)
        if found is None:
            return PlannedPage()
        places, actions, positions, flags, days, contents, added_places, added_positions = found
        with self._database.report():
            return PlannedPage(
                places=unpack_numbers("I", places),
                actions=actions,
                positions=unpack_numbers("I", positions),
                flags=flags,
                days=unpack_numbers("H", days),
                contents=contents,
                added_places=unpack_numbers("I", added_places),
                added_positions=unpack_numbers("I", added_positions),
            )

    def write_plan(self, index: int, pages: int, planned: PlannedPage) -> None:
        """Store what is planned for a page."""
        columns = attrs.asdict(planned, recurse=False).values()
        packed = (pack_numbers(column) if isinstance(column, array) else column for column in columns)
        self._database.put("plan", pages + index, *packed)

    def read_selection(self) -> bytearray:
        """Return which rows are sent."""
        codes = bytearray()
        for number, (packed,) in enumerate(self._database.select("selection", "codes")):
            with self._database.report():
                codes += decompress(packed)
            if len(codes) < _CODES_TOGETHER * number:
                raise self._database.make_damage_error()
        return codes

    def write_selection(self, codes: bytearray) -> None:
        """Store which rows are sent."""
        for start in range(0, len(codes), _CODES_TOGETHER):
            self._database.put("selection", start, compress(codes[start : start + _CODES_TOGETHER], 1))

    def read_outcomes(self) -> Iterator[RecordedOutcome]:
        """Return the outcomes that are known."""
        ((last,),) = self._database.query("SELECT coalesce(max(id), 0) FROM outcome")
        for number in range(1, last + 1):
            part, outcome, first, count, packed = self._find_row(
                "outcome", "part, outcome, first, count, numbers", number
            )
            with self._database.report():
                numbers = unpack_numbers("I", packed) if packed else range(first, first + count)
            yield RecordedOutcome(PARTS[part], outcome, numbers)

    def write_outcome(self, outcome: RecordedOutcome) -> None:
        """Store the outcome of some rows."""
        numbers = outcome.numbers
        first, last = min(numbers), max(numbers)
        is_range = last - first == len(numbers) - 1
        packed = b"" if is_range else pack_numbers(array("I", numbers))
        self._database.put(
            "outcome", None, PARTS.index(outcome.part), int(outcome.outcome), first, len(numbers), packed
        )

    def read_service_keys(self) -> Mapping[bytes, bytes]:
        """Return the service's keys that were recorded, by the key of the row."""
        return dict(self._database.select("service_key", "key, service_key"))

    def write_service_keys(self, service_keys: Iterable[tuple[bytes, bytes]]) -> None:
        """Store the service's keys of rows."""
        for key, service_key in service_keys:
            self._database.put("service_key", None, key, service_key)

    def _find_row(self, table: str, columns: str, number: int) -> tuple[Any, ...]:
        found = self._database.find(table, columns, number)
        if found is None:
            raise self._database.make_damage_error()
        return found
