"""The rows of a fragment that belong to one shard, and the bytes as which they are brought to it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from svc_async.batch.packing.positions import Positions
from svc_async.users.packed import HashedUsers, PackedUsers, TextUsers
from svc_async.users.template import RowTemplate

__all__ = ["CatalogRows", "RefusedRows", "ShardPart", "UserRows", "read_parts", "write_parts"]


@attrs.frozen
class UserRows:
    """Users that can be sent.

    Attributes:
        template: the JSON that they have in common.
        users: the users.
        rows: the row of each in its file, counted from 1.
    """

    template: RowTemplate
    users: PackedUsers
    rows: Positions


@attrs.frozen
class CatalogRows:
    """Products, or keys of products.

    Attributes:
        packed: the products, packed: many of them as objects would take ten times the memory.
        rows: the row of each in its file, counted from 1.
    """

    packed: bytes
    rows: Positions

    @classmethod
    def pack(cls, products: Sequence[Any], rows: Positions) -> "CatalogRows":
        """Pack products."""
        return cls(msgspec.msgpack.encode(products), rows)

    def unpack(self) -> Sequence[Any]:
        """Return the products."""
        products: Sequence[Any] = msgspec.msgpack.decode(self.packed)
        return products


@attrs.frozen
class RefusedRows:
    """Rows that break a rule.

    Attributes:
        reasons: the rules, and the identifier that each is about.
        numbers: for each row, which of them it breaks.
        rows: the rows in their file, counted from 1.
        partly_valid: how many rows of the fragment have a valid identifier beside an invalid one.
    """

    reasons: Sequence[tuple[str, str | None]]
    numbers: Sequence[int]
    rows: Positions
    partly_valid: int = 0

    @classmethod
    def pack(cls, rows: Positions, reasons: Iterable[tuple[str, str | None]], partly_valid: int = 0) -> "RefusedRows":
        """Pack rows, given the reason of each."""
        known: dict[tuple[str, str | None], int] = {}
        numbers = [known.setdefault(reason, len(known)) for reason in reasons]
        return cls(list(known), numbers, rows, partly_valid)

    def list_reasons(self) -> Sequence[tuple[str, str | None]]:
        """Return the reason of each row."""
        return [self.reasons[number] for number in self.numbers]


ShardPart = UserRows | CatalogRows | RefusedRows


def write_parts(fragment: int, parts: Iterable[ShardPart]) -> bytes:
    """Return parts of a fragment as bytes, with its number; none are no bytes."""
    plain = [(type(part).__name__, *_to_plain(part)) for part in parts]
    return msgspec.msgpack.encode((fragment, plain)) if plain else b""


def read_parts(content: bytes, templates: dict[Any, RowTemplate]) -> tuple[int, Sequence[ShardPart]]:
    """Return the number of the fragment and the parts that were written.

    Args:
        content: their bytes; there must be some.
        templates: those that were read before; rows share operations only if their template is the same object.
    """
    fragment, parts = msgspec.msgpack.decode(content)
    return fragment, [_PARSERS[kind](templates, *plain) for kind, *plain in parts]


def _to_plain(part: ShardPart) -> tuple[Any, ...]:
    rows = part.rows.to_plain()
    if isinstance(part, UserRows):
        is_hashed = isinstance(part.users, HashedUsers)
        return rows, attrs.astuple(part.template), is_hashed, attrs.astuple(part.users)
    if isinstance(part, CatalogRows):
        return len(part.rows), rows, part.packed
    return rows, part.reasons, part.numbers, part.partly_valid


def _parse_users(
    templates: dict[Any, RowTemplate],
    rows: Any,
    template: Any,
    is_hashed: bool,  # noqa: FBT001 - as it is stored
    users: Any,
) -> UserRows:
    found = templates.setdefault(repr(template), RowTemplate(*template))
    packed = HashedUsers(*users) if is_hashed else TextUsers(*users)
    return UserRows(found, packed, _parse_rows(rows, len(packed)))


def _parse_products(_: object, count: int, rows: Any, packed: bytes) -> CatalogRows:
    return CatalogRows(packed, _parse_rows(rows, count))


def _parse_refused(_: object, rows: Any, reasons: Any, numbers: Any, partly_valid: int) -> RefusedRows:
    return RefusedRows([tuple(reason) for reason in reasons], numbers, _parse_rows(rows, len(numbers)), partly_valid)


def _parse_rows(plain: Any, count: int) -> Positions:
    return Positions.from_plain(plain, most=count)


_PARSERS: Mapping[str, Any] = {
    "CatalogRows": _parse_products,
    "RefusedRows": _parse_refused,
    "UserRows": _parse_users,
}
