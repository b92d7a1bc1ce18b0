"""`svc-async state`: the state that processes share in PostgreSQL."""

from datetime import timedelta
from operator import attrgetter
from typing import Annotated

import attrs
from cyclopts import App, Parameter

from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import Flag, JsonFlag, StateUrl
from svc_async.cli.output.console import count, format_duration, say, show, show_json, show_list
from svc_async.cli.sessions import find_state, open_embedded_state, run_in
from svc_async.errors import InvalidArgument
from svc_async.printable import clean
from svc_async.state import SharedState
from svc_async.state.maintenance import StateReport

__all__ = ["app"]

app = App(name="state")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class StateOptions:
    """Which shared state a command works on.

    Attributes:
        state_url: The PostgreSQL database. [default: state_url of the profile, or SVC_STATE_URL]
        profile: Take state_url from this profile.
        embedded: Use the embedded PostgreSQL of this user, which --cluster local uses.
        as_json: Print only JSON.
    """

    state_url: StateUrl = attrs.field(default=None, repr=False)  # may contain a password
    profile: str | None = None
    embedded: Flag = False
    as_json: JsonFlag = False


_OPTIONS = StateOptions()


@app.command
def check(*, options: StateOptions = _OPTIONS) -> int:
    """Check that the database can be reached, and print its version, its clock, its tables and who uses it.

    Nothing is created or changed. The exit code is 1 if it cannot be reached or its tables are of another version.
    """
    report = run_in(_open(options), lambda state: state.check())
    if options.as_json:
        show_json(report.to_dict())
    else:
        _print(report)
    return Exit.DONE


@app.command
def migrate(*, options: StateOptions = _OPTIONS) -> int:
    """Create the tables, or update them to the version of this program; the role must be allowed to create them.

    Every other program does so by itself when it opens the state, unless it sets migrate=False.
    """

    async def check(state: SharedState) -> tuple[tuple[int, ...], StateReport]:
        return tuple(state.migrated), await state.check()

    applied, report = run_in(_open(options, migrate=True), check)
    if options.as_json:
        show_json({"version": report.version, "applied": list(applied)})
    elif applied:
        say(f"The tables in {report.name}, schema {report.schema}, are of version {report.version} now.")
    else:
        say(f"The tables in {report.name}, schema {report.schema}, are of version {report.version} already.")
    return Exit.DONE


@app.command
def prune(
    *,
    older_than: Annotated[timedelta, Parameter(show_default=False)],
    options: StateOptions = _OPTIONS,
) -> int:
    """Delete finished jobs with their journals, handled events and counts of limits that nobody uses.

    The states of lists, jobs that are not finished and events that are not handled stay, whatever their age.

    Args:
        older_than: How long ago something was last used, such as 30d or 12h.
    """
    if older_than < timedelta():
        raise InvalidArgument("--older-than", "must not be negative")
    report = run_in(_open(options), lambda state: state.prune(older_than=older_than))
    if options.as_json:
        show_json(report.to_dict())
    else:
        deleted = {
            "finished cluster job": report.jobs,
            "journal": report.journals,
            "handled event": report.events,
            "unused limit": report.buckets,
        }
        say(f"Deleted: {', '.join(count(number, noun) for noun, number in deleted.items())}.")
    return Exit.DONE


def _open(options: StateOptions, *, migrate: bool = False) -> SharedState:
    if options.embedded:
        return open_embedded_state(options.state_url)
    state = find_state(options.state_url, options.profile, migrate=migrate)
    if state is None:
        ways = "or set SVC_STATE_URL, or add state_url to a profile"
        raise InvalidArgument("state_url", f"must be given, {ways}; --embedded names the embedded PostgreSQL")
    return state


def _print(report: StateReport) -> None:
    show(("shared state", "bold"), f" {report.name}, schema {report.schema}")
    show(f"  tables of version {report.version}, PostgreSQL {report.server}")
    direction = "ahead of" if report.clock_difference >= 0 else "behind"
    show(
        f"  its clock is {format_duration(abs(report.clock_difference))} {direction} this machine's; "
        f"a statement takes {format_duration(report.seconds)}"
    )
    jobs = ", ".join(f"{number:,} {state}" for state, number in report.jobs.items())
    show(f"  journals of jobs: {jobs}")
    for name, owner in report.running.items():
        show(f"    {name}: {owner}")
    show(f"  processes that used rate limits within the last minute: {report.callers:,}")
    for receiver, processes in report.receivers.items():
        show(f"  receiver {receiver}: {', '.join(processes)}")
    for sync in report.syncs:
        show(
            f"  list {clean(sync.target)}: {count(sync.rows, 'row')}, {sync.size:,} bytes, "
            f"last used {sync.used_at:%Y-%m-%d %H:%M} UTC"
        )
    show_list(report.tables, {"Table": attrgetter("name"), "Rows": attrgetter("rows"), "Bytes": attrgetter("size")})
