"""The members of a list as the source of a job: encoded a slice at a time."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.ads.custom_audiences import AudienceUser
from svc_async.ads.dicts import MemberDict
from svc_async.ads.do_not_reach_lists import DoNotReachUser
from svc_async.batch.files import open_file, read_file, read_opened
from svc_async.batch.packing.batch import PackedRows
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import Failure
from svc_async.batch.slicing import slice_rows
from svc_async.batch.source import RowSource, Slice, check_rows, is_replayable
from svc_async.cancellation import in_thread
from svc_async.lists.operations import Operations, UserOperation
from svc_async.sources.detect import open_source
from svc_async.sources.file_source import TableSource
from svc_async.sources.rows import ArrowTable, from_arrow
from svc_async.users.encoding import EncodedSlices, EncodedUsers, MemberEncoder
from svc_async.users.names import USERS
from svc_async.users.tables import Columns, Rows
from svc_async.wire.records import fields_of

__all__ = ["MemberReader", "Members", "open_members"]

Member = MemberDict | Mapping[str, object] | AudienceUser | DoNotReachUser
IterableMembers = Iterable[Member] | AsyncIterable[Member] | Rows | Columns
Members = IterableMembers | ArrowTable | str | Path
"""Mappings with the service's keys, records, the rows or columns of a table, a table of Arrow, or a file."""
_MEMBERS = "mappings or records"
_OPERATIONS = 16
"""Operations that a thread reads at a time; each may have thousands of users."""
ParseOperation = Callable[[object, str], tuple[UserOperation, Sequence[object]]]
"""Returns what an operation shares with others, and its users."""


@asynccontextmanager
async def open_members(members: Members, identifiers: Sequence[str]) -> AsyncGenerator[IterableMembers]:
    """Open members given as a file or a table of Arrow, which may have columns of these identifiers.

    Raises:
        InvalidArgument: the file is not a local one, or a column of the table is not recognised.
        UnusableFile: the file cannot be read.
    """
    if isinstance(members, ArrowTable):
        # An export may run a query.
        yield await in_thread(partial(from_arrow, members, vocabulary=USERS.restrict_to(identifiers)))
        return
    if not isinstance(members, str | Path):
        yield members
        return
    async with open_file("members", members, _make_opener(identifiers)) as source:
        yield source.rows()


@attrs.frozen
class MemberReader:
    """Reads the members of a list, encoded a slice at a time.

    Attributes:
        identifiers: the keys of a member.
        slice_rows: rows in a slice.
    """

    _encoder: MemberEncoder
    identifiers: Sequence[str]
    slice_rows: int

    def read(self, members: Members | EncodedSlices, operation: UserOperation) -> RowSource:
        """Return the source of a job that applies one operation to all members.

        Raises:
            InvalidArgument: the members cannot be iterated or are not a local file, or the first is not a mapping or
                has an unknown key.
        """
        if isinstance(members, str | Path):
            open_ = _make_opener(self.identifiers)
            return read_file("members", members, open_, lambda source: self.read(source.rows(), operation))
        if isinstance(members, ArrowTable):
            return read_opened(
                partial(open_members, members, self.identifiers),
                lambda opened: self.read(opened, operation),
                replayable=is_replayable(members),
            )
        if isinstance(members, EncodedSlices):
            return RowSource(lambda: _number(members.slices, operation), is_replayable(members.slices))
        if isinstance(members, Rows):
            return self._read_table(members.columns, members.rows, operation)
        if isinstance(members, Columns):
            check_rows("batches", members.batches, "batches of columns")
            return self._read_table(members.names, members, operation)
        check_rows("members", members, _MEMBERS, takes_path=True)
        if isinstance(members, Sequence) and members:
            self._encoder.check_first(members[0], "members[0]")
        encoder = self._encoder
        return RowSource(
            lambda: _encode(members, operation, encoder.encode, self.slice_rows, encoder.check_first),
            is_replayable(members),
        )

    def _read_table(
        self,
        names: Sequence[str],
        rows: Iterable[Any] | AsyncIterable[Any] | Columns,
        operation: UserOperation,
    ) -> RowSource:
        encode = self._encoder.for_rows(names).encode
        return RowSource(lambda: _encode(rows, operation, encode, self.slice_rows), is_replayable(rows))

    def read_operations(self, operations: Operations, parse: ParseOperation) -> RowSource:
        """Return the source of a job that applies operations to the users of each.

        Raises:
            InvalidArgument: the operations cannot be iterated, or the first is not a mapping.
        """
        check_rows("operations", operations, _MEMBERS)
        if isinstance(operations, Sequence) and operations and fields_of(operations[0]) is None:
            parse(operations[0], "operations[0]")  # it raises
        return RowSource(
            lambda: _encode_operations(operations, parse, self._encoder, self.slice_rows), is_replayable(operations)
        )


async def _encode_operations(
    operations: Operations,
    parse: ParseOperation,
    encoder: MemberEncoder,
    slice_size: int,
) -> AsyncGenerator[Slice, None]:
    first = index = 0
    async with aclosing(slice_rows(operations, _OPERATIONS)) as parts:
        async for some in parts:
            for each in some:
                where = f"operations[{index}]"
                operation, users = parse(each, where)
                for start in range(0, len(users), slice_size):
                    part = users[start : start + slice_size]
                    if first == 0:
                        encoder.check_first(part[0], f"{where}.params.users[0]", tuples="dict(zip(columns, row))")
                    yield _build_slice(encoder.encode(part), operation, first)
                    first += len(part)
                index += 1


async def _number(slices: Iterable[EncodedUsers], operation: UserOperation) -> AsyncGenerator[Slice, None]:
    first = 0
    for users in slices:
        yield _build_slice(users, operation, first)
        first += users.rows


async def _encode(
    rows: Iterable[Any] | AsyncIterable[Any] | Columns,
    operation: UserOperation,
    encode: Callable[[Sequence[Any]], EncodedUsers],
    slice_size: int,
    check_first: Callable[[Any, str], None] | None = None,
) -> AsyncGenerator[Slice, None]:
    first = 0
    async with aclosing(slice_rows(rows, slice_size)) as parts:
        async for part in parts:
            if check_first is not None and first == 0:
                check_first(part[0], "members[0]")
            yield _build_slice(encode(part), operation, first)
            first += len(part)


def _build_slice(encoded: EncodedUsers, operation: UserOperation, first: int) -> Slice:
    positions: Sequence[int] = range(first, first + encoded.rows)
    if encoded.invalid:
        positions = [first + index for index in encoded.indexes]
    attributes = encoded.attributes
    failures = [
        Failure(first + index, rule, "INVALID_ROW", attributes.get(index))
        for index, rule in sorted(encoded.invalid.items())
    ]
    rows = PackedRows(operation, encoded.template, encoded.users, Positions.pack(positions))
    return Slice(encoded.rows, rows, failures, encoded.partly_valid)


def _make_opener(identifiers: Sequence[str]) -> Callable[[Path], TableSource]:
    return partial(open_source, vocabulary=USERS.restrict_to(identifiers))
