"""The users of a list: what custom audiences and do-not-reach lists have in common.

Both take operations, each with users and times. Their `ListRules` state the differences, with the contract ids.
"""

import abc
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar, Unpack

import attrs

from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.job import ClusterRunner, Job, TargetSpec, read_job
from svc_async.batch.ledger import Ledger
from svc_async.batch.options import UserApplyOptions, UserStreamOptions, UserUploadOptions
from svc_async.batch.packing.batch import Limits
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Receipt, Report
from svc_async.batch.settings import JobSizes, Reading
from svc_async.batch.source import RowSource
from svc_async.batch.uploader import Receipts, Uploader
from svc_async.engine.pipeline import Pipeline
from svc_async.lists.members import MemberReader, Members
from svc_async.lists.operations import (
    Counted,
    ListDestination,
    ListRules,
    Operation,
    OperationParser,
    Operations,
    UserOperation,
)
from svc_async.sync.beside import open_notes, warn_of_syncs
from svc_async.users.encoding import EncodedSlices, MemberEncoder
from svc_async.wire.envelope import make_unexpected
from svc_async.wire.params import timestamp
from svc_async.wire.route import Request, Surface
from svc_async.wire.writing import to_json, to_plain

__all__ = ["USER_LIMITS", "UserList"]

T = TypeVar("T")

USER_LIMITS = Limits(operations=2_500)  # contract CAU-01b


@attrs.frozen
class UserList(abc.ABC, Generic[T]):
    """The users of one list.

    Attributes:
        counted: what `success_count` and `total_count` count.
        limits: what one request may hold.
        sizes: the amounts in which jobs work.
        cluster_runner: runs jobs on clusters.
    """

    _rules: ClassVar[ListRules]

    _sender: Pipeline = attrs.field(repr=False)
    account_id: str
    # Unspecified: whether the counts are of users or of operations (contract UNS-success-count-unit).
    counted: Counted = attrs.field(default="users", kw_only=True)
    limits: Limits = attrs.field(default=USER_LIMITS, kw_only=True, repr=False)
    sizes: JobSizes = attrs.field(factory=JobSizes, kw_only=True, repr=False)
    cluster_runner: ClusterRunner = attrs.field(factory=ClusterRunner, kw_only=True, repr=False)

    @property
    def _host(self) -> str:
        return self._sender.endpoints.of(Surface.ADS)

    @abc.abstractmethod
    def _build_request(self) -> Request[T]:
        """Return the request that carries operations, without them."""

    @property
    @abc.abstractmethod
    def _target(self) -> TargetSpec: ...

    @property
    def _state_name(self) -> str:
        """The list and its host, as the state of its syncs names it."""
        return self._target.describe_at(self._host)

    @abc.abstractmethod
    def _confirms(self, answer: T, sent: int) -> bool:
        """Return whether the service accepted everything that was sent."""

    async def remove(self, members: Members, **options: Unpack[UserUploadOptions]) -> Report:
        """Remove members from the list: everybody who has any of the identifiers of a row.

        Arguments, settings and exceptions: see `upload`.
        """
        known = UserUploadOptions.__optional_keys__
        job = read_job("remove", options, known, target=self._target, operation="remove")
        running = self._run(job, members)
        del members  # its rows must not be among the locals of a traceback
        return await running

    async def apply(self, operations: Operations, **options: Unpack[UserApplyOptions]) -> Report:
        """Apply any number of operations, with any number of users each.

        Each user is a row, and positions count users across the operations. Users keep the type and the times of
        their operation, but are packed anew. Values may be raw or hashed. A malformed operation ends the reading;
        what came before it is finished.

        Arguments, settings and exceptions: see `upload`.

        Args:
            operations: as for `send`, as an iterable or async iterable.
            options: see `UserApplyOptions` in `svc_async.batch.options`.
        """
        job = read_job("apply", options, UserApplyOptions.__optional_keys__, target=self._target)
        parser, clock = OperationParser(self._rules, self._sender.dialect), self._sender.clock
        source = self._create_reader(job.reading).read_operations(
            operations, lambda operation, where: parser.parse(operation, where, clock.now())
        )
        source = attrs.evolve(source, settings=attrs.asdict(job.reading))
        return await self._send_rows(source, job, "operations")

    async def _send(self, operations: Sequence[Operation]) -> T:
        """Send one request, checked as far as possible before; hashes become lower-case."""
        plain: list[Any] = to_plain([*operations], name="operations")
        if self._sender.validate:
            if not 1 <= len(plain) <= self.limits.operations:
                raise self._rules.make_error("operations", f"must be 1 to {self.limits.operations:,}", "operations")
            parser, now = OperationParser(self._rules), self._sender.clock.now()
            plain = [parser.check_hashed(each, f"operations[{index}]", now) for index, each in enumerate(plain)]
        body = to_json(plain, name="operations")
        dialect = self._sender.dialect
        size = len(body if dialect is None else dialect.write_json(body))
        if self._sender.validate and size > self.limits.size:
            raise self._rules.make_error("operations", f"must have at most {self.limits.size:,} bytes", "bytes")
        warn_of_syncs(self._state_name, self._sender)
        answer, whole = await self._sender.send_with_answer(self._build_request().with_body(body))
        users = sum(len(operation["params"]["users"]) for operation in plain)
        if not self._confirms(answer, users if self.counted == "users" else len(plain)):
            problem = "the service counted other users than were sent; wait two minutes, then send all of them again"
            raise make_unexpected(problem, whole, repeatable=True)  # perhaps the answer to another request
        return answer

    def _build_operation(self, operation_type: str, **times: datetime | None) -> UserOperation:
        return OperationParser(self._rules, self._sender.dialect).build(operation_type, times, self._sender.clock.now())

    def _create_reader(self, reading: Reading) -> MemberReader:
        encoder = MemberEncoder(names=self._rules.identifiers, **attrs.asdict(reading))
        return MemberReader(encoder, self._rules.identifiers, self.sizes.slice_rows)

    def _read(self, members: Members | EncodedSlices, operation: UserOperation, reading: Reading) -> RowSource:
        source = self._create_reader(reading).read(members, operation)
        times = {name: timestamp(moment) for name, moment in operation.times}
        return attrs.evolve(source, settings={**attrs.asdict(reading), **times})

    def run_job(
        self, job: Job, members: Any = None, *, ledger: Ledger | None = None
    ) -> Coroutine[Any, Any, Report | SyncReport]:
        """Run an upload or a removal that a value describes, as `jobs.run.run` does with a file.

        Args:
            job: the job.
            members: the rows; on a cluster, the workers read the source of the job.
            ledger: keeps what becomes of the rows, if the journal of the job does not.
        """
        return self._run(job, members, ledger)

    async def _run(self, job: Job, members: Any, ledger: Ledger | None = None) -> Report:
        operation_type = BatchOperationType.UPDATE if job.operation == "upload" else BatchOperationType.DELETE
        operation = self._build_operation(operation_type, effective_at=job.effective_at, expires_at=job.expires_at)
        if job.cluster is not None:
            job = job.name_files("members", members)
            del members
            return await self.cluster_runner.run(job)
        source = self._read(members, operation, job.reading)
        del members
        return await self._send_rows(source, job, operation_type, ledger)

    async def _send_rows(self, source: RowSource, job: Job, purpose: str, ledger: Ledger | None = None) -> Report:
        if ledger is not None:  # that of a sync, or of a worker
            return await self._create_uploader(source, job, purpose, ledger).run()
        adds = purpose != BatchOperationType.DELETE
        async with open_notes(job, self._state_name, self._sender, adds=adds) as notes:
            return await self._create_uploader(source, job, purpose, notes=notes).run()

    def _stream(self, members: Members, operation: UserOperation, options: UserStreamOptions) -> Receipts[T]:
        job = read_job("stream", options, UserStreamOptions.__optional_keys__, target=self._target)
        warn_of_syncs(self._state_name, self._sender)
        source = self._read(members, operation, job.reading)

        def create(on_receipt: Callable[[Receipt], object]) -> Uploader[T]:
            observers = attrs.evolve(job.observers, on_receipt=on_receipt)
            return self._create_uploader(source, attrs.evolve(job, observers=observers), operation.operation_type)

        return Receipts(create)

    def _create_uploader(
        self, source: RowSource, job: Job, purpose: str, ledger: Ledger | None = None, notes: Ledger | None = None
    ) -> Uploader[T]:
        destination = ListDestination(
            empty=self._build_request(),
            confirms=self._confirms,
            counted=self.counted,
            rules=self._rules,
            limits=attrs.evolve(self.limits, per_operation=job.settings.users_per_operation),
            purpose=purpose,
            host=self._host,
            settings=source.settings,
            dialect=self._sender.dialect,
        )
        return Uploader(
            source,
            job=job,
            sender=self._sender,
            destination=destination,
            ledger=ledger,
            sizes=self.sizes,
            notes=notes,
        )
