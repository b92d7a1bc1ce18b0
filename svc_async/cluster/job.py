"""A job on a cluster as values: what the graph of its tasks carries, and what a shard returns.

Nothing here holds a session, a connection, a credential or a row, so all of it can be pickled, stored and read.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from svc_async.batch.report import Report
from svc_async.cluster.plan import SourcePlan
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import SvcError
from svc_async.jobs.spec import UploadSpec, to_plain

__all__ = ["JobPart", "ShardOutcome", "ShardTask", "WorkerSettings", "read_report", "write_report"]


@attrs.frozen
class WorkerSettings:
    """How a worker opens its session and the shared state; the worker has the settings themselves.

    Attributes:
        origin: where it finds its credentials, hosts and the URL of the state.
        schema: the schema of the state.
        version: the version of this SDK that the job was begun with.
    """

    origin: SessionOrigin
    schema: str
    version: str


@attrs.frozen(kw_only=True)
class JobPart:
    """The rows of a job that go to one list, and the shards that they are divided into.

    Attributes:
        spec: what is done with them.
        plan: the fragments of their source.
        first: the number of the first shard.
        shards: how many shards there are.
    """

    spec: UploadSpec
    plan: SourcePlan
    first: int
    shards: int

    @property
    def is_exchanged(self) -> bool:
        """Whether rows of one key have to be brought together; otherwise, each fragment is a shard."""
        return self.spec.settings.ordered and len(self.plan.fragments) > 1

    @property
    def numbers(self) -> range:
        """The numbers of its shards."""
        return range(self.first, self.first + self.shards)

    @property
    def about(self) -> Mapping[str, Any]:
        """What identifies it: all but the settings that may differ between the runs of a job."""
        plain = to_plain(self.spec)
        return {
            "list": plain["target"],
            "operation": plain["operation"],
            "times": [plain["effective_at"], plain["expires_at"]],
            "reading": [plain["phone_region"], plain["bad_identifiers"]],
            "ordering": self.spec.settings.ordering,
            "source": self.plan.digest,
        }


@attrs.frozen(kw_only=True)
class ShardTask:
    """What a worker needs to know to send a shard, besides its rows.

    Attributes:
        job: the name of the job.
        run: the run of the job.
        number: the shard, among those of the whole job.
        spec: what is done with the rows.
        settings: how the worker opens its session.
        topic: where it announces its progress.
    """

    job: str
    run: int
    number: int
    spec: UploadSpec
    settings: WorkerSettings
    topic: str


@attrs.frozen(kw_only=True)
class ShardOutcome:
    """What became of a shard.

    Attributes:
        number: the shard.
        report: what became of its rows; failures have their file, and positions that count its rows.
        error: why it could not be finished.
    """

    number: int
    report: Report
    error: SvcError | None = None


def write_report(report: Report) -> Mapping[str, Any]:
    """Return a report as values for JSON."""
    return report.as_dict()


def read_report(plain: Mapping[str, Any]) -> Report:
    """Return the report that `write_report` has written.

    Raises:
        ValueError: it is none.
    """
    try:
        report = msgspec.convert(plain, Report)
    except msgspec.ValidationError:
        raise ValueError("no report") from None
    return attrs.evolve(report, failures=tuple(report.failures))
