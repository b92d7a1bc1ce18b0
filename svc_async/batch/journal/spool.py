"""The file beside a journal that keeps the rows of a source that can be read only once, hashed as they will be sent.

It is a sequence of records with a length and a checksum each. The last record is the number of the others.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import msgspec

from svc_async.batch.journal.resume import SourceDigest
from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.positions import Positions
from svc_async.batch.packing.rows import PackedRows
from svc_async.batch.report import Failure
from svc_async.batch.source import RowSource, Slice
from svc_async.errors import UnusableFile
from svc_async.private_files import replace_private
from svc_async.users.packed import HashedUsers, PackedUsers, TextUsers
from svc_async.users.template import RowTemplate

__all__ = ["read_spool", "spool"]

_NUMBER = 4
"""Bytes of the length and of the checksum before each record."""


async def spool(source: RowSource, path: Path) -> str:
    """Write the rows of a source to a file, hashed as they will be sent, and return their digest.

    Args:
        source: rows that can be read only once.
        path: the file.

    Raises:
        UnusableFile: the file cannot be written.
    """
    digest, count = SourceDigest(), 0
    try:
        with replace_private(path) as file:
            async with aclosing(source.read()) as slices:
                async for each in slices:
                    _write(file, _to_plain(each))
                    digest.update(each)
                    count += 1
                    await asyncio.sleep(0)
            _write(file, count)
    except OSError as error:
        raise UnusableFile("journal", path, f"cannot be written: {error.strerror}") from None
    return digest.checkpoint.digest


def read_spool(path: Path, parse_group: Callable[[Any], OperationGroup]) -> RowSource:
    """Return the spooled rows as a source.

    Args:
        path: the file.
        parse_group: parses a group from its plain values.

    Raises:
        UnusableFile: the file does not exist; on reading it: it is damaged.
    """
    if not path.exists():
        raise UnusableFile("journal", path, "is missing; the rows of the job were spooled to it")
    return RowSource(lambda: _read(path, parse_group), replayable=True)


def _to_plain(part: Slice) -> list[Any]:
    rows = part.rows
    users = [isinstance(rows.users, HashedUsers), *attrs.astuple(rows.users)]
    positions = rows.positions.to_plain()
    failures = [attrs.astuple(failure) for failure in part.failures]
    template = attrs.astuple(rows.template)
    return [part.count, rows.group.to_plain(), template, users, positions, failures, part.partly_valid]


def _write(file: BinaryIO, plain: list[Any] | int) -> None:
    record = msgspec.msgpack.encode(plain)
    file.write(len(record).to_bytes(_NUMBER) + zlib.crc32(record).to_bytes(_NUMBER) + record)


async def _read(path: Path, parse_group: Callable[[Any], OperationGroup]) -> AsyncGenerator[Slice, None]:
    templates: dict[str, RowTemplate] = {}  # rows share operations only if their template is the same
    records = 0
    with path.open("rb") as file:
        while not isinstance(record := _read_record(path, file), int):
            records += 1
            count, group, template, users, positions, failures, partly_valid = record
            rows = PackedRows(
                parse_group(group),
                templates.setdefault(repr(template), _parse_template(*template)),
                _parse_users(*users),
                Positions.from_plain(positions, most=count),
            )
            yield Slice(count, rows, [Failure(*failure) for failure in failures], partly_valid)
        if record != records or file.read(1):
            raise _report_damage(path)


def _read_record(path: Path, file: BinaryIO) -> Any:
    length, checksum = (int.from_bytes(file.read(_NUMBER)) for _ in range(2))
    # A length that is damaged may be any; no more is read than the file has.
    record = file.read(length) if length <= path.stat().st_size else b""
    if not record or zlib.crc32(record) != checksum:
        raise _report_damage(path)
    return msgspec.msgpack.decode(record)


def _report_damage(path: Path) -> UnusableFile:
    advice = "delete it and its journal after the quarantine, and run the job again with the same rows"
    return UnusableFile("journal", path, f"is damaged; {advice}")


def _parse_template(before: str, between: str, after: str, openings: Sequence[str], closing: str) -> RowTemplate:
    return RowTemplate(before, between, after, tuple(openings), closing)


def _parse_users(is_hashed: bool, *fields: Any) -> PackedUsers:  # noqa: FBT001 - as it is stored
    return HashedUsers(*fields) if is_hashed else TextUsers(*fields)
