"""The file format of a journal."""

from svc_async.sqlite import FileFormat

__all__ = ["FORMAT"]

FORMAT = FileFormat(
    kind="a journal",
    parameter="journal",
    application_id=0x73766A6C,
    version=4,
    tables="""
    CREATE TABLE records (
        kind TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, number)
    ) WITHOUT ROWID
    """,
    advice="delete it after the quarantine and run the job again: what the service has already is sent once more",
)
