"""What one may say to the commands that send a file."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from svc_async.errors import InvalidArgument

__all__ = [
    "FeedOptions",
    "Flag",
    "JobOptions",
    "JournalOptions",
    "JsonFlag",
    "PeopleOptions",
    "SyncOptions",
    "check_port",
]

_HIGHEST_PORT = 65_535

Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
JsonFlag = Annotated[bool, Parameter(name="--json", negative=(), show_default=False)]


def check_port(port: int) -> None:
    """Check the port of a server.

    Raises:
        InvalidArgument: there is no such port.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise InvalidArgument("--port", f"must be from 0 to {_HIGHEST_PORT}; 0 takes a free one")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class JobOptions:
    """The options of a job.

    Attributes:
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        sandbox: Try it: start an embedded sandbox and send the file there. No credentials are needed.
        map: COLUMN=KEY says what a column holds, such as Mail=email. COLUMN=- ignores a column, *=- all that are
            unknown. Give it as often as you need.
        encoding: The file's encoding, such as cp1252, if it is not Unicode.
        concurrency: Requests in flight.
        ordering: "key" keeps the order of rows of one key; "none" is for files without repeats.
        quarantine: Seconds before a request is sent again whose answer was lost.
        failures: Where rows that failed are listed. [default: FILE.failures.csv]
        report: Write a report to this file: .html for people, .json for programs.
        json: Print one JSON object and say nothing else.
    """

    profile: str | None = None
    sandbox: Flag = False
    map: Annotated[list[str], Parameter(negative=(), show_default=False)] = attrs.field(factory=list[str])
    encoding: str | None = None
    concurrency: int = 32
    ordering: Literal["key", "none"] = "key"
    quarantine: float = 120.0
    failures: Path | None = None
    report: Path | None = None
    json: Flag = False


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class JournalOptions:
    """The options of a job that can be taken up again.

    Attributes:
        journal: Keep a journal in this file. After any end, the same command goes on where the job had come to.
        put_aside: Take the rows that the first run has read from standard input, as `svc-async job resume` does.
    """

    journal: Path | None = None
    put_aside: Annotated[Flag, Parameter(show=False)] = False


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class PeopleOptions:
    """The options of a file of people.

    Attributes:
        format: csv, tsv, jsonl or parquet (needs the extra "feeds"). [default: told from the content]
        phone_region: The region of phone numbers without a country code, such as DE. Needs the extra "phone".
        users_per_operation: People in one operation; 1 makes each refusal name its row at once.
    """

    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    phone_region: str | None = None
    users_per_operation: int = 25


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class FeedOptions:
    """The options of a feed of products.

    Attributes:
        format: csv, tsv or xml. [default: told from the content]
    """

    format: Literal["csv", "tsv", "xml"] | None = None


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SyncOptions:
    """The options of a sync.

    Attributes:
        dry_run: Say what would be sent and removed, and do nothing.
        max_removal_share: Stop before anything is sent when more than this share of what is there would be removed.
        refresh_days: Send again what expires within so many days.
        state: Where it is kept what was accepted. [default: a file of the list in XDG_STATE_HOME/svc_async]
    """

    dry_run: Flag = False
    max_removal_share: float = 0.2
    refresh_days: int = 30
    state: Path | None = None
