"""The input of a job: slices of encoded rows; no I/O."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from io import IOBase
from typing import Any

import attrs

from svc_async.batch.packing.batch import PackedRows
from svc_async.batch.report import Failure
from svc_async.errors import InvalidArgument
from svc_async.users.packed import RowTemplate, TextUsers
from svc_async.users.tables import Columns
from svc_async.wire.dialect import Dialect

__all__ = ["RowSource", "Slice", "check_rows", "is_replayable"]


@attrs.frozen
class Slice:
    """Some consecutive rows of a source.

    Attributes:
        count: how many were read.
        rows: those that can be sent.
        failures: the others.
        partly_valid: rows that have a valid identifier beside an invalid one.
        again: how many were read by an earlier run as well.
        invalid_again: how many of these are among the failures, which that run has counted.
    """

    count: int
    rows: PackedRows = attrs.field(repr=False)
    failures: Sequence[Failure]
    partly_valid: int = 0
    again: int = 0
    invalid_again: int = 0


@attrs.frozen
class RowSource:
    """The rows of a job.

    Attributes:
        read: reads them from the start.
        replayable: whether they can be read again; if not, a job with a journal spools them first.
        open: keeps open what they are read from, as long as the job needs it.
        settings: what else decides what is sent of them, as values for JSON; a job is resumed with the same.
    """

    read: Callable[[], AsyncGenerator[Slice, None]]
    replayable: bool
    open: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    def write_in(self, dialect: Dialect) -> "RowSource":
        """Return the same rows in the words of a dialect, so that whatever measures them counts those bytes."""
        write, templates = dialect.write_json, dict[RowTemplate, RowTemplate]()

        async def read() -> AsyncGenerator[Slice, None]:
            async with aclosing(self.read()) as slices:
                async for part in slices:
                    rows = part.rows
                    if rows.template not in templates:  # rows share operations only if their template is the same
                        templates[rows.template] = rows.template.change(write)
                    users = rows.users
                    if isinstance(users, TextUsers):
                        users = attrs.evolve(users, text=write(users.text.encode()).decode())
                    yield attrs.evolve(part, rows=attrs.evolve(rows, template=templates[rows.template], users=users))

        return attrs.evolve(self, read=read)


def check_rows(name: str, value: object, content: str, *, takes_path: bool = False) -> None:
    """Check that rows can be read from a value.

    Args:
        name: the name of the value.
        value: the value.
        content: what its rows are.
        takes_path: whether the path of a file may be passed in its place; an open file is refused then.

    Raises:
        InvalidArgument: they cannot; the message says what to do, if the value tells.
    """
    is_file = takes_path and isinstance(value, IOBase)
    if is_file or isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | AsyncIterable):
        raise InvalidArgument(name, f"must be an iterable or async iterable of {content}{_propose(value)}")


def _propose(value: object) -> str:
    """Return what to do with a value to get rows; nothing if it does not tell."""
    if isinstance(value, Mapping):
        return "; put a single one into a list"
    if isinstance(value, IOBase):
        return "; pass the path of the file"
    if isinstance(value, Awaitable):
        return "; await it first"
    if callable(getattr(value, "collect", None)):  # such as a LazyFrame of polars
        return "; collect it first"
    return "; call it first" if callable(value) else ""


def is_replayable(rows: object) -> bool:
    """Return whether rows can be read from the start any number of times, as those of a list can."""
    source = rows.batches if isinstance(rows, Columns) else rows
    return not isinstance(source, Iterator | AsyncIterator)
