"""What one may say to the commands that send a file."""

from pathlib import Path
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

__all__ = ["Flag", "JobOptions"]

Flag = Annotated[bool, Parameter(negative=(), show_default=False)]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class JobOptions:
    """The options of a job.

    Attributes:
        account: The ad account. Needed, unless --sandbox has one for you.
        audience: The custom audience. Needed, unless --sandbox has one for you.
        profile: Take credentials and hosts from this profile, not from SVC_* variables.
        sandbox: Try it: start an embedded sandbox and send the file there. No credentials are needed.
        map: COLUMN=KEY says what a column holds: email, phone_number, handle, svc_id, device_id or partner_user_id.
            COLUMN=- ignores a column, *=- all that are unknown. Give it as often as you need.
        format: csv, tsv, jsonl or parquet (needs the extra "feeds"). [default: told from the content]
        encoding: The file's encoding, such as cp1252, if it is not Unicode.
        phone_region: The region of phone numbers without a country code, such as DE. Needs the extra "phone".
        concurrency: Requests in flight.
        users_per_operation: People in one operation; 1 makes each refusal name its row at once.
        ordering: "key" keeps the order of rows of one person; "none" is for files without repeats.
        quarantine: Seconds before a request is sent again whose answer was lost.
        failures: Where rows that failed are listed. [default: FILE.failures.csv]
        json: Print one JSON object and say nothing else.
    """

    account: str | None = None
    audience: str | None = None
    profile: str | None = None
    sandbox: Flag = False
    map: Annotated[list[str], Parameter(negative=(), show_default=False)] = attrs.field(factory=list[str])
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None
    encoding: str | None = None
    phone_region: str | None = None
    concurrency: int = 32
    users_per_operation: int = 25
    ordering: Literal["key", "none"] = "key"
    quarantine: float = 120.0
    failures: Path | None = None
    json: Flag = False
