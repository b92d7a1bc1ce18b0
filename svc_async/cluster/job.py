"""A job on a cluster as values: those that the graph of its tasks carries, and those that a shard returns.

Nothing here holds a session, a connection, a credential or a row, so all of it can be pickled, stored and read.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from svc_async.batch.job import to_plain
from svc_async.batch.report import Failure, Report
from svc_async.cluster.failures import read_block
from svc_async.cluster.plan import SourcePlan
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import SvcError

__all__ = ["JobPart", "ShardOutcome", "ShardTask", "WorkerSettings", "read_outcome", "write_outcome"]


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
        plan: their job, and the fragments of its source.
        first: the number of the first shard.
        shards: how many shards there are.
    """

    plan: SourcePlan
    first: int
    shards: int

    @property
    def is_exchanged(self) -> bool:
        """Whether rows of one key have to be brought together; otherwise, each fragment is a shard."""
        return self.plan.job.settings.ordered and len(self.plan.fragments) > 1

    @property
    def numbers(self) -> range:
        """The numbers of its shards."""
        return range(self.first, self.first + self.shards)

    @property
    def about(self) -> Mapping[str, Any]:
        """The fields that identify it: all but the settings that may differ between the runs of a job."""
        plain = to_plain(self.plan.job)
        fields = {name: plain[name] for name in ("target", "operation", "effective_at", "expires_at", "reading")}
        return {**fields, "ordering": self.plan.job.settings.ordering, "source": self.plan.digest}


@attrs.frozen(kw_only=True)
class ShardTask:
    """The shard that a worker sends, besides its rows and the plan of its job.

    Attributes:
        name: the name of the job.
        run: the run of the job.
        number: the shard, among those of the whole job.
        settings: how the worker opens its session.
        topic: where it announces its progress.
    """

    name: str
    run: int
    number: int
    settings: WorkerSettings
    topic: str


@attrs.frozen(kw_only=True)
class ShardOutcome:
    """The outcome of a shard.

    Attributes:
        number: the shard.
        report: what became of its rows; failures have their file, and positions that count its rows.
        failures: all failures in blocks, if the report lists only the first of them.
        error: why it could not be finished.
    """

    number: int
    report: Report
    failures: Sequence[bytes] = ()
    error: SvcError | None = None

    def list_failures(self) -> Iterator[Failure]:
        """Yield all failures that are known.

        Raises:
            ValueError: a block is damaged.
        """
        if not self.failures:
            yield from self.report.failures
        for block in self.failures:
            yield from read_block(block)


def write_outcome(outcome: ShardOutcome) -> Mapping[str, Any]:
    """Return the outcome of a shard as values for JSON."""
    blocks = [b64encode(block).decode() for block in outcome.failures]
    return {**outcome.report.as_dict(), **({"failure_blocks": blocks} if blocks else {})}


def read_outcome(number: int, plain: Mapping[str, Any]) -> ShardOutcome:
    """Return the outcome of a shard that `write_outcome` has written.

    Raises:
        ValueError: the values are damaged.
    """
    try:
        report = msgspec.convert(plain, Report)
        blocks = msgspec.convert(plain.get("failure_blocks", ()), tuple[str, ...])
    except msgspec.ValidationError:
        raise ValueError("no report") from None
    return ShardOutcome(
        number=number,
        report=attrs.evolve(report, failures=tuple(report.failures)),
        failures=[b64decode(block) for block in blocks],
    )
