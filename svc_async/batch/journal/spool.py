"""Keeps the rows of a source that can be read only once, hashed as they will be sent, until their job is finished.

They are records of the journal beside its others: one for each slice, and one more that says how many these are.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import attrs

from svc_async.batch.journal.records import JournalCheckpoint
from svc_async.batch.journal.resume import SourceDigest
from svc_async.batch.packing.batch import OperationGroup, PackedRows
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import Hint, SvcError
from svc_async.store.records import MAX_BODY, RecordStore, encode
from svc_async.users.packed import HashedUsers, RowTemplate, TextUsers

__all__ = ["Spool"]

_WAITS_AFTER = 4_194_304
"""Bytes of records that wait for the disk while rows are read."""
_READ_TOGETHER = 16
_READ_ONCE = "that can be read only once"


@attrs.frozen
class Spool:
    """Keeps rows in a journal.

    Attributes:
        store: the records of the journal.
        make_error: returns the error that says what is wrong with it.
        most: bytes that it keeps at most.
    """

    store: RecordStore
    make_error: Callable[[str, Hint], SvcError]
    most: float

    async def write(self, source: RowSource, *, on_first_rows: Callable[[], Awaitable[None]]) -> JournalCheckpoint:
        """Store the rows of a source in place of those that there are; return how many they are, and their digest.

        Args:
            source: the rows.
            on_first_rows: called before the first rows are stored.

        Raises:
            SvcError: they are too large, or cannot be stored.
            Exception: whatever the source raises.
        """
        await self.delete()
        digest, count, size, waiting = SourceDigest(), 0, 0, 0
        async with aclosing(source.read()) as slices:
            async for each in slices:
                if each.count and not digest.rows:
                    await on_first_rows()
                record = encode(_to_plain(each))
                size += len(record)
                waiting += len(record)
                if size > self.most:
                    problem = f"keeps at most {int(self.most) >> 20} MiB of rows {_READ_ONCE}"
                    raise self.make_error(problem, Hint.USE_A_FILE)
                if len(record) > MAX_BODY:
                    problem = f"keeps at most {MAX_BODY >> 20} MiB of {each.count} rows {_READ_ONCE}"
                    raise self.make_error(problem, Hint.USE_A_FILE)
                self.store.submit({("row", count): record})
                if waiting > _WAITS_AFTER:
                    await self.store.commit({})
                    waiting = 0
                count += 1
                digest.update(each)
                await asyncio.sleep(0)
        await self.store.commit({("rows", 0): encode(count)})
        return digest.checkpoint

    def read(self, parse_group: Callable[[Any], OperationGroup]) -> RowSource:
        """Return the stored rows as a source; if they are missing or damaged, an error says so when they are read.

        Args:
            parse_group: parses a group from its plain values.
        """
        return RowSource(lambda: self._read(parse_group), replayable=True)

    async def _read(self, parse_group: Callable[[Any], OperationGroup]) -> AsyncGenerator[Slice, None]:
        templates: dict[str, RowTemplate] = {}  # rows share operations only if their template is the same
        found = await self.store.read("rows", int)
        count = found[0][1] if found else -1
        for first in range(0, count, _READ_TOGETHER):
            wanted = range(first, min(first + _READ_TOGETHER, count))
            records = await self.store.read("row", list[Any], wanted)
            if len(records) < len(wanted):
                count = -1
                break
            for _, (read, group, template, (is_hashed, *users), positions, failures, partly_valid) in records:
                before, between, after, openings, closing = template
                parsed = RowTemplate(before, between, after, tuple(openings), closing)
                rows = PackedRows(
                    parse_group(group),
                    templates.setdefault(repr(template), parsed),
                    HashedUsers(*users) if is_hashed else TextUsers(*users),
                    Positions.from_plain(positions, most=read),
                )
                yield Slice(read, rows, [Failure(*failure) for failure in failures], partly_valid)
        if count < 0:
            raise self.make_error("lacks rows", Hint.SEND_AGAIN)

    async def delete(self) -> None:
        """Delete the rows, if there are any."""
        async with self.store.transaction() as writer:
            await writer.delete("rows")
            await writer.delete("row")
        await self.store.shrink()


def _to_plain(part: Slice) -> list[Any]:
    rows = part.rows
    users = [isinstance(rows.users, HashedUsers), *attrs.astuple(rows.users)]
    positions = rows.positions.to_plain()
    failures = [attrs.astuple(failure) for failure in part.failures]
    template = attrs.astuple(rows.template)
    return [part.count, rows.group.to_plain(), template, users, positions, failures, part.partly_valid]
