"""Keeps the rows of a source that can be read only once, hashed as they will be sent, until their job is finished."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import attrs
import msgspec

from svc_async.batch.journal.records import JournalCheckpoint
from svc_async.batch.journal.resume import SourceDigest
from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.positions import Positions
from svc_async.batch.packing.rows import PackedRows
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import SvcError, UnusableFile
from svc_async.private_files import replace_private, report_os_error
from svc_async.store.records import MAX_BODY, RecordStore, encode
from svc_async.users.packed import HashedUsers, PackedUsers, TextUsers
from svc_async.users.template import RowTemplate

__all__ = ["FileSpool", "RecordSpool", "Spool", "read_spool", "write_spool"]

_NUMBER = 4
"""Bytes of the length and of the checksum before each record."""
_FIRST_OF_LIST = 0x90
"""The first byte of a short list in MessagePack."""
_MOST_STORED = 1_073_741_824
"""Bytes of rows that are stored with the records of a journal."""
_ADVICE = "delete it after the quarantine, and run the job again with the same rows"


class Spool(Protocol):
    """Keeps the rows of a source that can be read only once, as records of bytes."""

    async def write(self, records: AsyncIterable[bytes]) -> None:
        """Store records in place of those that there are."""
        ...

    def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records that were stored; an error says that they are missing or damaged."""
        ...

    async def delete(self) -> None:
        """Delete the records, if there are any."""
        ...


async def write_spool(
    source: RowSource, spool: Spool, *, on_first_rows: Callable[[], Awaitable[None]]
) -> JournalCheckpoint:
    """Store the rows of a source, hashed as they will be sent, and return how many they are, and their digest.

    Args:
        source: the rows.
        spool: where they are stored.
        on_first_rows: called before the first rows are stored.

    Raises:
        SvcError: they cannot be stored.
        Exception: whatever the source raises.
    """
    digest = SourceDigest()

    async def encode() -> AsyncGenerator[bytes, None]:
        async with aclosing(source.read()) as slices:
            async for each in slices:
                if each.count and not digest.rows:
                    await on_first_rows()
                yield msgspec.msgpack.encode(_to_plain(each))
                digest.update(each)
                await asyncio.sleep(0)

    async with aclosing(encode()) as records:
        await spool.write(records)
    return digest.checkpoint


def read_spool(spool: Spool, parse_group: Callable[[Any], OperationGroup]) -> RowSource:
    """Return the stored rows as a source.

    Args:
        spool: where they are; if they are missing or damaged, an error says so when they are read.
        parse_group: parses a group from its plain values.
    """
    return RowSource(lambda: _read(spool, parse_group), replayable=True)


def _to_plain(part: Slice) -> list[Any]:
    rows = part.rows
    users = [isinstance(rows.users, HashedUsers), *attrs.astuple(rows.users)]
    positions = rows.positions.to_plain()
    failures = [attrs.astuple(failure) for failure in part.failures]
    template = attrs.astuple(rows.template)
    return [part.count, rows.group.to_plain(), template, users, positions, failures, part.partly_valid]


async def _read(spool: Spool, parse_group: Callable[[Any], OperationGroup]) -> AsyncGenerator[Slice, None]:
    templates: dict[str, RowTemplate] = {}  # rows share operations only if their template is the same
    async with aclosing(spool.read()) as records:
        async for record in records:
            count, group, template, users, positions, failures, partly_valid = msgspec.msgpack.decode(record)
            rows = PackedRows(
                parse_group(group),
                templates.setdefault(repr(template), _parse_template(*template)),
                _parse_users(*users),
                Positions.from_plain(positions, most=count),
            )
            yield Slice(count, rows, [Failure(*failure) for failure in failures], partly_valid)


def _parse_template(before: str, between: str, after: str, openings: Sequence[str], closing: str) -> RowTemplate:
    return RowTemplate(before, between, after, tuple(openings), closing)


def _parse_users(is_hashed: bool, *fields: Any) -> PackedUsers:  # noqa: FBT001 - as it is stored
    return HashedUsers(*fields) if is_hashed else TextUsers(*fields)


@attrs.frozen
class FileSpool:
    """Records in a file, with a length and a checksum each; the last one is the number of the others.

    Attributes:
        path: the file.
    """

    path: Path

    async def write(self, records: AsyncIterable[bytes]) -> None:
        """Write a new file.

        Raises:
            UnusableFile: it cannot be written.
            Exception: whatever raises where the records come from; that may be an OSError as well.
        """
        count = 0
        with ExitStack() as stack:
            with self._report_unwritable():
                file = stack.enter_context(replace_private(self.path, temporary=self._unfinished))
            async for record in records:
                with self._report_unwritable():
                    _write_record(file, record)
                count += 1
            with self._report_unwritable():
                _write_record(file, msgspec.msgpack.encode(count))
                stack.close()

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records.

        Raises:
            UnusableFile: the file is missing or damaged.
        """
        if not self.path.exists():
            raise UnusableFile("journal", self.path, "is missing; the rows of the job were spooled to it")
        size, count = self.path.stat().st_size, 0
        with self.path.open("rb") as file:
            while not _is_count(record := self._read_record(file, size)):
                count += 1
                yield record
            if msgspec.msgpack.decode(record) != count or file.read(1):
                raise self._make_damage_error()

    def _read_record(self, file: BinaryIO, size: int) -> bytes:
        length, checksum = (int.from_bytes(file.read(_NUMBER)) for _ in range(2))
        # A length that is damaged may be any; no more is read than the file has.
        record = file.read(length) if length <= size else b""
        if not record or zlib.crc32(record) != checksum:
            raise self._make_damage_error()
        return record

    def _make_damage_error(self) -> UnusableFile:
        advice = "delete it and its journal after the quarantine, and run the job again with the same rows"
        return UnusableFile("journal", self.path, f"is damaged; {advice}")

    async def delete(self) -> None:
        """Delete the file, if it exists, and what is left of a run that was killed before it was complete."""
        for path in (self.path, self._unfinished):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    @property
    def _unfinished(self) -> Path:
        """The file while it is written; the journal is locked meanwhile, so nobody else writes it."""
        return self.path.with_name(f"{self.path.name}.new")

    def _report_unwritable(self) -> AbstractContextManager[None]:
        return report_os_error("journal", self.path, "cannot be written")


def _write_record(file: BinaryIO, record: bytes) -> None:
    file.write(len(record).to_bytes(_NUMBER) + zlib.crc32(record).to_bytes(_NUMBER) + record)


def _is_count(record: bytes) -> bool:
    """Return whether a record is a number; all others are lists."""
    return not _FIRST_OF_LIST <= record[0] < _FIRST_OF_LIST + 16


@attrs.frozen
class RecordSpool:
    """Records of rows beside the other records of a journal; one more says how many they are.

    Attributes:
        store: the records that this run has taken up.
        make_error: returns the error that says what is wrong with the journal.
    """

    store: RecordStore
    make_error: Callable[[str], SvcError]

    async def write(self, records: AsyncIterable[bytes]) -> None:
        """Store records in place of those that there are.

        Raises:
            SvcError: they are too large, or cannot be stored.
        """
        await self.delete()
        count = size = 0
        async for record in records:
            size += len(record)
            if size > _MOST_STORED or len(record) > MAX_BODY - _NUMBER * 2:
                problem = (
                    f"keeps at most {_MOST_STORED >> 20} MiB of rows that can be read only once; use a file as source"
                )
                raise self.make_error(problem)
            await self.store.commit({("row", count): encode(record)})
            count += 1
        await self.store.commit({("rows", 0): encode(count)})

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records.

        Raises:
            SvcError: they are missing or damaged.
        """
        ((_, count),) = await self.store.read("rows", int) or [(0, -1)]
        if count < 0:
            raise self.make_error(f"lacks rows; {_ADVICE}")
        for number in range(count):
            found = await self.store.read("row", bytes, range(number, number + 1))
            if not found:
                raise self.make_error(f"lacks rows; {_ADVICE}")
            yield found[0][1]

    async def delete(self) -> None:
        """Delete the records, if there are any."""
        async with self.store.transaction() as writer:
            await writer.delete("rows")
            await writer.delete("row")
