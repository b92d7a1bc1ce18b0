"""The options that commands share."""

import errno
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from svc_async.batch.settings import DEFAULTS, SYNC_DEFAULTS
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import BadIdentifiers

__all__ = [
    "BatchFlags",
    "ClusterFlags",
    "FeedFlags",
    "Flag",
    "InputFile",
    "JournalFlags",
    "JsonFlag",
    "RefreshFlags",
    "RunFlags",
    "StateUrl",
    "SyncFlags",
    "UserFlags",
    "WorkerFlags",
    "absolute",
    "check_port",
    "describe_listening",
]

_HIGHEST_PORT = 65_535


def check_port(port: int) -> None:
    """Check the port of a server.

    Raises:
        InvalidArgument: there is no such port.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise InvalidArgument("--port", f"must be from 0 to {_HIGHEST_PORT}; 0 takes a free one")


def describe_listening(error: OSError, host: str, port: int) -> str:
    """Return why a server cannot listen, and what to do if its port is in use."""
    reason = error.strerror or "not possible"
    advice = "; take another one with --port, or a free one with --port 0" if error.errno == errno.EADDRINUSE else ""
    return f"cannot listen on {host} port {port}: {reason}{advice}"


def absolute(path: str | Path) -> str:
    """Return the absolute path of a file; symbolic links stay, and so do `-` and URLs."""
    path = str(path)
    return path if path == "-" or is_url(path) else os.path.abspath(path)  # noqa: PTH100 - `resolve` follows links


def is_url(path: str) -> bool:
    """Return whether a source is a URL, which the workers of a cluster open."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def _refuse_option(_: object, file: str) -> None:
    if file.startswith("-") and file != "-":
        raise ValueError(f"Unknown option {file}.")


Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
JsonFlag = Annotated[bool, Parameter(name="--json", negative=(), show_default=False)]
StateUrl = Annotated[str | None, Parameter(name="--state-url")]
InputFile = Annotated[str | Path, Parameter(allow_leading_hyphen=True, validator=_refuse_option)]
"""A file, or a URL that the workers of a cluster can read, of which a `Path` would remove a slash; `-` is stdin.

It is parsed as a string, the first type; the other one has shells propose files.
"""


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RunFlags:
    """Where a job runs, and where its results go.

    Attributes:
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        state_url: The PostgreSQL database of the state that processes share. [default: state_url of the profile, or
            SVC_STATE_URL]
        sandbox: Try it: start an embedded sandbox and send the file there. No credentials are needed.
        failures_file: Write the rows that failed to this file. [default: FILE.LIST.OPERATION.failures.csv]
        max_failure_share: The exit code is 0 if at most this share of the rows failed, such as 0.01.
        report: Write a report to this file: .html to read, .json for programs.
        as_json: Print only JSON.
        omit_failures: With --json, print how many rows failed and not which.
    """

    profile: str | None = None
    state_url: StateUrl = attrs.field(default=None, repr=False)  # may contain a password
    sandbox: Flag = False
    failures_file: Path | None = None
    max_failure_share: float = 0.0
    report: Path | None = None
    as_json: JsonFlag = False
    omit_failures: Flag = False

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.max_failure_share <= 1:
            raise InvalidArgument("max_failure_share", "must be from 0 to 1, such as 0.01 for one row in a hundred")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class BatchFlags:
    """How the rows of a file are read and sent.

    Attributes:
        columns: The names of the columns of a CSV file without a header, such as email,phone.
        mapping: COLUMN=KEY assigns a column, such as Mail=email. COLUMN=- ignores a column, *=- all unknown columns.
            Repeatable.
        encoding: The file's encoding, such as cp1252, if it is not Unicode.
        empty: What stands for no value in the file, such as n/a,NULL,-.
        concurrency: The most requests in flight.
        ordering: "key" applies rows of one key in input order; "none" is for files without repeated keys.
        quarantine: Seconds before a request is sent again whose answer was lost.
    """

    columns: str | None = None
    mapping: Annotated[list[str], Parameter(name="--map", negative=(), show_default=False)] = attrs.field(
        factory=list[str]
    )
    encoding: str | None = None
    empty: str | None = None
    concurrency: int = DEFAULTS.concurrency
    ordering: Literal["key", "none"] = DEFAULTS.ordering
    quarantine: float = DEFAULTS.quarantine


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class JournalFlags:
    """How a job can be resumed.

    Attributes:
        journal: Keep a journal in this file. Repeat the command after a crash to resume the job.
        journals: Keep a journal of each run in this folder, for a job that repeats. A run that was cut off is resumed.
        job: Keep the journal in the shared state under this name. Repeat the command to resume the job, on any host.
        resume_spool: Use the rows that the first run has read from standard input.
    """

    journal: Path | None = None
    journals: Path | None = None
    job: str | None = None
    resume_spool: Annotated[Flag, Parameter(show=False)] = False


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class WorkerFlags:
    """Where the work of a job is done, if not in this process.

    Attributes:
        cluster: The address of a Dask scheduler, such as tls://scheduler:8786, whose workers do the job; or "local" for
            processes on this machine. Needs the extra "cluster", or "local-cluster" without a database of your own.
        workers: With --cluster local, the number of processes. [default: as many as there are processors]
    """

    cluster: str | None = None
    workers: int | None = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ClusterFlags(WorkerFlags):
    """Where the work of a job is done, if not in this process, and in how many parts.

    Attributes:
        shards: Into how many parts a new job is divided. [default: as the rows need]
    """

    shards: int | None = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class UserFlags:
    """How a file of users is read.

    Attributes:
        format: csv, tsv, jsonl or parquet (needs the extra "feeds"). [default: detected from the content]
        bad_identifiers: "fail" lists a row with an invalid identifier as failed; "drop" sends its other identifiers.
        phone_region: The region of all phone numbers without a country code, such as DE. Needs the extra "phone".
        users_per_operation: Users in one operation, from 1 up to what a request holds; with 1, a refusal names its row.
    """

    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    bad_identifiers: BadIdentifiers = "fail"
    phone_region: str | None = None
    users_per_operation: int = DEFAULTS.users_per_operation


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class FeedFlags:
    """How a feed of products is read.

    Attributes:
        format: csv, tsv, xml, jsonl or parquet (needs the extra "feeds"). [default: detected from the content]
    """

    format: Literal["csv", "tsv", "xml", "jsonl", "parquet"] | None = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SyncFlags:
    """What a sync may do.

    Attributes:
        dry_run: Print what would be sent and removed, and send nothing.
        max_removal_share: Stop before anything is sent if more than this share of the list would be removed.
        state: The file that keeps what was accepted. [default: the shared state if there is one, else a file of the
            list in XDG_STATE_HOME/svc_async]
    """

    dry_run: Flag = False
    max_removal_share: float = SYNC_DEFAULTS.max_removal_share
    state: Path | None = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RefreshFlags:
    """What a sync does with rows that expire; products do not.

    Attributes:
        refresh_days: Send rows again that expire within this many days.
    """

    refresh_days: int = SYNC_DEFAULTS.refresh_within.days
