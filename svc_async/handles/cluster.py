"""Runs the jobs of handles on a cluster: whatever that needs is imported when the first one begins."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType

import attrs

from svc_async.batch.job import ClusterRunner, Job
from svc_async.batch.report import Report
from svc_async.batch.sync.snapshot import Snapshot
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import InvalidArgument

__all__ = ["SessionClusterRunner", "import_cluster"]


@attrs.frozen
class SessionClusterRunner(ClusterRunner):
    """Runs jobs on a cluster, whose workers open the session of this process.

    Attributes:
        origin: where they find its settings.
    """

    origin: SessionOrigin | None

    async def run(self, job: Job) -> Report:
        """Run an upload or a removal, and return its report; exceptions as in `upload`."""
        reports: Sequence[Report] = await import_cluster("runner").run_jobs(
            [job],
            cluster=job.cluster,
            journal=job.journal,
            origin=self.origin,
            shards=job.shards,
            observers=job.observers,
        )
        return reports[0]

    @asynccontextmanager
    async def open_snapshot(self, job: Job) -> AsyncGenerator[Snapshot]:
        """Have the workers read the rows for a sync; exceptions as in `sync`. The workers need no session."""
        async with import_cluster("snapshot").open_snapshot(job) as snapshot:
            yield snapshot


def import_cluster(name: str, *, extra: str = "cluster") -> ModuleType:
    """Import a module of the package of clusters, which opens sessions and so belongs to a floor above this one.

    Args:
        name: the module.
        extra: what brings all that the caller needs.

    Raises:
        InvalidArgument: the extra is missing.
    """
    try:
        return import_module(f"svc_async.cluster.{name}")
    except ImportError as error:
        if error.name and error.name.startswith("svc_async"):
            raise
        rule = f'needs the package {error.name}: pip install "svc-async[{extra}]"'
        raise InvalidArgument("cluster", rule) from None
