"""Cuts lists into pages.

A cursor names a position, (value of the sort attribute, order of creation), so that writes between two pages
neither skip nor repeat a record. It is opaque, tagged with a key of the sandbox, and bound to the list, its filters
and its order.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import msgspec

from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.state.store import Row

__all__ = ["Page", "Paginator"]

_UNBOUND = ("cursor", "count", "with_total_count")
_TAG = 10
_DEFAULT_SORT = "created_at-asc"  # Unspecified: the order of a list without `sort_by` (ASM-12)


class _Mark(NamedTuple):
    """The end of a page; `paused` once the empty page was returned."""

    value: str
    position: int
    paused: bool = False


@attrs.frozen
class Page:
    """One page of a list.

    Attributes:
        total: the total count, if it was requested.
    """

    rows: Sequence[Row]
    next_cursor: str | None
    total: int | None = None


@attrs.frozen
class Paginator:
    """Cuts lists into pages."""

    secret: bytes = attrs.field(repr=False)
    empty_before_last: bool = False

    def paginate(
        self, rows: Iterable[Row], *, listing: str, params: Mapping[str, Any], sortable: Sequence[str]
    ) -> Page:
        """Return the page that the parameters ask for.

        Raises:
            Refusal: `sort_by` or `cursor` is invalid, or `cursor` is combined with `with_total_count`.
        """
        # Unspecified: the form <attribute>-asc or <attribute>-desc (ASM-99).
        sort_by = params.get("sort_by")
        attribute, _, direction = (sort_by or _DEFAULT_SORT).rpartition("-")
        if sort_by is not None and (attribute not in sortable or direction not in ("asc", "desc")):
            choices = ", ".join(sortable)
            problem = Problem("INVALID_PARAMETER", f"sort_by must be <attribute>-asc or -desc, of {choices}", "sort_by")
            raise Refusal(400, problem, rule="GEN-08", basis=Basis.SPEC)
        descending = direction == "desc"
        filters = sorted((name, value) for name, value in params.items() if name not in _UNBOUND)
        bound = msgspec.json.encode([listing, filters, attribute, descending])
        ordered = sorted(rows, key=lambda row: _position(row, attribute), reverse=descending)
        total = len(ordered) if params.get("with_total_count") else None
        mark = self._open(params, bound)
        if mark is not None:
            ended = (mark.value, mark.position)
            ordered = [
                row
                for row in ordered
                if (_position(row, attribute) < ended if descending else _position(row, attribute) > ended)
            ]
        count = params["count"]
        if len(ordered) > count:
            last = _position(ordered[count - 1], attribute)
            return Page(ordered[:count], self._seal(_Mark(*last), bound), total)
        if self.empty_before_last and mark is not None and not mark.paused:
            return Page([], self._seal(mark._replace(paused=True), bound), total)
        return Page(ordered, None, total)

    def _seal(self, mark: _Mark, bound: bytes) -> str:
        payload = msgspec.json.encode(mark)
        return base64.urlsafe_b64encode(self._tag(payload, bound) + payload).decode().rstrip("=")

    def _open(self, params: Mapping[str, Any], bound: bytes) -> _Mark | None:
        cursor = params.get("cursor")
        if cursor is None:
            return None
        if params.get("with_total_count"):
            problem = Problem("EXCLUSIVE_PARAMETERS", "cursor and with_total_count exclude each other", "cursor")
            raise Refusal(400, problem, rule="GEN-09", basis=Basis.SPEC)
        try:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except ValueError:
            raw = b""
        tag, payload = raw[:_TAG], raw[_TAG:]
        if not hmac.compare_digest(tag, self._tag(payload, bound)):
            # Unspecified: that a cursor of another list, filter or order is refused (ASM-13).
            problem = Problem("INVALID_PARAMETER", "cursor is not one that this list gave", "cursor")
            raise Refusal(400, problem, rule="GEN-07", basis=Basis.SPEC)
        return msgspec.json.decode(payload, type=_Mark)

    def _tag(self, payload: bytes, bound: bytes) -> bytes:
        return hmac.new(self.secret, bound + b"\0" + payload, hashlib.sha256).digest()[:_TAG]


def _position(row: Row, attribute: str) -> tuple[str, int]:
    value = row.fields.get(attribute)
    return ("" if value is None else str(value), row.position)
