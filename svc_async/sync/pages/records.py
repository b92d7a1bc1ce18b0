"""The records of a state: pages, and what became of a plan.

about         what belongs to the state as a whole
page, mark    the rows; settling a plan writes marks only, which are 3 bytes a row
plan          what is planned for each page
selection     which rows of the snapshot are sent
outcome       the outcomes that are known so far
sending       the parts of the plan that were begun, and when each was sent last
sent          how many requests were sent within the last minutes
service_key   the service's own keys that are known since
write         the identifiers that were sent beside the syncs since the last plan
"""

import asyncio
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar
from zlib import compress, decompressobj
from zlib import error as ZlibError  # noqa: N812 - it is a class

import attrs

from svc_async.batch.plan import PARTS, Part
from svc_async.store.records import RecordLocation, RecordStore, RecordWriter
from svc_async.sync.entries import WrittenIdentifiers
from svc_async.sync.pages.marks import NEVER, RowOutcome
from svc_async.sync.pages.page import (
    ID_SIZE,
    KEY_SIZE,
    MAX_PAGES,
    REST_SIZE,
    DamagedState,
    StatePage,
    pack_numbers,
    pack_texts,
    split_columns,
    unpack_numbers,
    unpack_texts,
)
from svc_async.sync.pages.planned import PlannedPage
from svc_async.sync.pages.spill import ServiceKeys
from svc_async.sync.sending import SendingNote

__all__ = ["ABOUT", "About", "PageWriter", "StateRecords", "describe_about", "describe_written"]

T = TypeVar("T")

ABOUT: type[tuple[str, int, int, int, float | None, str | None]] = tuple[str, int, int, int, float | None, str | None]
"""What the record `about` holds: the attributes of `About`."""
_PAGE: type[tuple[bytes, bytes, bytes, bytes]] = tuple[bytes, bytes, bytes, bytes]
_PLAN: type[tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]] = tuple[
    bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes
]
_WRITE: type[tuple[bool, bytes, bytes, bytes, bytes]] = tuple[bool, bytes, bytes, bytes, bytes]
_PLAN_KINDS = ("plan", "selection", "outcome", "sending", "service_key")
"""Of which there is no record when nothing is left to settle."""
_CODES_TOGETHER = 2**20
_ROWS_TOGETHER = 64
"""Records that are read at once: an outcome has up to a quarter of a megabyte."""
_MOST_CODES = 2**32
"""More rows than a source has: positions have four bytes."""
_DAMAGED = (DamagedState, ZlibError, LookupError, ValueError, TypeError, OverflowError)
"""What it raises to use what a checksum fits and nothing of ours has written."""


@attrs.frozen
class About:
    """What belongs to a state as a whole.

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

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.pages <= MAX_PAGES or self.pages & (self.pages - 1):
            raise DamagedState
        if not (0 <= self.rows <= _MOST_CODES and 0 <= self.expires <= NEVER):
            raise DamagedState


def describe_about(about: About) -> tuple[str, int, int, int, float | None, str | None]:
    """Return the value of the record `about`."""
    monotonic, boot = (None, None) if about.late is None else (about.late.monotonic, about.late.boot)
    return about.target, about.pages, about.rows, about.expires, monotonic, boot


def describe_written(written: WrittenIdentifiers, *, adds: bool) -> tuple[bool, bytes, bytes, bytes, bytes]:
    """Return the value of a record of identifiers that are about to be sent beside the syncs."""
    rests = b"".join(rest or bytes(REST_SIZE) for rest in written.rests)
    return adds, written.kinds, b"".join(written.keys), rests, pack_texts(written.names)


@attrs.frozen
class RecordedOutcome:
    """The outcome of some rows of a part.

    Attributes:
        numbers: their numbers.
    """

    part: Part
    outcome: RowOutcome
    numbers: Sequence[int]


@attrs.frozen
class StateRecords:
    """The records of a state; every method raises SvcError as the store does.

    Attributes:
        folder: where temporary files may be created, as large as the state and the source.
    """

    _store: RecordStore
    _location: RecordLocation
    folder: Path

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator["PageWriter"]:
        """Commit what the block writes, or nothing of it; it may write as much as the state holds."""
        async with self._store.transaction() as writer:
            yield PageWriter(writer)

    async def shrink(self) -> None:
        """Return the space that is no longer used."""
        await self._store.shrink()

    async def has_plan(self) -> bool:
        """Return whether a plan is left that is not settled."""
        for kind in _PLAN_KINDS:
            if await self._store.list_numbers(kind):
                return True
        return False

    async def read_about(self) -> About | None:
        """Return what belongs to the state as a whole; None if it is new."""
        found = await self._store.read("about", ABOUT, range(1, 2))
        if not found:
            return None
        ((_, (target, pages, rows, expires, monotonic, boot)),) = found
        with self.report():
            return About(target, pages, rows, expires, None if monotonic is None else SendingNote(monotonic, boot))

    async def read_page(self, index: int, pages: int) -> StatePage:
        """Return a page with its marks."""
        ids, rests, names, service_keys = await self._find("page", _PAGE, pages + index)
        page = await self.read_marks(index, pages)
        count = len(page)
        with self.report():
            return StatePage(
                bytearray(ids),
                bytearray(rests or bytes(REST_SIZE * count)),
                unpack_texts(names, count),
                unpack_texts(service_keys, count),
                page.days,
                page.flags,
            )

    async def read_parts(self, pages: int, parts: int) -> AsyncIterator[tuple[int, StatePage]]:
        """Yield all pages, divided into this number of parts; other tasks run between them."""
        for index in range(pages):
            whole = await self.read_page(index, pages)
            for part, page in whole.divide(index, pages, parts):
                yield part, page
                await asyncio.sleep(0)

    async def read_marks(self, index: int, pages: int) -> StatePage:
        """Return a page with its marks only; the other columns hold zeros."""
        days, flags = await self._find("mark", tuple[bytes, bytes], pages + index)
        count = len(flags)
        with self.report():
            return StatePage(
                bytearray(ID_SIZE * count),
                bytearray(REST_SIZE * count),
                days=unpack_numbers("H", days),
                flags=bytearray(flags),
            )

    async def list_planned(self, pages: int) -> list[int]:
        """Return the indexes of the pages for which something is planned."""
        return [number - pages for number in await self._store.list_numbers("plan")]

    async def read_plan(self, index: int, pages: int) -> PlannedPage:
        """Return what is planned for a page."""
        found = await self._store.read("plan", _PLAN, range(pages + index, pages + index + 1))
        if not found:
            return PlannedPage()
        ((_, (places, actions, positions, flags, days, contents, added_places, added_positions)),) = found
        with self.report():
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

    async def read_selection(self) -> bytearray:
        """Return which rows are sent."""
        codes = bytearray()
        for number, (_, packed) in enumerate(await self._store.read("selection", bytes)):
            with self.report():
                unpacked = decompressobj().decompress(packed, _CODES_TOGETHER + 1)
                if len(codes) != _CODES_TOGETHER * number or len(unpacked) > _CODES_TOGETHER:
                    raise DamagedState
                codes += unpacked
                if len(codes) > _MOST_CODES:
                    raise DamagedState
        return codes

    async def read_outcomes(self) -> AsyncIterator[RecordedOutcome]:
        """Return the outcomes that are known."""
        async for part, outcome, first, count, packed in self._read_all("outcome", tuple[int, int, int, int, bytes]):
            with self.report():
                numbers = unpack_numbers("I", packed) if packed else range(first, first + count)
                recorded = RecordedOutcome(PARTS[part], RowOutcome(outcome), numbers)
            yield recorded

    @asynccontextmanager
    async def read_service_keys(self, pages: int) -> AsyncGenerator[ServiceKeys]:
        """Read the service's keys that were recorded, and keep them by the page of the row for the block."""
        with ServiceKeys(self.folder, pages) as service_keys:
            async for keys, packed in self._read_all("service_key", tuple[bytes, bytes]):
                count, rest = divmod(len(keys), KEY_SIZE)
                with self.report():
                    if rest:
                        raise DamagedState
                    service_keys.add(split_columns(keys, f"{KEY_SIZE}s"), unpack_texts(packed, count))
            yield service_keys

    async def count_writes(self) -> int:
        """Return how many requests beside the syncs were noted since the last plan."""
        return len(await self._store.list_numbers("write"))

    async def read_writes(self) -> AsyncIterator[tuple[bool, WrittenIdentifiers]]:
        """Yield what was noted of writes beside the syncs: whether they add, and their identifiers."""
        # One at a time: a record may have some megabytes.
        async for adds, kinds, keys, rests, names in self._read_all("write", _WRITE, together=1):
            with self.report():
                if not len(kinds) == len(keys) / KEY_SIZE == len(rests) / REST_SIZE:
                    raise DamagedState
                columns = [*split_columns(keys, f"{KEY_SIZE}s")], [*split_columns(rests, f"{REST_SIZE}s")]
                written = WrittenIdentifiers(kinds, *columns, unpack_texts(names, len(kinds)) or [b""] * len(kinds))
            yield adds, written

    async def _read_all(self, kind: str, into: type[T], *, together: int = _ROWS_TOGETHER) -> AsyncIterator[T]:
        """Yield the records of a kind, whose numbers begin with 1; other tasks run between them."""
        end = 1 + len(await self._store.list_numbers(kind))
        for first in range(1, end, together):
            await asyncio.sleep(0)
            numbers = range(first, min(first + together, end))
            found = await self._store.read(kind, into, numbers)
            if len(found) != len(numbers):
                raise self._location.make_damage_error()
            for _, value in found:
                yield value

    async def _find(self, kind: str, into: type[T], number: int) -> T:
        found = await self._store.read(kind, into, range(number, number + 1))
        if not found:
            raise self._location.make_damage_error()
        return found[0][1]

    @contextmanager
    def report(self) -> Generator[None]:
        """Report that what was read cannot be unpacked or used."""
        try:
            yield
        except _DAMAGED:
            raise self._location.make_damage_error() from None


@attrs.frozen
class PageWriter:
    """Writes what belongs to one transaction."""

    _writer: RecordWriter

    async def write_about(self, about: About) -> None:
        """Store what belongs to the state as a whole."""
        await self._writer.put("about", 1, describe_about(about))

    async def write_page(self, index: int, pages: int, page: StatePage) -> None:
        """Store a page with its marks."""
        rests = b"" if page.rests.count(0) == len(page.rests) else bytes(page.rests)
        texts = pack_texts(page.names), pack_texts(page.service_keys)
        await self._writer.put("page", pages + index, (bytes(page.ids), rests, *texts))
        await self.write_marks(index, pages, page)

    async def write_marks(self, index: int, pages: int, page: StatePage) -> None:
        """Store the marks of a page."""
        await self._writer.put("mark", pages + index, (pack_numbers(page.days), bytes(page.flags)))

    async def delete_page(self, index: int, pages: int) -> None:
        """Delete a page."""
        for kind in ("page", "mark"):
            await self._writer.delete(kind, [pages + index])

    async def write_plan(self, index: int, pages: int, planned: PlannedPage) -> None:
        """Store what is planned for a page."""
        columns = attrs.asdict(planned, recurse=False).values()
        packed = [pack_numbers(column) if isinstance(column, array) else column for column in columns]
        await self._writer.put("plan", pages + index, packed)

    async def write_selection(self, codes: bytearray) -> None:
        """Store which rows are sent."""
        for start in range(0, len(codes), _CODES_TOGETHER):
            await self._writer.put("selection", start, compress(codes[start : start + _CODES_TOGETHER], 1))

    async def clear_writes(self) -> None:
        """Delete what was noted of writes beside the syncs."""
        await self._writer.delete("write")

    async def clear_plan(self) -> None:
        """Delete the plan."""
        for kind in _PLAN_KINDS:
            await self._writer.delete(kind)
