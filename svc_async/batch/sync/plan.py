"""What a sync compares, and the differences that it finds; no I/O."""

from collections.abc import Sequence
from typing import Literal

import attrs

from svc_async.errors import InvalidArgument

__all__ = ["Entries", "Part", "Plan"]

Part = Literal["removals", "upserts"]
"""The two parts of a plan. Rows of a part are numbered from 0."""


@attrs.frozen
class Entries:
    """Some rows of a snapshot, column by column.

    Attributes:
        positions: the position of each row in the snapshot, ascending.
        keys: 64 bits, unsigned, that identify a row.
        names: what a removal needs to name the row.
        contents: 64 bits, unsigned, of a digest of all that is sent.
        invalid_rows: positions of rows without a key; they are among the upserts, so that they fail there.
        size: bytes of what would be sent.
    """

    positions: Sequence[int]
    keys: Sequence[int]
    names: Sequence[bytes]
    contents: Sequence[int]
    invalid_rows: Sequence[int] = ()
    size: int = 0


@attrs.frozen(kw_only=True)
class Plan:
    """The differences between a snapshot and the list.

    Attributes:
        present: rows that were accepted before and have not expired.
        listed: distinct rows of the snapshot.
        additions: rows that are not on the list, or for which that is uncertain.
        changes: rows that are on the list with another content.
        refreshes: rows that are on the list and expire soon.
        removals: rows that are on the list and not in the snapshot.
        doubtful: rows that may be on the list after a run that was interrupted, and are not in the snapshot; they are
            removed as well.
        unchanged: rows for which nothing is sent.
        invalid_rows: rows of the snapshot without a key; they will fail.
        all_removals: how many rows are removed: `removals`, `doubtful`, and those `changes` that are replaced.
        size: bytes of the rows that are sent, approximately.
    """

    present: int
    listed: int
    additions: int
    changes: int
    refreshes: int
    removals: int
    doubtful: int
    unchanged: int
    invalid_rows: int
    all_removals: int
    size: int

    @property
    def upserts(self) -> int:
        """How many rows are sent."""
        return self.additions + self.changes + self.refreshes + self.invalid_rows

    @property
    def removal_share(self) -> float:
        """The share of the rows on the list that would be removed."""
        return self.removals / self.present if self.present else 0.0

    def check(self, max_removal_share: float) -> None:
        """Refuse a snapshot that would remove too much, such as a file that was cut off.

        Raises:
            InvalidArgument: more than this share of the rows on the list is not in the snapshot.
        """
        if self.removal_share > max_removal_share:
            raise InvalidArgument(
                "max_removal_share",
                f"is {max_removal_share:.0%}, but {self.removals:,} of the {self.present:,} rows on the list "
                f"({self.removal_share:.1%}) would be removed. Nothing was sent. Is the file complete?",
            )
