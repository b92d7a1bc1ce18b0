"""Prints the plan of a sync, and finds the state of its list."""

import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import attrs

from svc_async import profiles
from svc_async.ads.products import MAX_PRODUCTS
from svc_async.batch.job import Job, StateLocation
from svc_async.batch.plan import Plan
from svc_async.cli.exit_codes import Exit, describe, exit_of, explain
from svc_async.cli.options import RunFlags
from svc_async.cli.outcome import list_unused
from svc_async.cli.output.console import count, format_duration, name_count, print_error, show, show_json
from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.jobs.limits import find_job_limit
from svc_async.lists.user_list import USER_LIMITS
from svc_async.private_files import create_folder, report_os_error, user_folder
from svc_async.session import Session
from svc_async.sources.source import Source

__all__ = ["SyncPlan", "open_state"]

_COUNTED = ("additions", "changes", "refreshes", "linked", "removals", "unchanged", "repeated")
_RARE = ("kept", "clashing")
_REMOVAL_SIZE = 90
"""Bytes of a user who is removed, approximately."""


@attrs.define
class SyncPlan:
    """The plan of a sync, once the sync has announced it; no other job has one.

    Attributes:
        job: the job.
        source: its rows.
        options: where it runs, and where its results go.
    """

    job: Job
    source: Source
    options: RunFlags
    _plan: Plan | None = attrs.field(default=None, init=False)

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts of the plan."""
        return {} if self._plan is None else self._count(self._plan)

    @property
    def rows(self) -> int | None:
        """How many rows of the file were compared; None if none were."""
        return None if self._plan is None else self._plan.rows

    @property
    def exit(self) -> Exit:
        """The exit code of a dry run: as if the sync had stopped, or rows that cannot be sent had failed."""
        if self._plan is not None and (stop := self._find_stop(self._plan)):
            return exit_of(stop)
        share = 0.0 if self._plan is None else self._plan.invalid_share
        return Exit.SOME_FAILED if share > self.options.max_failure_share else Exit.DONE

    def _count(self, plan: Plan) -> Mapping[str, int]:
        counts = {name: getattr(plan, name) for name in _COUNTED}
        invalid = {"invalid_rows": plan.invalid_rows} if plan.is_checked else {}
        rare = {name: getattr(plan, name) for name in _RARE if getattr(plan, name)}
        return {**counts, **invalid, **rare}

    def on_plan(self, plan: Plan) -> None:
        """Keep the plan, and print it unless the end of the sync prints its counts as JSON."""
        self._plan = plan
        if self.job.sync.dry_run or not self.options.as_json:
            self._print(plan)

    def _print(self, plan: Plan) -> None:
        requests, seconds = _estimate(self.job, plan)
        if self.options.as_json:
            facts = {
                **self._count(plan),
                "present": plan.present,
                "least_requests": requests,
                "least_minutes": round(seconds / 60, 3),
                **list_unused(self.job, self.source),
            }
            stop = self._find_stop(plan)
            error = describe(stop) if stop else None
            show_json({"dry_run": True, **facts, "removal_share": round(plan.removal_share, 6)}, error=error)
            if stop is not None:
                print_error(explain(stop))
            return
        doing = "send" if plan.is_checked else "check and send"
        show(
            ("plan", "bold"),
            f": {count(plan.upserts - plan.invalid_rows, 'row')} to {doing}, {plan.all_removals:,} to remove",
            f", {plan.invalid_rows:,} that cannot be sent" if plan.invalid_rows else "",
            f"; {plan.present:,} on the list; ",
            f"at least {count(requests, 'request')}",
            f" and {format_duration(seconds)}" if seconds else "",
        )
        if plan.kept:
            show(
                f"{count(plan.kept, 'product')} that {'is' if plan.kept == 1 else 'are'} not in the feed will stay: "
                "rows without an id that can be read may be of these."
            )
        if self.job.sync.dry_run:
            self._print_details(plan)

    def _find_stop(self, plan: Plan) -> InvalidArgument | None:
        """Return the error by which a sync with this plan would stop before it sends anything, if it would."""
        try:
            plan.check(self.job.sync.max_removal_share)
            if self.job.target.kind == "catalog":
                plan.check_before_deletion(self.job.sync.max_removal_share)
        except InvalidArgument as stop:
            return stop
        return None

    def _print_details(self, plan: Plan) -> None:
        most, is_catalog = self.job.sync.max_removal_share, self.job.target.kind == "catalog"
        for name, number in self._count(plan).items():
            show(f"{number:>13,} {name_count(number, name)}")
        if plan.removal_share > most:
            show(f"It would stop: {plan.removal_share:.1%} of the rows on the list would be removed.")
        elif is_catalog and plan.all_removals and plan.invalid_share > most:
            show(f"It would stop: {plan.invalid_share:.1%} of the rows cannot be sent, and others would be deleted.")
        if not is_catalog:
            # The service has no call that reads a single audience.
            show("Whether the audience exists shows only when something is sent.")
        if stop := self._find_stop(plan):
            print_error(explain(stop))


@asynccontextmanager
async def open_state(job: Job, session: Session, options: RunFlags) -> AsyncGenerator[StateLocation | None]:
    """Return where the state of the syncs of a list is kept; None for another job than a sync, if it has none.

    What an embedded sandbox holds is gone afterwards, and so is its state.

    Raises:
        InvalidArgument: the state is in a file, from which the sync would not go on.
        UnusableFile: the folder of states cannot be created.
    """
    is_sync = job.operation == "sync"
    # On a cluster, the state would know nothing of what the workers send.
    has_none = not is_sync and (options.sandbox or job.cluster is not None or job.target.kind != "audience")
    if job.state is not None or has_none:
        yield job.state
    elif options.sandbox:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "state")
    else:
        name = job.target.describe_at(profiles.find(options.profile).endpoints.ads_url)
        if is_sync and session.state is None:
            path = _name_state(name)
            with report_os_error("state", path.parent, "is where states are without --state, and cannot be created"):
                create_folder(path.parent)
            yield str(path)
            return
        is_shared = session.state is not None and await session.state.has_sync(name)
        found = None if is_shared else _find_state(name)
        if is_sync and found is not None:
            go_on = "pass --state with this path, without --cluster"
            restart = "move the file away to send all rows again and remove nobody"
            raise InvalidArgument("state", f"is kept in {found}: {go_on}, or {restart}")
        yield session.state if is_sync or is_shared else found


def _name_state(name: str) -> Path:
    return user_folder("state") / f"{sha256(name.encode()).hexdigest()[:32]}.sqlite"


def _find_state(name: str) -> str | None:
    """Return the path of a state in the folder of this user, if the file exists."""
    try:
        path = _name_state(name)
    except UnusableFile:  # this user has no home folder
        return None
    with report_os_error("state", path, "cannot be read"):
        return str(path) if path.exists() else None


def _estimate(job: Job, plan: Plan) -> tuple[int, float]:
    """Return the least requests of a plan, and the least seconds that they take at the limit.

    More are needed where requests are not full, such as the last of each lane, and where one is repeated.
    """
    kind, users = job.target.kind, USER_LIMITS.operations * job.settings.users_per_operation

    def count_requests(rows: int, size: int) -> int:
        return -(-rows // MAX_PRODUCTS) if kind == "catalog" else max(-(-rows // users), -(-size // USER_LIMITS.size))

    sent = count_requests(plan.upserts - plan.invalid_rows, plan.size)
    removed = count_requests(plan.all_removals, plan.all_removals * _REMOVAL_SIZE)
    seconds = find_job_limit(kind, "upload").find_least_seconds(sent)
    return sent + removed, seconds + find_job_limit(kind, "remove").find_least_seconds(removed)
