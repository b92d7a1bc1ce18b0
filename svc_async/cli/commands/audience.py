"""`svc-async audience`: the users of a custom audience."""

from pathlib import Path

from cyclopts import App

from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.settings import Reading
from svc_async.cli.options import (
    BatchFlags,
    ClusterFlags,
    InputFile,
    JournalFlags,
    RefreshFlags,
    RunFlags,
    SyncFlags,
    UserFlags,
    WorkerFlags,
    absolute,
)
from svc_async.cli.upload_command import batch_settings, parse_time, source_spec, start, sync_settings

__all__ = ["app"]

app = App(name="audience")

_RUN, _BATCH, _USERS, _JOURNAL = RunFlags(), BatchFlags(), UserFlags(), JournalFlags()
_SYNC, _REFRESH, _CLUSTER, _WORKERS = SyncFlags(), RefreshFlags(), ClusterFlags(), WorkerFlags()


@app.command
def upload(
    file: InputFile,
    /,
    *,
    account: str | None = None,
    audience: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    users: UserFlags = _USERS,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
    state: Path | None = None,
    effective_at: str | None = None,
    expires_at: str | None = None,
) -> int:
    """Add the users of a file to an audience.

    Values are normalised and hashed on this machine. Rows that cannot be sent do not hold up the others.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Required without --sandbox.
        audience: The custom audience. The ads manager of the platform, where it is made, shows the id; a sandbox has
            1nmth. Required without --sandbox.
        state: The state of its syncs, in which what is sent is noted. [default: the one that a sync has made, if any]
        effective_at: When the users become members, in ISO 8601 with a time zone. [default: now]
        expires_at: When they cease to be members. [default: 13 months from now]
    """
    job = Job(
        target=TargetSpec(kind="audience", account_id=account, list_id=audience),
        source=source_spec(file, users.format, batch),
        state=_find_state(state),
        effective_at=parse_time("effective_at", effective_at),
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
    audience: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    users: UserFlags = _USERS,
    journal: JournalFlags = _JOURNAL,
    cluster: ClusterFlags = _CLUSTER,
    state: Path | None = None,
) -> int:
    """Remove the users of a file from an audience: everybody who has one of their identifiers.

    The next sync of the audience sends them again if its file still has them, and whoever shares an identifier with
    them: take them out of that file too, or put them on a do-not-reach list.

    Args:
        file: A file in CSV (with a header), JSON lines or Parquet, compressed or not; - is standard input.
        account: The ad account. Required without --sandbox.
        audience: The custom audience. The ads manager of the platform, where it is made, shows the id; a sandbox has
            1nmth. Required without --sandbox.
        state: The state of its syncs, in which what is sent is noted. [default: the one that a sync has made, if any]
    """
    job = Job(
        target=TargetSpec(kind="audience", account_id=account, list_id=audience),
        source=source_spec(file, users.format, batch),
        operation="remove",
        state=_find_state(state),
        reading=Reading(users.phone_region, users.bad_identifiers),
        settings=batch_settings(batch, users.users_per_operation),
    )
    return start(job, file, run, journal, cluster)


@app.command
def sync(
    file: InputFile,
    /,
    *,
    account: str | None = None,
    audience: str | None = None,
    run: RunFlags = _RUN,
    batch: BatchFlags = _BATCH,
    users: UserFlags = _USERS,
    sync: SyncFlags = _SYNC,
    refresh: RefreshFlags = _REFRESH,
    cluster: WorkerFlags = _WORKERS,
) -> int:
    """Make an audience equal to a file, by sending only what changed since the last sync.

    What was accepted is kept in a state. Users added by other means are left untouched.

    Args:
        file: All users of the audience: CSV (with a header), JSON lines or Parquet; - is standard input.
        account: The ad account. Required without --sandbox.
        audience: The custom audience. The ads manager of the platform, where it is made, shows the id; a sandbox has
            1nmth. Required without --sandbox.
    """
    job = Job(
        operation="sync",
        target=TargetSpec(kind="audience", account_id=account, list_id=audience),
        source=source_spec(file, users.format, batch),
        state=_find_state(sync.state),
        reading=Reading(users.phone_region, users.bad_identifiers),
        settings=batch_settings(batch, users.users_per_operation),
        sync=sync_settings(sync, refresh),
    )
    return start(job, file, run, workers=cluster)


def _find_state(path: Path | None) -> str | None:
    return None if path is None else absolute(path)
