"""`svc-async do-not-reach`: the users of a do-not-reach list."""

from typing import Annotated

from cyclopts import App, Parameter

from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.settings import Reading
from svc_async.cli.options import BatchFlags, ClusterFlags, InputFile, JournalFlags, RunFlags, UserFlags
from svc_async.cli.upload_command import batch_settings, parse_time, source_spec, start

__all__ = ["app"]

app = App(name="do-not-reach")

_RUN, _BATCH, _USERS, _JOURNAL = RunFlags(), BatchFlags(), UserFlags(), JournalFlags()
_CLUSTER = ClusterFlags()


@app.command
def upload(
    file: InputFile,
    /,
    *,
    account: str | None = None,
    list_id: Annotated[str | None, Parameter(name="--list")] = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    users: UserFlags = _USERS,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
    expires_at: str | None = None,
) -> int:
    """Add the users of a file to a do-not-reach list, by e-mail address and phone number.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Required without --sandbox.
        list_id: The do-not-reach list. The ads manager of the platform, where it is made, shows the id; a sandbox has
            dnr7k1. Required without --sandbox.
        expires_at: When the users leave the list, in ISO 8601 with a time zone. [default: 13 months from now]
    """
    job = Job(
        target=TargetSpec(kind="do_not_reach_list", account_id=account, list_id=list_id),
        source=source_spec(file, users.format, batch),
        expires_at=parse_time("expires_at", expires_at),
        reading=Reading(users.phone_region, users.bad_identifiers),
        settings=batch_settings(batch, users.users_per_operation),
    )
    return start(job, file, run, journal, cluster)


@app.command
def remove(
    file: InputFile,
    /,
    *,
    account: str | None = None,
    list_id: Annotated[str | None, Parameter(name="--list")] = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    users: UserFlags = _USERS,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
) -> int:
    """Remove the users of a file from a do-not-reach list.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Required without --sandbox.
        list_id: The do-not-reach list. The ads manager of the platform, where it is made, shows the id; a sandbox has
            dnr7k1. Required without --sandbox.
    """
    job = Job(
        target=TargetSpec(kind="do_not_reach_list", account_id=account, list_id=list_id),
        source=source_spec(file, users.format, batch),
        operation="remove",
        reading=Reading(users.phone_region, users.bad_identifiers),
        settings=batch_settings(batch, users.users_per_operation),
    )
    return start(job, file, run, journal, cluster)
