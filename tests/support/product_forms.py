"""The forms in which products are given: mappings, records, tables of Arrow, and files of all formats."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq

from svc_async.ads.products import Product

__all__ = ["FORMS", "Row"]

Row = Mapping[str, Any]
"""The attributes of a product; a blank one is None."""


def _list_names(rows: Sequence[Row]) -> Sequence[str]:
    return [*dict.fromkeys(name for row in rows for name in row)]


def _tabulate(rows: Sequence[Row]) -> Any:
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in _list_names(rows)})


def _write_csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, _list_names(rows))
        table.writeheader()
        table.writerows(rows)
    return path


def _write_xml(path: Path, rows: Sequence[Row]) -> Path:
    def write(name: str, value: object) -> str:
        return f"<g:{name}/>" if value is None else f"<g:{name}>{escape(str(value))}</g:{name}>"

    items = ("".join(write(name, value) for name, value in row.items()) for row in rows)
    content = "".join(f"<item>{item}</item>" for item in items)
    path.write_text(f'<rss xmlns:g="urn:products"><channel>{content}</channel></rss>')
    return path


def _write_lines(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _write_parquet(path: Path, rows: Sequence[Row]) -> Path:
    pq.write_table(_tabulate(rows), path)
    return path


FORMS: Mapping[str, Callable[[Path, Sequence[Row]], Any]] = {
    "csv": _write_csv,
    "mappings": lambda _, rows: [dict(row) for row in rows],
    "json lines": _write_lines,
    "xml": _write_xml,
    "parquet": _write_parquet,
    "arrow": lambda _, rows: _tabulate(rows),
    "records": lambda _, rows: [Product(**row) for row in rows],
}
"""Functions that return what a job takes; files are written to the path."""
