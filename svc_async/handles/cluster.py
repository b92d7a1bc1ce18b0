"""Runs the jobs of handles on a cluster: whatever that needs is imported when the first one begins."""

from importlib import import_module

import attrs

from svc_async.batch.report import Report
from svc_async.batch.settings import ClusterCall
from svc_async.engine.origin import SessionOrigin

__all__ = ["ClusterRunner"]

_RUNNER = "svc_async.cluster.runner"
"""The package of clusters opens sessions on workers, so it belongs to a floor above this one."""


@attrs.frozen
class ClusterRunner:
    """Runs jobs on a cluster, whose workers open the session of this process.

    Attributes:
        origin: where they find its settings.
    """

    origin: SessionOrigin | None

    async def __call__(self, call: ClusterCall) -> Report:
        """Run a job and return its report; exceptions as in `upload`."""
        report: Report = await import_module(_RUNNER).run_call(call, origin=self.origin)
        return report
