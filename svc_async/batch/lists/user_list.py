"""The users of a list: what custom audiences and do-not-reach lists have in common.

Both take operations, each with users and times. Their `ListRules` state the differences, with the contract ids.
"""

import abc
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import attrs

from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.cluster.calls import ClusterCall, ClusterClient, ClusterRunner, ListIds, NoCluster
from svc_async.batch.journal.ledger import JournalPath, LedgerFactory, create_ledger
from svc_async.batch.lists.destination import Counted, ListDestination
from svc_async.batch.lists.members import MemberReader, Members
from svc_async.batch.lists.operations import Operation, OperationParser, Operations, UserOperation
from svc_async.batch.lists.rules import ListRules
from svc_async.batch.packing.lane_count import count_lanes
from svc_async.batch.packing.limits import Limits
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.sender import BatchSender
from svc_async.batch.settings import (
    DEFAULTS,
    BatchSettings,
    JobSizes,
    Observers,
    Ordering,
    Reading,
)
from svc_async.batch.source import RowSource
from svc_async.batch.uploader import Uploader
from svc_async.users.encoding import BadIdentifiers, MemberEncoder
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
        create_ledger: creates the ledger of a job.
        cluster_runner: runs jobs on clusters.
        before_sending, at_sending: called for each request of a job; see `make_job_sender`.
    """

    _sender: BatchSender = attrs.field(repr=False)
    account_id: str
    # Unspecified: whether the counts are of users or of operations (contract UNS-success-count-unit).
    counted: Counted = attrs.field(default="users", kw_only=True)
    limits: Limits = attrs.field(default=USER_LIMITS, kw_only=True, repr=False)
    sizes: JobSizes = attrs.field(factory=JobSizes, kw_only=True, repr=False)
    create_ledger: LedgerFactory = attrs.field(default=create_ledger, kw_only=True, repr=False)
    cluster_runner: ClusterRunner = attrs.field(factory=NoCluster, kw_only=True, repr=False)
    before_sending: Callable[[], Awaitable[object]] | None = attrs.field(default=None, kw_only=True, repr=False)
    at_sending: Callable[[], object] | None = attrs.field(default=None, kw_only=True, repr=False)

    @property
    @abc.abstractmethod
    def _rules(self) -> ListRules: ...

    @property
    def _host(self) -> str:
        return self._sender.endpoints.of(Surface.ADS)

    @abc.abstractmethod
    def _build_request(self) -> Request[T]:
        """Return the request that carries operations, without them."""

    @abc.abstractmethod
    def _describe_list(self) -> ListIds:
        """Return what kind of list it is, and its ids."""

    @abc.abstractmethod
    def _confirms(self, answer: T, sent: int) -> bool:
        """Return whether the service accepted everything that was sent."""

    async def upload(
        self,
        members: Members,
        *,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        cluster: ClusterClient | None = None,
        shards: int | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Add any number of members to the list, or renew them.

        Values may be raw, and are then normalised and hashed, or hashes already. A row that breaks a rule fails by
        itself. Rows that share their first identifier, in the order partner_user_id, svc_id, email, phone_number,
        handle, device_id, are applied in input order; rows that share only a later one are not ordered.

        A `str` or `Path` is the path or `file://` URL of a local file: CSV, TSV, JSON lines or Parquet, compressed or
        not. The format is detected from the content. The file is checked before anything is sent. For mapped columns
        or other encodings, pass the `rows()` of `svc_async.sources.detect.open_source`. No other URL is fetched.

        Settings and observers: see `BatchSettings` and `Observers` in `svc_async.batch.settings`.

        Args:
            members: mappings with the service's keys, each a string or several; `Rows` or `Columns`, which are faster;
                a table of Arrow, whose columns are recognised as those of a file; or a file.
            expires_at: when they cease to be members; by default in 13 months.
            phone_region: the region of national phone numbers, such as `DE`; needs the extra `phone`.
            bad_identifiers: whether a row with an identifier that breaks its rule fails ("fail"), or is sent with its
                other identifiers ("drop"); `Report.partly_valid` counts these rows.
            journal: path of the journal, or `state.journal(name)`. Repeat the call after a crash to resume; a finished
                job returns its report at once. The source must yield the same rows; a one-shot iterator is first
                spooled, hashed, with the journal.
            cluster: a `distributed.Client(..., asynchronous=True)` whose workers do the job; see `ClusterCall`.
            shards: into how many parts a new job on a cluster is divided; by default, as its rows need.

        Raises:
            InvalidArgument: invalid setting (nothing read).
            UnusableFile: the file cannot be read, or the journal is locked or belongs to another job or source
                (nothing sent).
            BatchError: the job could not be finished; `report` says what became of the rows that were read.
        """
        job = self._run_members(
            members,
            self._build_operation(BatchOperationType.UPDATE, expires_at=expires_at),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure),
            reading=Reading(phone_region, bad_identifiers),
            journal=journal,
            cluster=cluster,
            shards=shards,
        )
        del members  # its rows must not be among the locals of a traceback
        return await job

    async def remove(
        self,
        members: Members,
        *,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        cluster: ClusterClient | None = None,
        shards: int | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Remove members from the list: everybody who has any of the identifiers of a row.

        Arguments, settings and exceptions: see `upload`.
        """
        job = self._run_members(
            members,
            self._build_operation(BatchOperationType.DELETE),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure),
            reading=Reading(phone_region, bad_identifiers),
            journal=journal,
            cluster=cluster,
            shards=shards,
        )
        del members  # its rows must not be among the locals of a traceback
        return await job

    async def apply(
        self,
        operations: Operations,
        *,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Apply any number of operations, with any number of users each.

        Each user is a row, and positions count users across the operations. Users keep the type and the times of
        their operation, but are packed anew. Values may be raw or hashed. A malformed operation ends the reading;
        what came before it is finished.

        Arguments, settings and exceptions: see `upload`.

        Args:
            operations: as for `send`, as an iterable or async iterable.
        """
        reading = Reading(phone_region, bad_identifiers)
        source = self._create_reader(reading).read_operations(operations, self._parse)
        return await self._create_uploader(
            attrs.evolve(source, settings=attrs.asdict(reading)),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure),
            journal,
            "operations",
        ).run()

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[T]:
        """Upload or remove members, and iterate over the receipts as they come; `report` is available at any time.

        Use the result as a context manager, or iterate to the end.
        Arguments, settings and exceptions: see `upload`.

        Args:
            operation_type: `Update` or `Delete`; a Delete has no times.
        """
        operation = self._build_operation(operation_type, expires_at=expires_at)
        return self._stream(
            self._read(members, operation, Reading(phone_region, bad_identifiers)),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_failure=on_failure),
            journal,
            purpose=operation.operation_type,
        )

    async def _send(self, operations: Sequence[Operation]) -> T:
        """Send one request, which the service accepts or refuses as a whole."""
        plain: list[Any] = to_plain([*operations], name="operations")
        if self._sender.validate:
            plain = self._check(plain)
        body = to_json(plain, name="operations")
        if self._sender.validate and len(body) > self.limits.size:
            raise self._rules.make_error("operations", f"must have at most {self.limits.size:,} bytes", "bytes")
        answer, whole = await self._sender.send_with_answer(self._build_request().with_body(body))
        users = sum(len(operation["params"]["users"]) for operation in plain)
        if not self._confirms(answer, users if self.counted == "users" else len(plain)):
            problem = "the service counted other users than were sent; wait two minutes, then send all of them again"
            raise make_unexpected(problem, whole, repeatable=True)  # perhaps the answer to another request
        return answer

    def _check(self, operations: Sequence[Any]) -> list[Any]:
        """Check the operations of one request as far as possible before it is sent; hashes become lower-case."""
        if not 1 <= len(operations) <= self.limits.operations:
            raise self._rules.make_error("operations", f"must be 1 to {self.limits.operations:,}", "operations")
        parser, now = OperationParser(self._rules), self._sender.clock.now()
        return [parser.check_hashed(each, f"operations[{index}]", now) for index, each in enumerate(operations)]

    def _parse(self, operation: object, where: str) -> tuple[UserOperation, Sequence[object]]:
        return OperationParser(self._rules).parse(operation, where, self._sender.clock.now())

    def _build_operation(self, operation_type: str, **times: datetime | None) -> UserOperation:
        return OperationParser(self._rules).build(operation_type, times, self._sender.clock.now())

    def _create_reader(self, reading: Reading) -> MemberReader:
        encoder = MemberEncoder(names=self._rules.identifiers, **attrs.asdict(reading))
        return MemberReader(encoder, self._rules.identifiers, self.sizes.slice_rows)

    def _read(self, members: Members, operation: UserOperation, reading: Reading) -> RowSource:
        source = self._create_reader(reading).read(members, operation)
        times = {name: timestamp(moment) for name, moment in operation.times}
        return attrs.evolve(source, settings={**attrs.asdict(reading), **times})

    async def _run_members(
        self,
        members: Members,
        operation: UserOperation,
        settings: BatchSettings,
        observers: Observers,
        *,
        reading: Reading,
        journal: JournalPath | None,
        cluster: ClusterClient | None,
        shards: int | None,
    ) -> Report:
        if cluster is None:
            source = self._read(members, operation, reading)
            del members
            return await self._create_uploader(source, settings, observers, journal, operation.operation_type).run()
        return await self.cluster_runner.run(
            ClusterCall(
                client=cluster,
                shards=shards,
                ids=self._describe_list(),
                operation=operation.operation_type,
                source=members,
                settings=settings,
                reading=reading,
                times=dict(operation.times),
                journal=journal,
                observers=observers,
            )
        )

    def _stream(
        self,
        source: RowSource,
        settings: BatchSettings,
        observers: Observers,
        journal: JournalPath | None,
        *,
        purpose: str,
    ) -> Receipts[T]:
        return Receipts(
            lambda on_receipt: self._create_uploader(
                source, settings, attrs.evolve(observers, on_receipt=on_receipt), journal, purpose
            ),
        )

    def _create_uploader(
        self,
        source: RowSource,
        settings: BatchSettings,
        observers: Observers,
        journal: JournalPath | None,
        purpose: str,
    ) -> Uploader[T]:
        destination = ListDestination(
            empty=self._build_request(),
            confirms=self._confirms,
            counted=self.counted,
            rules=self._rules,
            limits=attrs.evolve(self.limits, per_operation=settings.users_per_operation),
            purpose=purpose,
            host=self._host,
            settings=source.settings,
        )
        pace = self._sender.find_pace(destination.empty)
        lanes = count_lanes(destination.limits, settings.concurrency, memory=self._sender.memory.total, pace=pace)
        return Uploader(
            source,
            sender=self._sender,
            destination=destination,
            settings=settings,
            observers=observers,
            ledger=self.create_ledger(
                journal, destination=destination, settings=settings, lanes=lanes, clock=self._sender.clock
            ),
            sizes=self.sizes,
            before_sending=self.before_sending,
            at_sending=self.at_sending,
        )
