"""The users of a list: what custom audiences and do-not-reach lists have in common.

Both take an array of operations, each with users and times. What tells them apart stands in their `Rules`: the
identifiers of a user, the times of an operation, and where the contract says so.
"""

import abc
import calendar
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import attrs
import msgspec

from svc_async.ads.custom_audiences import AudienceUser, AudienceUserOperation
from svc_async.ads.do_not_reach_lists import DoNotReachOperation, DoNotReachUser
from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationFrame
from svc_async.batch.packing.rows import EncodedRows
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.source import Slice, Source, is_replayable, slice_rows
from svc_async.batch.uploader import Job, Observers, Settings, Verdict
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.errors import ErrorDetail, InvalidArgument, UnexpectedAnswer
from svc_async.governor.slot import Priority
from svc_async.users.encoding import EncodedUsers, MemberEncoder, Rows
from svc_async.users.identifiers import IDENTIFIERS, PartnerId, is_hash
from svc_async.wire.params import timestamp
from svc_async.wire.route import Request
from svc_async.wire.writing import to_json, to_plain

__all__ = [
    "MOST_BYTES",
    "MOST_OPERATIONS",
    "Counted",
    "Members",
    "Operation",
    "Operations",
    "Ordering",
    "Rules",
    "UserList",
    "UserOperation",
    "months_after",
    "settings_of",
]

T = TypeVar("T")

User = Mapping[str, object] | AudienceUser | DoNotReachUser
Members = Iterable[User] | AsyncIterable[User] | Rows
"""Mappings with the service's keys, records, or the rows of a table."""
Operation = Mapping[str, Any] | AudienceUserOperation | DoNotReachOperation
Operations = Iterable[Operation] | AsyncIterable[Operation]
Ordering = Literal["key", "none"]
Counted = Literal["users", "operations"]

MOST_OPERATIONS = 2_500  # contract CAU-01b
MOST_BYTES = 5_000_000  # contract CAU-02


def months_after(moment: datetime, months: int) -> datetime:
    """Give the same time so many months later, on the last day of a month that is too short."""
    year, month = divmod(moment.month - 1 + months, 12)
    year += moment.year
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


@attrs.frozen(kw_only=True)
class Rules:
    """What the service asks of the operations on one kind of list.

    Attributes:
        identifiers: the keys of a user.
        times: the times of an operation; the last one is its end.
        pinned: gives the times that an Update is built with where they are not given.
        begin: what the end must be later than.
        latest: gives the latest end that may be given, if there is one.
        contract: where the contract has the rules of operations, bytes, type, users, times, end, keys and values.
    """

    identifiers: Sequence[str]
    times: Sequence[str]
    pinned: Callable[[datetime], Mapping[str, datetime]]
    begin: str
    latest: Callable[[datetime], datetime] | None = None
    contract: Mapping[str, str]

    def refuse(self, where: str, rule: str, about: str) -> InvalidArgument:
        """Say which rule an argument breaks."""
        return InvalidArgument(where, f"{rule} (contract {self.contract[about]})")

    def check(self, times: Mapping[str, datetime | None], where: str, now: datetime) -> None:
        """Hold the times of an operation to their order, to the second, as they are sent."""
        given = {name: moment for name, moment in times.items() if moment is not None}
        for name, moment in given.items():
            if moment.tzinfo is None:
                raise InvalidArgument(f"{where}{name}", "must have a time zone (contract GEN-12)")
        end = given.get("expires_at")
        start = given.get("effective_at", now)
        if timestamp(end or self.pinned(now)["expires_at"]) <= timestamp(start):
            raise self.refuse(f"{where}expires_at", f"must be later than {self.begin}", "end")
        if end is not None and self.latest is not None and timestamp(end) > timestamp(self.latest(now)):
            raise self.refuse(f"{where}expires_at", "must be within 13 months", "end")


@attrs.frozen(cache_hash=True, slots=False)
class UserOperation:
    """What operations of one job have in common: their type, and the times that were given."""

    rules: Rules = attrs.field(eq=False, repr=False)
    operation_type: str
    times: tuple[tuple[str, datetime], ...] = ()
    overhead: int = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda kind: kind.measure(), takes_self=True)
    )

    def to_plain(self) -> Any:
        """Give plain values that it can be made of again."""
        return [self.operation_type, [[name, moment.isoformat()] for name, moment in self.times]]

    def measure(self) -> int:
        """Measure the frame; the length of a time does not depend on the time."""
        return self.build_frame(datetime(2000, 1, 1, tzinfo=UTC)).size

    def build_frame(self, now: datetime) -> OperationFrame:
        """Pin the times when a batch is built, so that sending its bytes again means the same."""
        pinned = self.rules.pinned(now) if self.operation_type == BatchOperationType.UPDATE else {}
        times = {**pinned, **dict(self.times)}
        tail = "".join(f',"{name}":"{timestamp(times[name])}"' for name in self.rules.times if name in times)
        return OperationFrame(f'{{"operation_type":"{self.operation_type}","params":{{"users":[', f"]{tail}}}}}")


@attrs.frozen
class _Destination(Generic[T]):
    """Where the batches of one list go, and what their counts mean."""

    empty: Request[T]
    counts: Callable[[T, int], bool]
    counted: Counted
    rules: Rules
    of: str

    @property
    def name(self) -> str:
        """Name the list, and what its users are for, lest a journal take a removal for a finished upload."""
        what = "" if self.of == BatchOperationType.UPDATE else f" ({self.of})"
        return f"{self.empty.method} {self.empty.path}{what}"

    def parse_group(self, plain: Any) -> UserOperation:
        operation_type, times = plain
        return UserOperation(
            self.rules, operation_type, tuple((name, datetime.fromisoformat(moment)) for name, moment in times)
        )

    def build_request(self, batch: Batch) -> Request[T]:
        return self.empty.with_body(batch.body())

    def evaluate(self, answer: T, batch: Batch) -> Verdict | None:
        sent = batch.rows if self.counted == "users" else batch.operations
        return Verdict() if self.counts(answer, sent) else None

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Blot out every identifier."""
        message = reason.message
        for value in sorted(_values(msgspec.json.decode(row)), key=len, reverse=True):
            message = message.replace(value, "…")
        return attrs.evolve(reason, message=message)


def _values(user: object) -> set[str]:
    if isinstance(user, str):
        return {user} - {""}
    if isinstance(user, dict):
        user = list(user.values())
    return set().union(*map(_values, user)) if isinstance(user, list) else set()


@attrs.frozen
class UserList(abc.ABC, Generic[T]):
    """The users of one list.

    Attributes:
        counted: what `success_count` and `total_count` count.
    """

    _pipeline: Pipeline
    account_id: str
    # Unspecified: whether the counts are of users or of operations (contract UNS-success-count-unit).
    counted: Counted = attrs.field(default="users", kw_only=True)

    @property
    @abc.abstractmethod
    def _rules(self) -> Rules: ...

    @abc.abstractmethod
    def _request(self) -> Request[T]:
        """Give the request that carries operations, without them."""

    @abc.abstractmethod
    def _counts(self, answer: T, sent: int) -> bool:
        """Whether the service took over all that was sent."""

    async def upload(
        self,
        members: Members,
        *,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Add members to the list, or renew them, however many there are.

        Values may be raw, and are then normalised and hashed, or hashes already. A row that breaks a rule fails by
        itself. Rows that share their first identifier, in the order partner_user_id, svc_id, email, phone_number,
        handle, device_id, arrive in their order; rows that share only a later one are not ordered.

        Args:
            members: mappings with the service's keys, each a string or several; or `Rows`, which is faster.
            expires_at: when they cease to be members; in 13 months, if not given.
            phone_region: the region of national phone numbers, such as `DE`; needs the extra `phone`.
            concurrency: the most requests under way.
            users_per_operation: how many users share an operation; with 1, a refusal names the row at once.
            ordering: `none` saves a little where no key comes twice; it does not coalesce.
            quarantine: seconds for which rows of the same lane wait after a request of unknown outcome.
            retry_delays: seconds before each repeat of a request; its rows fail when they are used up.
            journal: a file that tells what is settled. The same call after any end, a kill included, then goes on where
                the job had come to; when it was finished, it gives its report. It takes the same source: one that can
                be read again, such as a list or an object with `__iter__`; what an iterator gives is put on the disk
                beside the journal first, hashed. `concurrency` is that of the first call.
            progress: told how far the job is.
            on_receipt: told of each request that settled rows.
            on_failure: told of each row that failed; the report lists the first 10,000.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.
        """
        kind = self._kind("Update", expires_at=expires_at)
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        return await self._job(self._of_members(members, kind, phone_region), settings, observers, journal).run()

    async def remove(
        self,
        members: Members,
        *,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Take members out of the list: whoever has any of the identifiers of a row.

        Args:
            members: as for `upload`.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            journal: as for `upload`.
            progress: as for `upload`.
            on_receipt: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.
        """
        kind = self._kind("Delete")
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        return await self._job(
            self._of_members(members, kind, phone_region), settings, observers, journal, of=kind.operation_type
        ).run()

    async def apply(
        self,
        operations: Operations,
        *,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Apply operations, however many there are and however many users each has.

        Each user is a row, and positions count users across the operations. Users keep the type and the times of
        their operation, but are packed anew. Values may be raw or hashed. An operation that is malformed ends the
        reading; what came before it is finished.

        Args:
            operations: as for `send`, as an iterable or async iterable.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            journal: as for `upload`.
            progress: as for `upload`.
            on_receipt: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.
        """
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        return await self._job(
            self._of_operations(operations, phone_region), settings, observers, journal, of="operations"
        ).run()

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[T]:
        """Upload or remove members and give the receipts as they come; the result's `report` is there at any time.

        Use it as a context manager, or iterate to the end.

        Args:
            members: as for `upload`.
            operation_type: `Update` or `Delete`.
            expires_at: as for `upload`; a Delete goes without.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            journal: as for `upload`.
            progress: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
        """
        kind = self._kind(operation_type, expires_at=expires_at)
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        source = self._of_members(members, kind, phone_region)
        return self._receipts(source, settings, progress, on_failure, journal, of=kind.operation_type)

    async def _send(self, operations: Sequence[Operation]) -> T:
        """Send one request, which the service accepts or refuses as a whole."""
        plain: list[Any] = [to_plain(operation) for operation in operations]
        if self._pipeline.validate:
            plain = self._checked_operations(plain, self._pipeline.clock.now())
        body = to_json(plain)
        if self._pipeline.validate and len(body) > MOST_BYTES:
            raise self._rules.refuse("operations", f"must have at most {MOST_BYTES:,} bytes", "bytes")
        answer = await self._pipeline.send(self._request().with_body(body))
        users = sum(len(operation["params"]["users"]) for operation in plain)
        if not self._counts(answer, users if self.counted == "users" else len(plain)):
            raise UnexpectedAnswer("the service counted other users than were sent; none is accepted", status=200)
        return answer

    def _kind(self, operation_type: str, **times: datetime | None) -> UserOperation:
        self._rules.check(times, "", self._pipeline.clock.now())
        return self._made(self._operation_type(operation_type, "operation_type"), times)

    def _made(self, operation_type: str, times: Mapping[str, datetime | None]) -> UserOperation:
        given = tuple((name, moment) for name, moment in times.items() if moment is not None)
        return UserOperation(self._rules, operation_type, given)

    def _job(
        self,
        source: Source,
        settings: Settings,
        observers: Observers,
        journal: str | Path | None,
        of: str = BatchOperationType.UPDATE,
    ) -> Job[T]:
        return Job(
            source,
            sender=self._pipeline.but(retries=Retries.none(), priority=Priority.BULK, max_wait=None),
            destination=_Destination(self._request(), self._counts, self.counted, self._rules, of),
            settings=settings,
            observers=observers,
            journal=journal,
        )

    def _receipts(
        self,
        source: Source,
        settings: Settings,
        progress: Callable[[Progress], object] | None,
        on_failure: Callable[[Failure], object] | None,
        journal: str | Path | None,
        *,
        of: str,
    ) -> Receipts[T]:
        def job(on_receipt: Callable[[Receipt], None]) -> Job[T]:
            observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
            return self._job(source, settings, observers, journal, of)

        return Receipts(job)

    def _encoder(self, phone_region: str | None) -> MemberEncoder:
        return MemberEncoder(phone_region=phone_region, names=self._rules.identifiers)

    def _of_members(self, members: Members, kind: UserOperation, phone_region: str | None) -> Source:
        encoder = self._encoder(phone_region)
        if isinstance(members, Rows):
            rows, encode = members.rows, encoder.for_rows(members.columns).encode
            return Source(lambda: _encoded(rows, kind, encode), is_replayable(rows))
        _check_iterable("members", members)
        return Source(lambda: _encoded(members, kind, encoder.encode), is_replayable(members))

    def _of_operations(self, operations: Operations, phone_region: str | None) -> Source:
        encoder = self._encoder(phone_region)
        _check_iterable("operations", operations)
        return Source(lambda: self._read_operations(operations, encoder), is_replayable(operations))

    async def _read_operations(self, operations: Operations, encoder: MemberEncoder) -> AsyncGenerator[Slice, None]:
        first = index = 0
        async with aclosing(slice_rows(operations, size=1)) as parts:
            async for (operation,) in parts:
                kind, users = self._parsed(operation, f"operations[{index}]", self._pipeline.clock.now())
                index += 1
                async with aclosing(slice_rows(users)) as slices:
                    async for part in slices:
                        yield _slice(encoder.encode(part), kind, first, len(part))
                        first += len(part)

    def _checked_operations(self, operations: Sequence[Any], now: datetime) -> list[Any]:
        """Hold the operations of one request to what can be known before it is sent; hashes become lower-case."""
        if not 1 <= len(operations) <= MOST_OPERATIONS:
            raise self._rules.refuse("operations", f"must be 1 to {MOST_OPERATIONS:,}", "operations")
        checked: list[Any] = []
        for index, operation in enumerate(operations):
            where = f"operations[{index}]"
            _, users = self._parsed(operation, where, now)
            hashed = [self._checked_user(user, f"{where}.params.users[{place}]") for place, user in enumerate(users)]
            checked.append({**operation, "params": {**operation["params"], "users": hashed}})
        return checked

    def _parsed(self, operation: object, where: str, now: datetime) -> tuple[UserOperation, Sequence[object]]:
        """Take an operation apart."""
        fields = _object(operation, where, ("operation_type", "params"))
        params = _object(fields.get("params"), f"{where}.params", ("users", *self._rules.times))
        users = params.get("users")
        if not isinstance(users, Sequence) or isinstance(users, str | bytes):
            raise self._rules.refuse(f"{where}.params.users", "must be an array", "users")
        times = {name: self._moment(params.get(name), f"{where}.params.{name}") for name in self._rules.times}
        self._rules.check(times, f"{where}.params.", now)
        return self._made(self._operation_type(fields.get("operation_type"), f"{where}.operation_type"), times), users

    def _operation_type(self, value: object, where: str) -> str:
        if value not in list(BatchOperationType):
            raise self._rules.refuse(where, f"must be one of {', '.join(BatchOperationType)}", "type")
        return str(value)

    def _moment(self, value: object, where: str) -> datetime | None:
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise self._rules.refuse(where, "must be a time in ISO 8601", "times") from None
        if moment is None or isinstance(moment, datetime):
            return moment
        raise self._rules.refuse(where, "must be a time", "times")

    def _checked_user(self, user: object, where: str) -> Mapping[str, Sequence[str]]:
        fields = _object(user, where, self._rules.identifiers)
        if not any(fields.values()):
            raise InvalidArgument(where, "must have at least one identifier")
        return {name: self._checked_values(name, values, f"{where}.{name}") for name, values in fields.items()}

    def _checked_values(self, name: str, values: object, where: str) -> Sequence[str]:
        if not isinstance(values, list) or not values:
            raise self._rules.refuse(where, "must be an array with a value", "keys")
        if isinstance(IDENTIFIERS[name], PartnerId):
            if all(isinstance(value, str) and value.strip() for value in values):
                return values
            raise self._rules.refuse(where, "must contain text", "values")
        if not all(map(is_hash, values)):
            raise self._rules.refuse(where, "must contain SHA-256 hashes as 64 hexadecimal digits", "values")
        return [value.lower() for value in values]


def settings_of(
    concurrency: int, users_per_operation: int, ordering: Ordering, quarantine: float, retry_delays: Sequence[float]
) -> Settings:
    """Put the settings of a call together."""
    if ordering not in get_args(Ordering):
        raise InvalidArgument("ordering", f"must be one of {', '.join(get_args(Ordering))}")
    return Settings(
        limits=Limits(operations=MOST_OPERATIONS, size=MOST_BYTES, per_operation=users_per_operation),
        concurrency=concurrency,
        ordered=ordering == "key",
        quarantine=quarantine,
        retry_delays=tuple(retry_delays),
    )


async def _encoded(
    rows: Iterable[Any] | AsyncIterable[Any], kind: UserOperation, encode: Callable[[Sequence[Any]], EncodedUsers]
) -> AsyncGenerator[Slice, None]:
    first = 0
    async with aclosing(slice_rows(rows)) as parts:
        async for part in parts:
            yield _slice(encode(part), kind, first, len(part))
            first += len(part)


def _slice(encoded: EncodedUsers, kind: UserOperation, first: int, rows: int) -> Slice:
    positions: Sequence[int] = range(first, first + rows)
    if encoded.invalid:
        positions = [first + place for place in encoded.indexes]
    failures = [Failure(first + place, rule, "INVALID_ROW") for place, rule in sorted(encoded.invalid.items())]
    return Slice(rows, EncodedRows(kind, encoded.template, encoded.keys, encoded.users, positions), failures)


def _check_iterable(name: str, value: object) -> None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | AsyncIterable):
        raise InvalidArgument(name, "must be an iterable or async iterable of mappings or records")


def _object(value: object, where: str, keys: Iterable[str]) -> Mapping[str, Any]:
    fields = attrs.asdict(value, recurse=False) if attrs.has(type(value)) else value  # type: ignore[arg-type]
    if not isinstance(fields, Mapping) or not fields.keys() <= set(keys):
        raise InvalidArgument(where, f"must be an object with no keys but {', '.join(keys)}")
    return fields
