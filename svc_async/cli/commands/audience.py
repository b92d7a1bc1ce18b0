"""`svc-async audience`: custom audiences and their users."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cyclopts import App

from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.settings import Reading
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import (
    BatchFlags,
    ClusterFlags,
    InputFile,
    JournalFlags,
    JsonFlag,
    RefreshFlags,
    RunFlags,
    SyncFlags,
    UserFlags,
    WorkerFlags,
    absolute,
)
from svc_async.cli.output.console import count, say, show, show_json, show_list
from svc_async.cli.upload_command import batch_settings, parse_time, source_spec, start, sync_settings

if TYPE_CHECKING:
    from svc_async.ads.custom_audiences import CustomAudience, CustomAudiences

__all__ = ["app"]

T = TypeVar("T")

app = App(name="audience")

_RUN, _BATCH, _USERS, _JOURNAL = RunFlags(), BatchFlags(), UserFlags(), JournalFlags()
_SYNC, _REFRESH, _CLUSTER, _WORKERS = SyncFlags(), RefreshFlags(), ClusterFlags(), WorkerFlags()

_COLUMNS: Mapping[str, Callable[["CustomAudience"], object]] = {
    "ID": lambda audience: audience.id,
    "Name": lambda audience: audience.name,
    "Size": lambda audience: audience.audience_size,
    "Targetable": lambda audience: "yes" if audience.targetable else f"no {' '.join(audience.reasons_not_targetable)}",
}


@app.command(name="list")
def list_audiences(*, account: str, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """List the custom audiences of an ad account: their ids, sizes, and why one cannot be targeted.

    Args:
        account: The ad account.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """

    async def fetch(audiences: "CustomAudiences") -> tuple[list["CustomAudience"], int]:
        pages = [page async for page in audiences.list().pages()]
        return [each for page in pages for each in page.items], sum(len(page.unreadable) for page in pages)

    found, unreadable = _call(profile, account, fetch)
    if as_json:
        show_json({"audiences": [each.to_dict() for each in found], "unreadable": unreadable})
    elif found or not unreadable:
        show_list(found, _COLUMNS, none="The account has no audiences.")
    if unreadable:
        say(f"{count(unreadable, 'audience')} could not be read.", needed=True)
    return Exit.DONE


@app.command
def create(
    name: str,
    /,
    *,
    account: str,
    description: str | None = None,
    profile: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Create an empty custom audience and print its id, which `audience upload` takes.

    Args:
        name: A name that no other audience of the account has.
        account: The ad account.
        description: What it is.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    created = _call(profile, account, lambda audiences: audiences.create(name=name, description=description))
    if as_json:
        show_json(created.to_dict())
    else:
        show(created.id)
    return Exit.DONE


@app.command
def delete(*, account: str, audience: str, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Delete a custom audience, without asking.

    Args:
        account: The ad account.
        audience: The custom audience. `svc-async audience list` shows the ids.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print only JSON.
    """
    deleted = _call(profile, account, lambda audiences: audiences.delete(audience))
    if as_json:
        show_json(deleted.to_dict())
    else:
        say(f"The audience {deleted.id} is deleted.")
    return Exit.DONE


def _call(profile: str | None, account: str, work: Callable[["CustomAudiences"], Awaitable[T]]) -> T:
    from svc_async.cli.sessions import open_session, run_in  # noqa: PLC0415 - help needs no engine

    return run_in(open_session(profile), lambda session: work(session.account(account).custom_audiences))


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
        audience: The custom audience. `svc-async audience list` shows the ids; a sandbox has 1nmth. Required without
            --sandbox.
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
        audience: The custom audience. `svc-async audience list` shows the ids; a sandbox has 1nmth. Required without
            --sandbox.
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
        audience: The custom audience. `svc-async audience list` shows the ids; a sandbox has 1nmth. Required without
            --sandbox.
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
