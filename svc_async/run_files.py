"""The files that a run leaves beside its source, and how each begins: none of them is a source of rows."""

import re

__all__ = ["FAILURE_COLUMNS", "PAGE_BEGINNING", "describe_run_file", "is_failure_list", "is_report"]

FAILURE_COLUMNS = ("position", "line", "field", "reason", "code", "file", "id")
"""The header of a list of failures."""
# Of lists as well that were written before they had the ids of products.
_FAILURE_HEADERS = tuple(",".join(columns).encode() for columns in (FAILURE_COLUMNS, FAILURE_COLUMNS[:-1]))
PAGE_BEGINNING = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="svc-async">
"""
"""How every page of a report begins, and nothing that another program has written."""
_match_json_report = re.compile(rb'\{\s*"version": \d+,\s*"command": "[^"\\]*",\s*"result": ').match
_SQLITE = b"SQLite format 3\0"
_APPLICATION = slice(68, 70)
"""Where the application id of a SQLite file is; those of journals, states and inboxes begin with `sv`."""
_SIDE_FILES = (b"\x37\x7f\x06", b"\x18\xe2\x2d\0", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
"""How the logs of SQLite, their indexes and rollback journals begin, which stay beside a database after a kill."""


def describe_run_file(start: bytes) -> str | None:
    """Return what a file is that a run has left, None if it is something else.

    Args:
        start: its first bytes, at least 512 if it has them.
    """
    if is_failure_list(start):
        return "is a list of the rows that failed in a run, and has none of their values"
    if is_report(start):
        return "is the report of a run"
    if start.startswith(_SQLITE) and start[_APPLICATION] == b"sv":
        return "is a journal, a state of a sync or an inbox"
    if start.startswith(_SIDE_FILES):
        return "belongs to a database of SQLite, such as a journal"
    return None


def is_failure_list(start: bytes) -> bool:
    """Return whether a file that begins so is a list of failures."""
    return start.partition(b"\n")[0].rstrip(b"\r") in _FAILURE_HEADERS


def is_report(start: bytes) -> bool:
    """Return whether a file that begins so is a report, as a page or in JSON."""
    return start.replace(b"\r\n", b"\n").startswith(PAGE_BEGINNING.encode()) or _match_json_report(start) is not None
