"""The rows of a source and the removals from a list, as a sync compares them; no I/O."""

from collections.abc import Callable, Iterator, Sequence

import attrs

__all__ = ["Entries", "FindLinked", "Removal", "SelectRows", "WrittenIdentifiers", "has_name"]

_FIRST_NAMED_KIND = 6


def has_name(kind: int) -> bool:
    """Return whether a row of this kind is removed by a name, which the state keeps, and not by a hash."""
    return kind >= _FIRST_NAMED_KIND


@attrs.frozen
class Entries:
    """Some rows of a snapshot, column by column.

    Attributes:
        positions: the position of each row in the snapshot, ascending.
        ids: 24 bytes for each row: 16 that identify it, and 8 of a digest of all that is sent.
        kinds: for each row what it is identified by: 1 to 5 for hashes, 6 and 7 for names.
        rests: for each row the other 16 bytes of the hash by which it is removed; or none.
        names: for each row the name by which it is removed, or nothing if it is a hash; or none.
        invalid_rows: positions of rows without a key; they are among the upserts, so that they fail there.
        size: bytes of what would be sent.
        is_linked: whether removing a row might remove another one, which has what identifies it.
    """

    positions: Sequence[int]
    ids: bytes | bytearray
    kinds: bytes
    rests: bytes | bytearray = b""
    names: Sequence[bytes] = ()
    invalid_rows: Sequence[int] = ()
    size: int = 0
    is_linked: bool = False

    def shift(self, first: int) -> "Entries":
        """Return the same rows, of which the first is at another position."""
        positions = self.positions
        if isinstance(positions, range):
            shifted: Sequence[int] = range(positions.start + first, positions.stop + first)
        else:
            shifted = [position + first for position in positions]
        return attrs.evolve(self, positions=shifted, invalid_rows=[row + first for row in self.invalid_rows])


@attrs.frozen
class Removal:
    """A row to remove.

    Attributes:
        number: its number in the part.
        kind: what it is identified by.
        name: what names it: the 32 bytes of its hash, or its name.
        service_key: the service's own key, if it is known.
    """

    number: int
    kind: int
    name: bytes
    service_key: str | None = None


@attrs.frozen
class WrittenIdentifiers:
    """Identifiers that a request beside the syncs was about to send, column by column.

    Attributes:
        kinds: the kind of each, as those of `Entries`.
        keys: the 16 bytes that identify a row whose first identifier it is.
        rests: the other 16 bytes of its hash, if it is one.
        names: what it is, if it is not a hash; else nothing.
    """

    kinds: bytes = b""
    keys: Sequence[bytes] = ()
    rests: Sequence[bytes] = ()
    names: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.kinds)

    def list_removals(self) -> list[Removal]:
        """Return removals by these identifiers."""
        columns = zip(self.kinds, self.keys, self.rests, self.names, strict=True)
        return [Removal(0, kind, name if has_name(kind) else key + rest) for kind, key, rest, name in columns]


SelectRows = Callable[[range], Sequence[int]]
"""Returns which of some consecutive rows of the snapshot are meant, counted from the first of them."""
FindLinked = Callable[[Sequence[Removal], SelectRows], Iterator[int]]
"""Yields the positions of the rows that have what identifies one of the removals, of those rows that are selected."""
