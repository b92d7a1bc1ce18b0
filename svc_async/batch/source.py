"""What jobs read: slices of encoded rows, from a source that can be read again or is put aside on the disk."""

import asyncio
import itertools
import os
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import attrs
import msgspec

from svc_async.batch.packing.packer import Group, Load
from svc_async.batch.report import Failure
from svc_async.errors import InvalidArgument
from svc_async.users.template import Form

__all__ = ["Slice", "Source", "in_parts", "is_replayable", "put_aside", "taken_aside"]

T = TypeVar("T")

_PART = 512
"""Rows between two turns of the event loop."""
_LENGTH = 4
"""Bytes that tell the length of a record."""


@attrs.frozen
class Slice:
    """Some rows of a source.

    Attributes:
        rows: how many were read.
        load: those that can be sent.
        failures: the others.
    """

    rows: int
    load: Load
    failures: Sequence[Failure]


@attrs.frozen
class Source:
    """Where the rows of a job come from.

    Attributes:
        read: reads them from the start.
        replayable: whether it gives the same rows each time; else they are put aside before a journal is kept.
    """

    read: Callable[[], AsyncGenerator[Slice, None]]
    replayable: bool


def is_replayable(rows: object) -> bool:
    """Whether rows can be read from the start any number of times, as those of a list can."""
    return not isinstance(rows, Iterator | AsyncIterator)


async def in_parts(rows: Iterable[T] | AsyncIterable[T], size: int = _PART) -> AsyncGenerator[list[T], None]:
    """Read rows some hundreds at a time; what came before a source failed is given before its exception."""
    source = aiter(rows) if isinstance(rows, AsyncIterable) else iter(rows)
    while True:
        part: list[T] = []
        failure: Exception | None = None
        try:
            if isinstance(source, AsyncIterator):
                await _read(source, part, size)
            else:
                part.extend(itertools.islice(source, size))
        except Exception as error:  # noqa: BLE001 - whatever a source may raise
            failure = error
        if part:
            yield part
        if failure is not None:
            raise failure
        if len(part) < size:
            return


async def _read(source: AsyncIterator[T], part: list[T], size: int) -> None:
    while len(part) < size:
        try:
            part.append(await anext(source))
        except StopAsyncIteration:
            return


async def put_aside(source: Source, path: Path) -> None:
    """Put the rows of a source aside, hashed as they will be sent.

    Args:
        source: what can be read only once.
        path: the file.

    Raises:
        InvalidArgument: the file cannot be written.
    """
    try:
        with _writable(path) as file:
            async with aclosing(source.read()) as slices:
                async for each in slices:
                    _put(file, each)
                    await asyncio.sleep(0)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidArgument("journal", f"cannot be kept: {path} cannot be written: {error.strerror}") from None


def taken_aside(path: Path, group: Callable[[Any], Group]) -> Source:
    """Read the rows that were put aside.

    Args:
        path: the file.
        group: makes a group again of its plain values.

    Raises:
        InvalidArgument: the file is gone.
    """
    if not path.exists():
        raise InvalidArgument("journal", f"needs {path}, where the rows of its job were put aside")
    return Source(lambda: _read_again(path, group), replayable=True)


def _writable(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _put(file: BinaryIO, part: Slice) -> None:
    load = part.load
    form = [load.form.before, load.form.between, load.form.after]
    keys, positions = array("Q", load.keys).tobytes(), array("q", load.positions).tobytes()
    failures = [attrs.astuple(failure) for failure in part.failures]
    record = msgspec.msgpack.encode(
        [part.rows, load.group.plain(), form, keys, "\n".join(load.users), positions, failures]
    )
    file.write(len(record).to_bytes(_LENGTH) + record)


async def _read_again(path: Path, group: Callable[[Any], Group]) -> AsyncGenerator[Slice, None]:
    forms: dict[tuple[str, ...], Form] = {}  # rows are alike only if their form is the same
    with path.open("rb") as file:
        while length := file.read(_LENGTH):
            record = msgspec.msgpack.decode(file.read(int.from_bytes(length)))
            rows, plain, form, keys, users, positions, failures = record
            load = Load(
                group(plain),
                forms.setdefault(tuple(form), Form(*form)),
                _numbers("Q", keys),
                users.split("\n") if keys else [],
                _numbers("q", positions),
            )
            yield Slice(rows, load, [Failure(*failure) for failure in failures])


def _numbers(kind: str, blob: bytes) -> Sequence[int]:
    numbers = array(kind)
    numbers.frombytes(blob)
    return numbers.tolist()
