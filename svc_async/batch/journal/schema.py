"""The tables of a journal."""

from svc_async.sqlite import FileFormat

__all__ = ["FORMAT"]

FORMAT = FileFormat(
    kind="a journal",
    parameter="journal",
    application_id=0x73766A6C,
    version=2,
    tables="""
    CREATE TABLE job (
        about TEXT NOT NULL, lanes INTEGER NOT NULL,
        accepted INTEGER NOT NULL DEFAULT 0, coalesced INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
        requests INTEGER NOT NULL DEFAULT 0,
        rows_read INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL DEFAULT '', source_ended INTEGER NOT NULL DEFAULT 0,
        invalid_rows INTEGER NOT NULL DEFAULT 0, spooled INTEGER NOT NULL DEFAULT 0, report TEXT,
        runs INTEGER NOT NULL DEFAULT 0, began_at REAL NOT NULL, active_at REAL NOT NULL,
        worked REAL NOT NULL DEFAULT 0, slot_width REAL NOT NULL
    );
    CREATE TABLE note (note TEXT NOT NULL);
    CREATE TABLE timeline (slot INTEGER PRIMARY KEY, accepted INTEGER NOT NULL, requests INTEGER NOT NULL);
    CREATE TABLE lanes (lane INTEGER PRIMARY KEY, settled_up_to INTEGER NOT NULL);
    CREATE TABLE unsettled (sender INTEGER PRIMARY KEY, positions BLOB NOT NULL);
    CREATE TABLE intents (sender INTEGER PRIMARY KEY, intent BLOB NOT NULL);
    CREATE TABLE failures (position INTEGER PRIMARY KEY, reason TEXT NOT NULL, code TEXT NOT NULL, attribute TEXT)
    """,
)
