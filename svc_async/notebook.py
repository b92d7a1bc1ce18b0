"""HTML of values for notebooks: escaped and bounded."""

from collections.abc import Mapping, Sequence
from html import escape

from svc_async.printable import clean

__all__ = ["render_fields", "render_rows"]

_LEFT, _RIGHT = ' style="text-align:left"', ' style="text-align:right"'
"""Notebooks align all cells to the right, which fits numbers only."""
_TITLE = ' style="text-align:left;font-weight:bold"'
_LONGEST = 200
"""Characters of a value."""
_MOST_FIELDS = 40
_MOST_COLUMNS = 12
_MOST_ROWS = 20


def render_fields(title: str, fields: Mapping[str, object]) -> str:
    """Return a table with a row for each field, those without a value left out."""
    found = [(name, value) for name, value in fields.items() if not _is_empty(value)]
    rows = "".join(
        f'<tr><th scope="row"{_LEFT}>{_render(name)}</th>{_render_cell(value)}</tr>'
        for name, value in found[:_MOST_FIELDS]
    )
    return _wrap(title, rows, len(found) - _MOST_FIELDS, "fields")


def render_rows(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table with a row for each of the first records, and a column for each field that one of them has."""
    first = rows[:_MOST_ROWS]
    names = list(dict.fromkeys(name for row in first for name, value in row.items() if not _is_empty(value)))
    columns = names[:_MOST_COLUMNS]
    head = "".join(f'<th scope="col"{_align(first, name)}>{_render(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(_render_cell(row.get(name)) for name in columns)}</tr>" for row in first)
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return _wrap(title, table, len(rows) - _MOST_ROWS, "records", hidden=len(names) - _MOST_COLUMNS)


def _render_cell(value: object) -> str:
    if _is_number(value):
        return f"<td{_RIGHT}>{value:,}</td>"
    return f"<td{_LEFT}>{'' if _is_empty(value) else _render(value)}</td>"


def _align(rows: Sequence[Mapping[str, object]], name: str) -> str:
    """Return the alignment of a column, that of its first value."""
    values = (row[name] for row in rows if not _is_empty(row.get(name)))
    return _RIGHT if _is_number(next(values, None)) else _LEFT


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrap(title: str, table: str, more: int, things: str, *, hidden: int = 0) -> str:
    notes = [f"{more:,} more {things}"] if more > 0 else []
    notes += [f"{hidden:,} more fields"] if hidden > 0 else []
    foot = f"<p>{' and '.join(notes)} not shown</p>" if notes else ""
    return f"<div><table><caption{_TITLE}>{_render(title)}</caption>{table}</table>{foot}</div>"


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {}, ())


def _render(value: object) -> str:
    text = str(value)
    text = clean(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
    return escape(text)
