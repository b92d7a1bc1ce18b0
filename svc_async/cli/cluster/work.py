"""What a job of a command does on a cluster: it uploads or removes rows, or syncs a list."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from svc_async import profiles
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers, Reading
from svc_async.cli.exit_codes import Exit
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import describe_ids
from svc_async.cli.options import RunFlags
from svc_async.cli.outcome import Work
from svc_async.cli.output.wording import count
from svc_async.cli.sync_command import SyncWork
from svc_async.engine.origin import SessionOrigin
from svc_async.handles.cluster import import_cluster
from svc_async.jobs.spec import JobSpec, SyncSpec, UploadSpec
from svc_async.session import Session
from svc_async.state import SharedState

__all__ = ["ClusterRows", "ClusterWork", "make_work"]


@attrs.define
class ClusterRows:
    """Stands for the source of a job that workers read.

    Attributes:
        name: the name of the file.
        snapshot: its rows, for a sync.
        size: one unit, so that the share that is done is that of the rows which are read.
    """

    name: str
    snapshot: Any = None
    size: int = 1
    bytes_read: int = 1
    exhausted: bool = True
    ignored: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    async def check(self) -> None:
        """Accept it: the workers check it."""

    async def fingerprint(self) -> str:
        """Return nothing: the plan of the source tells it from others."""
        return ""

    def find_line(self, position: int) -> int:
        """Return the position, which is the line already."""
        return position

    def rows(self) -> Any:
        """Return the users for a sync."""
        return self.snapshot

    def products(self) -> Any:
        """Return the products for a sync."""
        return self.snapshot

    def close(self) -> None:
        """Do nothing: it holds no file."""


class ClusterWork(Work, Protocol):
    """What a job on a cluster does."""

    @property
    def journal(self) -> str | None:
        """The name of the job in the shared state, if it has one."""
        ...

    async def run(
        self, client: Any, session: Session, state: SharedState, observers: Observers, failures: FailureList
    ) -> Report | None:
        """Do it; None if only a plan was printed."""
        ...


def make_work(spec: JobSpec, options: RunFlags, *, shards: int | None, job: str | None) -> ClusterWork:
    """Return what a job does.

    Args:
        spec: the job.
        options: where it runs.
        shards: into how many parts a new upload or removal is divided.
        job: the name of an upload or removal.
    """
    return _ClusterSync(spec, options) if isinstance(spec, SyncSpec) else _ClusterUpload(spec, options, shards, job)


@attrs.frozen
class _ClusterUpload:
    """Uploads rows, or removes them."""

    spec: UploadSpec
    options: RunFlags
    shards: int | None
    job: str | None
    more: Mapping[str, int] = attrs.field(factory=dict, init=False)
    compared: None = attrs.field(default=None, init=False)
    exit: Exit = attrs.field(default=Exit.DONE, init=False)
    advice: str = attrs.field(
        default="Run the same command again to resume the job: what is finished is not sent again.", init=False
    )

    @property
    def journal(self) -> str:
        if self.job is not None:
            return self.job
        ids = " ".join(filter(None, describe_ids(self.spec.target).values()))
        return f"{self.spec.operation} {ids} {self.spec.source.path}"[-200:]

    def summarize(self, report: Report) -> str:
        return f"{count(report.read, 'row')} read"

    async def run(
        self,
        client: Any,
        session: Session,  # noqa: ARG002 - the workers open their own
        state: SharedState,
        observers: Observers,
        failures: FailureList,  # noqa: ARG002 - an upload removes nothing that is not in the file
    ) -> Report:
        reports = await import_cluster("runner").run_jobs(
            [self.spec],
            cluster=client,
            journal=state.journal(self.journal),
            origin=SessionOrigin(profiles.find(self.options.profile).profile),
            shards=self.shards,
            observers=observers,
        )
        report: Report = reports[0]
        return report


@attrs.define
class _ClusterSync:
    """Syncs a list: the workers read its source, and this process compares and sends."""

    spec: SyncSpec
    options: RunFlags
    _sync: SyncWork = attrs.field(init=False)
    _source: ClusterRows = attrs.field(init=False)
    journal: None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._source = ClusterRows(Path(self.spec.source.path).name)
        self._sync = SyncWork(self.spec, self._source, self.options)

    @property
    def more(self) -> Mapping[str, int]:
        return self._sync.more

    @property
    def compared(self) -> int | None:
        return self._sync.compared

    @property
    def exit(self) -> Exit:
        return self._sync.exit

    @property
    def advice(self) -> str:
        return f"Run the same command again to finish: {self._sync.advice}"

    def summarize(self, report: Report) -> str:
        return self._sync.summarize(report)

    async def run(
        self,
        client: Any,
        session: Session,
        state: SharedState,  # noqa: ARG002 - it is that of the session
        observers: Observers,
        failures: FailureList,
    ) -> Report | None:
        async with import_cluster("sync.snapshot").open_snapshot(
            self.spec.source,
            kind="products" if self.spec.target.kind == "catalog" else "users",
            cluster=client,
            reading=Reading(self.spec.phone_region, self.spec.bad_identifiers),
            observers=observers,
        ) as self._source.snapshot:
            return await self._sync.run(self.spec.target, session, observers, failures)
