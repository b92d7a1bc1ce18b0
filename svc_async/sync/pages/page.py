"""A page of a state: some rows in packed columns; no I/O.

A row has a place in its page, the same in each column:

    ids            24 bytes: the key, and a digest of the content
    rests          16 bytes: what is missing from the key to make the hash by which the row is removed
    names          what removes a row that is not named by a hash
    service_keys   the service's own keys
    days, flags    the mark; a place without a mark is free

A page holds the rows whose keys end in the same bits, counted from the lowest of the first two bytes. Its number in the
file is `pages + index`, so that a page that is divided in two has a new number: `7` becomes `7 + pages` and `7 + 2 *
pages`.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from struct import Struct

import attrs

from svc_async.sync.pages.marks import NEVER

__all__ = [
    "ID_SIZE",
    "KEY_SIZE",
    "MAX_PAGES",
    "REST_SIZE",
    "DamagedState",
    "StatePage",
    "count_pages",
    "find_page",
    "pack_numbers",
    "pack_texts",
    "split_columns",
    "unpack_numbers",
    "unpack_texts",
]

KEY_SIZE, ID_SIZE, REST_SIZE = 16, 24, 16
MAX_PAGES = 4_096
_ROWS_PER_PAGE = 12_288
_TOGETHER = 512
_BIG_ENDIAN = sys.byteorder == "big"


class DamagedState(ValueError):
    """What was read is not what was written."""


def count_pages(rows: int) -> int:
    """Return into how many pages this number of rows is divided."""
    pages = 1
    while pages * _ROWS_PER_PAGE < rows and pages < MAX_PAGES:
        pages *= 2
    return pages


def find_page(key: bytes, pages: int) -> int:
    """Return the index of the page of a key."""
    return int.from_bytes(key[:2], "little") & (pages - 1)


def pack_numbers(numbers: "array[int]") -> bytes:
    """Return numbers as bytes, the lowest byte first."""
    return _in_order(numbers).tobytes()


def unpack_numbers(typecode: str, packed: bytes) -> "array[int]":
    """Return the numbers that were packed.

    Raises:
        DamagedState: they are not whole.
    """
    numbers = array(typecode)
    if len(packed) % numbers.itemsize:
        raise DamagedState
    numbers.frombytes(packed)
    return _in_order(numbers)


def pack_texts(texts: Sequence[bytes]) -> bytes:
    """Return texts as bytes; nothing if all of them are empty."""
    if not any(texts):
        return b""
    return pack_numbers(array("I", map(len, texts))) + b"".join(texts)


def unpack_texts(packed: bytes, count: int) -> list[bytes]:
    """Return the texts that were packed.

    Raises:
        DamagedState: they are not whole.
    """
    if not packed:
        return []
    lengths = unpack_numbers("I", packed[: 4 * count])
    if len(lengths) != count or len(packed) != 4 * count + sum(lengths):
        raise DamagedState
    bounds = accumulate(lengths, initial=4 * count)
    return [packed[start:end] for start, end in pairwise(bounds)]


def split_columns(rows: bytes | bytearray, layout: str) -> Iterator[bytes]:
    """Yield one field of each of some rows of equal size.

    Args:
        rows: the rows, one after the other.
        layout: the fields of a row as `struct` has them, such as `16s8x`.
    """
    whole = len(rows) - len(rows) % (_compile(layout).size * _TOGETHER)
    many = _compile(layout * _TOGETHER).iter_unpack(rows[:whole])  # not views: 3.12 crashes if it collects them unread
    return chain.from_iterable(chain(many, _compile(layout).iter_unpack(rows[whole:])))


@attrs.define
class StatePage:
    """The rows of a page, column by column; `names` and `service_keys` are empty if no row has any."""

    ids: bytearray = attrs.field(factory=bytearray)
    rests: bytearray = attrs.field(factory=bytearray)
    names: list[bytes] = attrs.field(factory=list[bytes])
    service_keys: list[bytes] = attrs.field(factory=list[bytes])
    days: "array[int]" = attrs.field(factory=lambda: array("H"))
    flags: bytearray = attrs.field(factory=bytearray)

    def __attrs_post_init__(self) -> None:
        sizes = {len(self.ids) // ID_SIZE, len(self.rests) // REST_SIZE, len(self.days), len(self.flags)}
        sizes |= {len(column) for column in (self.names, self.service_keys) if column}
        if len(sizes) != 1 or len(self.ids) % ID_SIZE or len(self.rests) % REST_SIZE:
            raise DamagedState

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def used(self) -> Sequence[int]:
        """The places that hold a row."""
        if 0 not in self.flags:
            return range(len(self))
        return [place for place, flags in enumerate(self.flags) if flags]

    def extend(self, count: int) -> None:
        """Add free places at the end."""
        self.ids += bytes(ID_SIZE * count)
        self.rests += bytes(REST_SIZE * count)
        self.days.extend([NEVER] * count)
        self.flags += bytes(count)
        for column in (self.names, self.service_keys):
            if column:
                column.extend([b""] * count)

    def key(self, place: int) -> bytes:
        """Return the key of a row."""
        return bytes(self.ids[ID_SIZE * place : ID_SIZE * place + KEY_SIZE])

    def content(self, place: int) -> bytes:
        """Return the digest of the content of a row."""
        return bytes(self.ids[ID_SIZE * place + KEY_SIZE : ID_SIZE * (place + 1)])

    def set_content(self, place: int, content: bytes) -> None:
        """Change the digest of the content of a row."""
        self.ids[ID_SIZE * place + KEY_SIZE : ID_SIZE * (place + 1)] = content

    def rest(self, place: int) -> bytes:
        """Return the rest of the hash of a row."""
        return bytes(self.rests[REST_SIZE * place : REST_SIZE * (place + 1)])

    def set_name(self, place: int, name: bytes) -> None:
        """Change the name of a row."""
        if name and not self.names:
            self.names = [b""] * len(self)
        if self.names:
            self.names[place] = name

    def set_service_key(self, place: int, service_key: bytes) -> None:
        """Change the service's key of a row."""
        if service_key and not self.service_keys:
            self.service_keys = [b""] * len(self)
        if self.service_keys:
            self.service_keys[place] = service_key

    def divide(self, index: int, pages: int, parts: int) -> "Iterator[tuple[int, StatePage]]":
        """Divide a page; yield the index and the rows of each part.

        Args:
            index: the index of this page.
            pages: how many pages there are.
            parts: how many there are to be.
        """
        if pages == parts:
            yield index, self
            return
        places: dict[int, list[int]] = {part: [] for part in range(index, parts, pages)}
        for place in self.used:
            places[find_page(self.key(place), parts)].append(place)
        for part, chosen in places.items():
            yield part, self.select(chosen)

    def select(self, places: Iterable[int]) -> "StatePage":
        """Return a page of some of the rows."""
        chosen = list(places)
        return StatePage(
            bytearray(b"".join(self.ids[ID_SIZE * place : ID_SIZE * (place + 1)] for place in chosen)),
            bytearray(b"".join(self.rests[REST_SIZE * place : REST_SIZE * (place + 1)] for place in chosen)),
            [self.names[place] for place in chosen] if self.names else [],
            [self.service_keys[place] for place in chosen] if self.service_keys else [],
            array("H", (self.days[place] for place in chosen)),
            bytearray(self.flags[place] for place in chosen),
        )


def _in_order(numbers: "array[int]") -> "array[int]":
    """Return numbers in the other order of bytes, if this machine puts the highest first."""
    if _BIG_ENDIAN:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


@cache
def _compile(layout: str) -> Struct:
    return Struct(layout)
