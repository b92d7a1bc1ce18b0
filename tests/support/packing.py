"""Rows with small users, packed, and what the bodies of their batches contain."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from svc_async.batch.packing.batch import Batch, OperationFrame, PackedRows
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import PLAIN, RowTemplate, TextUsers

__all__ = ["NOW", "Operation", "encode_user", "feed", "pack_rows", "read_body", "read_numbers"]

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)


@attrs.frozen
class Operation:
    """A group of operations of one name."""

    name: str = "U"

    @property
    def overhead(self) -> int:
        frame = self.build_frame(NOW)
        return len(frame.head) + len(frame.tail)

    def build_frame(self, now: datetime) -> OperationFrame:
        return OperationFrame(f'{{"t":"{self.name}","u":[', f'],"at":"{now:%H:%M}"}}')

    def to_plain(self) -> str:
        return self.name


def pack_rows(
    users: Sequence[str],
    *,
    keys: Sequence[int],
    first: int = 0,
    operation: Operation | None = None,
    template: RowTemplate = PLAIN,
) -> PackedRows:
    positions = Positions.pack(range(first, first + len(users)))
    return PackedRows(operation or Operation(), template, TextUsers.pack(keys, users), positions)


def encode_user(number: int, length: int = 1) -> str:
    return json.dumps({"n": f"{number:0{length}}"}, separators=(",", ":"))


def read_body(batch: Batch) -> list[dict[str, Any]]:
    body = batch.write_body()
    joined = b"".join(body.blocks)
    assert len(joined) == body.size == batch.size
    operations: list[dict[str, Any]] = json.loads(joined)
    assert len(operations) == batch.operations
    assert sum(len(operation["u"]) for operation in operations) == batch.rows
    return operations


def read_numbers(batches: Sequence[Batch]) -> list[int]:
    return [int(each["n"]) for batch in batches for operation in read_body(batch) for each in operation["u"]]


def feed(packer: Packer, users: Sequence[str], keys: Sequence[int] | None = None, **options: Any) -> list[Batch]:
    return packer.feed(pack_rows(users, keys=keys or range(len(users)), **options), NOW)
