"""What a diff sync does beside sending: it finds its state, tells its plan and stops there if that is all one wants."""

import json
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import attrs
from rich.text import Text

from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.plan import Plan
from svc_async.batch.sync.sync import SyncReport
from svc_async.cli.console import stdout
from svc_async.cli.failures import FailureList
from svc_async.cli.options import JobOptions, SyncOptions
from svc_async.cli.progress import clock_time
from svc_async.cli.upload_command import Ready, Work

__all__ = ["Cost", "Syncing"]

_COUNTED = ("additions", "changes", "refreshes", "removals", "unchanged", "invalid_rows")


@attrs.frozen(kw_only=True)
class Cost:
    """What requests cost.

    Attributes:
        requests: how many it takes to send so many rows, of so many bytes in all.
        removals: how many it takes to remove so many rows.
        per_minute: how many may be sent a minute.
        removals_per_minute: how many that remove.
    """

    requests: Callable[[int, int], int]
    removals: Callable[[int], int]
    per_minute: float
    removals_per_minute: float

    def of(self, plan: Plan) -> tuple[int, float]:
        """Give the requests of a plan, and the minutes that they take at the limit."""
        sent, removed = self.requests(plan.upserts, plan.size), self.removals(plan.all_removals)
        return sent + removed, sent / self.per_minute + removed / self.removals_per_minute


@attrs.define(kw_only=True)
class Syncing:
    """One sync as a command.

    Attributes:
        call: `sync` of the list, bound to its source and settings.
        name: what identifies the list, also years later.
        options: the options of all jobs.
        sync: the options of the sync.
        cost: what requests cost.
    """

    call: Callable[..., Awaitable[SyncReport]]
    name: str
    options: JobOptions
    sync: SyncOptions
    cost: Cost
    _plan: Plan | None = attrs.field(default=None, init=False)

    def work(self, ready: Ready) -> Work:
        """Return the job."""
        return Work(ready=ready, do=self._do, more=self._more)

    async def _do(self, observers: Observers, failures: FailureList) -> Report | None:
        async with self._state() as path:
            report = await self.call(
                state=path,
                dry_run=self.sync.dry_run,
                max_removal_share=self.sync.max_removal_share,
                on_plan=self._on_plan,
                on_removal_failure=failures.add_removal,
                **attrs.asdict(observers, recurse=False),
            )
        return None if self.sync.dry_run else report.total

    def _on_plan(self, plan: Plan) -> None:
        self._plan = plan
        if self.sync.dry_run or not self.options.json:
            self._tell(plan)

    @asynccontextmanager
    async def _state(self) -> AsyncGenerator[Path]:
        """Give the file of the state; an embedded sandbox forgets, and so does what is known of it."""
        if self.sync.state is not None:
            yield self.sync.state
        elif self.options.sandbox:
            with tempfile.TemporaryDirectory() as folder:
                yield Path(folder) / "state"
        else:
            path = _home() / f"{sha256(self.name.encode()).hexdigest()[:32]}.sqlite"
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield path

    def _more(self) -> Mapping[str, int]:
        return {} if self._plan is None else _counted(self._plan)

    def _tell(self, plan: Plan) -> None:
        requests, minutes = self.cost.of(plan)
        if self.options.json:
            told = {**_counted(plan), "present": plan.present, "requests": requests, "minutes": round(minutes, 3)}
            stdout().print(json.dumps({"dry_run": True, **told, "removal_share": round(plan.removal_share, 6)}))
            return
        out = stdout()
        out.print(
            Text.assemble(
                ("plan", "bold"),
                f": {plan.upserts:,} rows to send and {plan.all_removals:,} to remove, ",
                f"{plan.present:,} are on the list; ",
                f"about {requests:,} request{'' if requests == 1 else 's'}, {clock_time(minutes * 60)} at the limit",
            )
        )
        if self.sync.dry_run:
            for name, count in _counted(plan).items():
                out.print(f"{count:>13,} {name.replace('_', ' ')}")
            if plan.removal_share > self.sync.max_removal_share:
                out.print(f"It would stop: {plan.removal_share:.1%} of the rows on the list would be removed.")


def _counted(plan: Plan) -> Mapping[str, int]:
    return {name: getattr(plan, name) for name in _COUNTED}


def _home() -> Path:
    """Give the folder for what the command remembers."""
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "svc_async"
