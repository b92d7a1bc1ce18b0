"""HTML of values for notebooks: escaped and bounded."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from svc_async.printable import clean

__all__ = ["render_fields", "render_rows"]

_LONGEST = 200
"""Characters of a value."""
_MOST_FIELDS = 40
_MOST_COLUMNS = 12
_MOST_ROWS = 20


def render_fields(title: str, fields: Mapping[str, object]) -> str:
    """Return a table with a row for each field, those without a value left out."""
    found = [(name, value) for name, value in fields.items() if not _is_empty(value)]
    rows = "".join(
        f'<tr><th scope="row">{_render(name)}</th><td>{_render(value)}</td></tr>'
        for name, value in found[:_MOST_FIELDS]
    )
    return _wrap(title, rows, len(found) - _MOST_FIELDS, "fields")


def render_rows(title: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table with a row for each of the first records, and a column for each field that one of them has."""
    first = rows[:_MOST_ROWS]
    names = list(dict.fromkeys(name for row in first for name, value in row.items() if not _is_empty(value)))
    columns = names[:_MOST_COLUMNS]
    head = "".join(f'<th scope="col">{_render(name)}</th>' for name in columns)
    body = "".join(f"<tr>{_render_cells(row.get(name) for name in columns)}</tr>" for row in first)
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return _wrap(title, table, len(rows) - _MOST_ROWS, "records", hidden=len(names) - _MOST_COLUMNS)


def _render_cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{'' if _is_empty(value) else _render(value)}</td>" for value in values)


def _wrap(title: str, table: str, more: int, things: str, *, hidden: int = 0) -> str:
    notes = [f"{more:,} more {things}"] if more > 0 else []
    notes += [f"{hidden:,} more fields"] if hidden > 0 else []
    foot = f"<p>{' and '.join(notes)} not shown</p>" if notes else ""
    return f"<div><table><caption>{_render(title)}</caption>{table}</table>{foot}</div>"


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], {}, ())


def _render(value: object) -> str:
    text = str(value)
    text = clean(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
    return escape(text)
