"""Records in collections, with transactions: the changes of a failed request are undone."""

import itertools
import random
from collections.abc import Callable, Container, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import attrs

from svc_async.sandbox.state.audiences import Audience

__all__ = ["Change", "Collection", "Ids", "Row", "Store", "format_milliseconds", "format_time"]

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_STEP = 37


def format_time(moment: datetime) -> str:
    """Format a time as the service does (GEN-12)."""
    # Not strftime(), which writes years before 1000 with fewer digits on some systems.
    return f"{moment.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()}Z"


def format_milliseconds(moment: datetime) -> str:
    """Format a time as posts in events have it, with milliseconds."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


@attrs.frozen
class Row:
    """The present version of a record.

    Attributes:
        position: its position in the order of creation.
        fields: all fields; those whose name begins with `_` are not shown.
        owner: the account that it belongs to; for an account or a catalog, the user.
        key: what the record is found by, if not by its `id`.
    """

    position: int
    owner: str
    fields: Mapping[str, Any]
    key: str | None = None

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.fields["id"]) if self.key is None else self.key

    def show(self, *, without: Container[str] = ()) -> dict[str, Any]:
        """Return the fields that the service shows."""
        return {name: value for name, value in self.fields.items() if not name.startswith("_") and name not in without}

    @property
    def deleted(self) -> bool:
        """Whether it was deleted; it is kept (GEN-14)."""
        return bool(self.fields.get("deleted"))


@attrs.frozen
class Change:
    """A change of a record.

    Attributes:
        user: who made it; None for the seed.
        before: None if the record was created.
        after: None if it was removed.
    """

    time: datetime
    user: str | None
    kind: str
    before: Row | None
    after: Row | None


class Ids:
    """Ids in the service's form, which depend on the seed only."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._last: dict[str, int] = {}

    def next(self, kind: str, length: int = 6) -> str:
        """Return the next id of a kind: base 36, increasing."""
        low = int("1" + "0" * (length - 1), len(_DIGITS))
        start = low + random.Random(f"{self._seed}:{kind}").randrange(low)  # noqa: S311 ids, not secrets
        number = self._last.get(kind, start) + _STEP
        self._last[kind] = number
        digits = ""
        while number:
            number, rest = divmod(number, len(_DIGITS))
            digits = _DIGITS[rest] + digits
        return digits

    def secret(self, kind: str, length: int = 40) -> str:
        """Return a key or a token; the same for the same seed."""
        return "".join(random.Random(f"{self._seed}:{kind}").choices(_DIGITS, k=length))  # noqa: S311 seeded, no real secret


class Collection:
    """Records of one kind, by id, in the order of their creation."""

    def __init__(self, store: "Store", kind: str) -> None:
        self._store = store
        self._rows: dict[str, Row] = {}
        self._positions = itertools.count()
        self.kind = kind

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str, *, owner: str | None = None, with_deleted: bool = False) -> Row | None:
        """Find a record, unless it has another owner or is deleted."""
        row = self._rows.get(key)
        if row is None or (owner is not None and row.owner != owner) or (row.deleted and not with_deleted):
            return None
        return row

    def add(self, owner: str, fields: Mapping[str, Any], *, key: str | None = None) -> Row:
        """Add a new record, dated now."""
        now = format_time(self._store.now())
        dated = {**fields, "created_at": now, "updated_at": now, "deleted": fields.get("deleted", False)}
        row = Row(next(self._positions), owner, dated, key)
        self._put(row)
        return row

    def change(self, row: Row, **fields: Any) -> Row:
        """Change some fields of a record."""
        changed = {**row.fields, **fields, "updated_at": format_time(self._store.now())}
        row = attrs.evolve(row, fields=changed)
        self._put(row)
        return row

    def replace(self, row: Row, fields: Mapping[str, Any]) -> Row:
        """Replace all fields of a record."""
        dates = {"created_at": row.fields["created_at"], "updated_at": format_time(self._store.now()), "deleted": False}
        row = attrs.evolve(row, fields={**fields, **dates})
        self._put(row)
        return row

    def delete(self, row: Row) -> Row:
        """Mark a record as deleted."""
        return self.change(row, deleted=True)

    def remove(self, row: Row) -> None:
        """Remove a record."""
        del self._rows[row.id]
        self._store.note(self.kind, row, None, lambda: self._restore(row.id, row))

    def _put(self, row: Row) -> None:
        before = self._rows.get(row.id)
        self._rows[row.id] = row
        self._store.note(self.kind, before, row, lambda: self._restore(row.id, before))

    def _restore(self, key: str, before: Row | None) -> None:
        if before is None:
            del self._rows[key]
        else:
            self._rows[key] = before


class Store:
    """All state of one sandbox, in memory."""

    def __init__(self, *, seed: int, now: Callable[[], datetime]) -> None:
        self.now = now
        self.ids = Ids(seed)
        self.audiences: dict[str, Audience] = {}
        self._collections: dict[str, Collection] = {}
        self.changes: list[Change] = []
        self._user: str | None = None
        self._undo: list[Callable[[], object]] | None = None

    def __getitem__(self, kind: str) -> Collection:
        return self._collections.setdefault(kind, Collection(self, kind))

    @contextmanager
    def transaction(self, user: str | None = None) -> Generator[None]:
        """Undo every change of the block, made by a user, if it fails."""
        self._undo, self._user = [], user
        try:
            yield
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            raise
        finally:
            self._undo = self._user = None

    def note(self, kind: str, before: Row | None, after: Row | None, undo: Callable[[], None]) -> None:
        """Record a change and how to undo it."""
        self.changes.append(Change(self.now(), self._user, kind, before, after))
        if self._undo is not None:
            self._undo += [self.changes.pop, undo]
