"""Cuts lists into pages.

A cursor names a position, (value of the sort attribute, order of creation), so that writes between two pages neither skip
nor repeat a record. It is opaque, tagged with a key of the sandbox, and bound to the list, its filters and its order.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from svc_async.sandbox.dialects import Basis, Problem, Refusal
from svc_async.sandbox.store import Row

__all__ = ["Page", "Pages"]

_UNBOUND = ("cursor", "count", "with_total_count")
_TAG = 10


@attrs.frozen
class Page:
    """One page of a list.

    Attributes:
        total: how many there are in all, where that was asked for.
    """

    rows: Sequence[Row]
    next_cursor: str | None
    total: int | None = None


@attrs.frozen
class Pages:
    """Cuts the rows of one request's list."""

    secret: bytes = attrs.field(repr=False)
    default_sort: str
    empty_before_last: bool = False

    def cut(self, rows: Iterable[Row], *, listing: str, params: Mapping[str, Any], sortable: Sequence[str]) -> Page:
        """Give the page that the parameters ask for.

        Raises:
            Refusal: `sort_by` or `cursor` are no good, or `cursor` comes with `with_total_count`.
        """
        attribute, descending = self._order(params.get("sort_by"), sortable)
        bound = msgspec.json.encode(
            [listing, sorted((k, v) for k, v in params.items() if k not in _UNBOUND), attribute, descending]
        )
        key = self._key(attribute)
        ordered = sorted(rows, key=key, reverse=descending)
        total = len(ordered) if params.get("with_total_count") else None
        pause = self.empty_before_last
        if (cursor := params.get("cursor")) is not None:
            if params.get("with_total_count"):
                problem = Problem("EXCLUSIVE_PARAMETERS", "cursor and with_total_count exclude each other", "cursor")
                raise Refusal(400, problem, rule="GEN-09", basis=Basis.SPEC)
            after, pause_over = self._open(cursor, bound)
            pause = pause and not pause_over
            ordered = [row for row in ordered if (key(row) < after if descending else key(row) > after)]
        return self._page(ordered, params["count"], bound, key=key, total=total, pause=pause, cursor=cursor)

    def _page(
        self, rest: list[Row], count: int, bound: bytes, *, key: Any, total: int | None, pause: bool, cursor: Any
    ) -> Page:
        if len(rest) <= count:
            if pause and cursor is not None:
                return Page([], self._seal(self._open(cursor, bound)[0], bound, pause_over=True), total)
            return Page(rest, None, total)
        return Page(rest[:count], self._seal(key(rest[count - 1]), bound), total)

    def _order(self, sort_by: str | None, sortable: Sequence[str]) -> tuple[str, bool]:
        # Unspecified: the form <attribute>-asc or <attribute>-desc (ASM-99).
        attribute, _, direction = (sort_by or self.default_sort).rpartition("-")
        if sort_by is not None and (attribute not in sortable or direction not in ("asc", "desc")):
            choices = ", ".join(sortable)
            problem = Problem("INVALID_PARAMETER", f"sort_by must be <attribute>-asc or -desc, of {choices}", "sort_by")
            raise Refusal(400, problem, rule="GEN-08", basis=Basis.SPEC)
        return attribute, direction == "desc"

    def _key(self, attribute: str) -> Any:
        def key(row: Row) -> tuple[str, int]:
            value = row.fields.get(attribute)
            return ("" if value is None else str(value), row.position)

        return key

    def _seal(self, position: tuple[str, int], bound: bytes, *, pause_over: bool = False) -> str:
        payload = msgspec.json.encode([*position, pause_over])
        return base64.urlsafe_b64encode(self._tag(payload, bound) + payload).decode().rstrip("=")

    def _open(self, cursor: str, bound: bytes) -> tuple[tuple[str, int], bool]:
        # Unspecified: a cursor of another list, filter or order is refused (ASM-13).
        try:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except (ValueError, binascii.Error):
            raw = b""
        tag, payload = raw[:_TAG], raw[_TAG:]
        if not hmac.compare_digest(tag, self._tag(payload, bound)):
            problem = Problem("INVALID_PARAMETER", "cursor is not one that this list gave", "cursor")
            raise Refusal(400, problem, rule="GEN-07", basis=Basis.SPEC)
        value, position, pause_over = msgspec.json.decode(payload)
        return (value, position), pause_over

    def _tag(self, payload: bytes, bound: bytes) -> bytes:
        return hmac.new(self.secret, bound + b"\0" + payload, hashlib.sha256).digest()[:_TAG]
