"""The file beside a journal that keeps the rows of a source that can be read only once, hashed as they will be sent."""

import asyncio
import os
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import msgspec

from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.rows import EncodedRows
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import UnusableFile
from svc_async.private_files import create_private
from svc_async.users.template import RowTemplate

__all__ = ["read_spool", "spool"]

_LENGTH = 4
"""Bytes of the length before each record."""


async def spool(source: RowSource, path: Path) -> None:
    """Write the rows of a source to a file, hashed as they will be sent.

    Args:
        source: rows that can be read only once.
        path: the file.

    Raises:
        UnusableFile: the file cannot be written.
    """
    try:
        with _create(path) as file:
            async with aclosing(source.read()) as slices:
                async for each in slices:
                    _write(file, each)
                    await asyncio.sleep(0)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnusableFile("journal", path, f"cannot be written: {error.strerror}") from None


def read_spool(path: Path, parse_group: Callable[[Any], OperationGroup]) -> RowSource:
    """Return the spooled rows as a source.

    Args:
        path: the file.
        parse_group: parses a group from its plain values.

    Raises:
        UnusableFile: the file does not exist.
    """
    if not path.exists():
        raise UnusableFile("journal", path, "is missing; the rows of the job were spooled to it")
    return RowSource(lambda: _read(path, parse_group), replayable=True)


def _create(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)  # what a run that was killed has left, or a link that was put there
    return create_private(path)


def _write(file: BinaryIO, part: Slice) -> None:
    rows = part.rows
    template = [rows.template.before, rows.template.between, rows.template.after]
    keys, positions = array("Q", rows.keys).tobytes(), array("q", rows.positions).tobytes()
    failures = [attrs.astuple(failure) for failure in part.failures]
    record = msgspec.msgpack.encode(
        [
            part.count,
            rows.group.to_plain(),
            template,
            keys,
            "\n".join(rows.users),
            positions,
            failures,
            part.partly_valid,
        ]
    )
    file.write(len(record).to_bytes(_LENGTH) + record)


async def _read(path: Path, parse_group: Callable[[Any], OperationGroup]) -> AsyncGenerator[Slice, None]:
    templates: dict[tuple[str, ...], RowTemplate] = {}  # rows share operations only if their template is the same
    with path.open("rb") as file:
        while length := file.read(_LENGTH):
            record = msgspec.msgpack.decode(file.read(int.from_bytes(length)))
            count, group, template, keys, users, positions, failures, partly_valid = record
            rows = EncodedRows(
                parse_group(group),
                templates.setdefault(tuple(template), RowTemplate(*template)),
                _unpack_numbers("Q", keys),
                users.split("\n") if keys else [],
                _unpack_numbers("q", positions),
            )
            yield Slice(count, rows, [Failure(*failure) for failure in failures], partly_valid)


def _unpack_numbers(typecode: str, packed: bytes) -> Sequence[int]:
    numbers = array(typecode)
    numbers.frombytes(packed)
    return numbers.tolist()
