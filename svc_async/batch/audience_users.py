"""The users of a custom audience: one request, or batches of any number of rows."""

import calendar
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, get_args

import attrs

from svc_async.ads.custom_audiences import (
    USERS_BATCH,
    AudienceUser,
    AudienceUserOperation,
    BatchCounts,
    BatchOperationType,
)
from svc_async.batch.encoding import Encoded, MemberEncoder, Rows
from svc_async.batch.identifiers import IDENTIFIERS, PartnerId, is_hash
from svc_async.batch.packer import Batch, Frame, Limits, Load
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.uploader import Job, Observers, Receipts, Settings, Slice, in_parts
from svc_async.clock import Clock
from svc_async.errors import ErrorDetail, InvalidArgument, UnexpectedAnswer
from svc_async.governor.governor import Priority
from svc_async.pipeline import Pipeline
from svc_async.retry import Retries
from svc_async.wire.endpoint import Request
from svc_async.wire.params import timestamp
from svc_async.wire.writing import to_json, to_plain

__all__ = ["AudienceUsers", "Members", "Operations", "Ordering"]

Members = (
    Iterable[Mapping[str, object]]
    | AsyncIterable[Mapping[str, object]]
    | Iterable[AudienceUser]
    | AsyncIterable[AudienceUser]
    | Rows
)
"""Mappings with the service's keys, records, or the rows of a table."""
Operation = Mapping[str, Any] | AudienceUserOperation
Operations = Iterable[Operation] | AsyncIterable[Operation]
Ordering = Literal["key", "none"]
Counted = Literal["users", "operations"]

T = TypeVar("T")

_MOST_OPERATIONS = 2_500  # contract CAU-01b
_MOST_BYTES = 5_000_000  # contract CAU-02
_MONTHS = 13  # contract CAU-06c


@attrs.frozen(cache_hash=True, slots=False)
class _Kind:
    """What operations of one job have in common."""

    operation_type: str
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    overhead: int = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda kind: kind.measure(), takes_self=True)
    )

    def measure(self) -> int:
        """Measure the frame; the length of a time does not depend on the time."""
        frame = self.frame(datetime(2000, 1, 1, tzinfo=UTC))
        return len(frame.head) + len(frame.tail)

    def frame(self, now: datetime) -> Frame:
        """Pin the times when a batch is built, so that sending its bytes again means the same."""
        effective_at, expires_at = self.effective_at, self.expires_at
        if self.operation_type == BatchOperationType.UPDATE:
            effective_at, expires_at = effective_at or now, expires_at or _months_after(now, _MONTHS)
        times = {"effective_at": effective_at, "expires_at": expires_at}
        tail = "".join(f',"{name}":"{timestamp(moment)}"' for name, moment in times.items() if moment is not None)
        return Frame(f'{{"operation_type":"{self.operation_type}","params":{{"users":[', f"]{tail}}}}}")


def _months_after(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.month - 1 + months, 12)
    year += moment.year
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


@attrs.frozen
class _Audience:
    """Where the batches of one audience go, and what their counts mean."""

    account_id: str
    custom_audience_id: str
    counted: Counted

    def request(self, batch: Batch) -> Request[BatchCounts]:
        empty = USERS_BATCH(account_id=self.account_id, custom_audience_id=self.custom_audience_id)
        return empty.with_body(batch.body())

    def judge(self, answer: BatchCounts, batch: Batch) -> Mapping[int, ErrorDetail] | None:
        sent = batch.rows if self.counted == "users" else batch.operations
        return {} if _counts(answer, sent) else None


def _counts(answer: BatchCounts, sent: int) -> bool:
    """Whether the service took over all that was sent (contract CAU-10, CAU-12)."""
    return answer.success_count == answer.total_count == sent


@attrs.frozen
class AudienceUsers:
    """The users of one custom audience.

    Attributes:
        counted: what `success_count` and `total_count` count.
    """

    _pipeline: Pipeline
    account_id: str
    custom_audience_id: str
    # Unspecified: whether the counts are of users or of operations (contract UNS-success-count-unit).
    counted: Counted = attrs.field(default="users", kw_only=True)

    async def send(self, operations: Sequence[Operation]) -> BatchCounts:
        """Send one request, which the service accepts or refuses as a whole.

        Values must be hashes already, except those of `partner_user_id`; `upload` and `apply` hash for you.

        Args:
            operations: 1 to 2,500, of up to 5,000,000 bytes of JSON.

        Raises:
            InvalidArgument: names the operation, the user and the rule that it breaks.
            UnexpectedAnswer: the service counted other users than were sent, so none is accepted: send them again.

        Contract: `custom_audience_users.batch`.
        """
        plain: list[Any] = [to_plain(operation) for operation in operations]
        if self._pipeline.validate:
            plain = _checked_operations(plain, self._pipeline.clock.now())
        body = to_json(plain)
        if self._pipeline.validate and len(body) > _MOST_BYTES:
            raise InvalidArgument("operations", f"must have at most {_MOST_BYTES:,} bytes (contract CAU-02)")
        request = USERS_BATCH(account_id=self.account_id, custom_audience_id=self.custom_audience_id)
        counts = await self._pipeline.send(request.with_body(body))
        users = sum(len(operation["params"]["users"]) for operation in plain)
        if not _counts(counts, users if self.counted == "users" else len(plain)):
            raise UnexpectedAnswer("the service counted other users than were sent; none is accepted", status=200)
        return counts

    async def upload(
        self,
        members: Members,
        *,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Add members to the audience, or renew them, however many there are.

        Values may be raw, and are then normalised and hashed, or hashes already. A row that breaks a rule fails by
        itself. Rows that share their first identifier, in the order partner_user_id, svc_id, email, phone_number,
        handle, device_id, arrive in their order; rows that share only a later one are not ordered.

        Args:
            members: mappings with the service's keys, each a string or several; or `Rows`, which is faster.
            effective_at: when they become members; now, if not given.
            expires_at: when they cease to be; 13 months from now, if not given.
            phone_region: the region of national phone numbers, such as `DE`; needs the extra `phone`.
            concurrency: the most requests under way.
            users_per_operation: how many users share an operation; with 1, a refusal names the row at once.
            ordering: `none` saves a little where no key comes twice; it does not coalesce.
            quarantine: seconds for which rows of the same lane wait after a request of unknown outcome.
            retry_delays: seconds before each repeat of a request; its rows fail when they are used up.
            progress: told how far the job is.
            on_receipt: told of each request that settled rows.
            on_failure: told of each row that failed; the report lists the first 10,000.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.

        Contract: `custom_audience_users.batch`.
        """
        kind = self._kind("Update", effective_at, expires_at)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        settings = _settings(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        return await self._job(_of_members(members, kind, phone_region), settings, observers).run()

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
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Take members out of the audience: whoever has any of the identifiers of a row.

        Args:
            members: as for `upload`.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            progress: as for `upload`.
            on_receipt: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.

        Contract: `custom_audience_users.batch`.
        """
        kind = self._kind("Delete", None, None)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        settings = _settings(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        return await self._job(_of_members(members, kind, phone_region), settings, observers).run()

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
            progress: as for `upload`.
            on_receipt: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.

        Contract: `custom_audience_users.batch`.
        """
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        settings = _settings(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        encoder = MemberEncoder(phone_region=phone_region)
        source = _of_operations(operations, encoder, self._pipeline.clock)
        return await self._job(source, settings, observers).run()

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[BatchCounts]:
        """Upload or remove members and give the receipts as they come; the result's `report` is there at any time.

        Use it as a context manager, or iterate to the end.

        Args:
            members: as for `upload`.
            operation_type: `Update` or `Delete`.
            effective_at: as for `upload`; a Delete goes without.
            expires_at: as for `upload`; a Delete goes without.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            progress: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read.

        Contract: `custom_audience_users.batch`.
        """
        kind = self._kind(operation_type, effective_at, expires_at)
        settings = _settings(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        source = _of_members(members, kind, phone_region)
        return Receipts(
            lambda on_receipt: self._job(
                source, settings, Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
            )
        )

    def _kind(self, operation_type: str, effective_at: datetime | None, expires_at: datetime | None) -> _Kind:
        _check_times(effective_at, expires_at, "", self._pipeline.clock.now())
        return _Kind(_operation_type(operation_type, "operation_type"), effective_at, expires_at)

    def _job(self, source: AsyncGenerator[Slice, None], settings: Settings, observers: Observers) -> Job[BatchCounts]:
        return Job(
            source,
            sender=self._pipeline.but(retries=Retries.none(), priority=Priority.BULK, max_wait=None),
            destination=_Audience(self.account_id, self.custom_audience_id, self.counted),
            settings=settings,
            observers=observers,
        )


def _settings(
    concurrency: int, users_per_operation: int, ordering: Ordering, quarantine: float, retry_delays: Sequence[float]
) -> Settings:
    if ordering not in get_args(Ordering):
        raise InvalidArgument("ordering", f"must be one of {', '.join(get_args(Ordering))}")
    return Settings(
        limits=Limits(operations=_MOST_OPERATIONS, size=_MOST_BYTES, per_operation=users_per_operation),
        concurrency=concurrency,
        ordered=ordering == "key",
        quarantine=quarantine,
        retry_delays=tuple(retry_delays),
    )


def _of_members(members: Members, kind: _Kind, phone_region: str | None) -> AsyncGenerator[Slice, None]:
    encoder = MemberEncoder(phone_region=phone_region)
    if isinstance(members, Rows):
        return _encoded(members.rows, kind, encoder.for_rows(members.columns).encode)
    return _encoded(_iterable("members", members), kind, encoder.encode)


async def _encoded(
    rows: Iterable[Any] | AsyncIterable[Any], kind: _Kind, encode: Callable[[Sequence[Any]], Encoded]
) -> AsyncGenerator[Slice, None]:
    first = 0
    async with aclosing(in_parts(rows)) as parts:
        async for part in parts:
            yield _slice(encode(part), kind, first, len(part))
            first += len(part)


def _slice(encoded: Encoded, kind: _Kind, first: int, rows: int) -> Slice:
    positions: Sequence[int] = range(first, first + rows)
    if encoded.misfits:
        positions = [first + place for place in encoded.places]
    misfits = {first + place: rule for place, rule in sorted(encoded.misfits.items())}
    return Slice(rows, Load(kind, encoded.form, encoded.keys, encoded.users, positions), misfits)


async def _of_operations(operations: Operations, encoder: MemberEncoder, clock: Clock) -> AsyncGenerator[Slice, None]:
    first = index = 0
    async with aclosing(in_parts(_iterable("operations", operations), size=1)) as parts:
        async for (operation,) in parts:
            kind, users = _parsed(operation, f"operations[{index}]", clock.now())
            index += 1
            async with aclosing(in_parts(users)) as slices:
                async for part in slices:
                    yield _slice(encoder.encode(part), kind, first, len(part))
                    first += len(part)


def _iterable(name: str, value: T) -> T:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | AsyncIterable):
        raise InvalidArgument(name, "must be an iterable or async iterable of mappings or records")
    return value


def _checked_operations(operations: Sequence[Any], now: datetime) -> list[Any]:
    """Hold the operations of one request to what can be known before it is sent; hashes become lower-case."""
    if not 1 <= len(operations) <= _MOST_OPERATIONS:
        raise InvalidArgument("operations", f"must be 1 to {_MOST_OPERATIONS:,} (contract CAU-01b)")
    checked: list[Any] = []
    for index, operation in enumerate(operations):
        where = f"operations[{index}]"
        _, users = _parsed(operation, where, now)
        hashed = [_checked_user(user, f"{where}.params.users[{place}]") for place, user in enumerate(users)]
        checked.append({**operation, "params": {**operation["params"], "users": hashed}})
    return checked


def _parsed(operation: object, where: str, now: datetime) -> tuple[_Kind, Sequence[object]]:
    """Take an operation apart (contract CAU-04, CAU-05)."""
    fields = _object(operation, where, ("operation_type", "params"))
    params = _object(fields.get("params"), f"{where}.params", ("users", "effective_at", "expires_at"))
    users = params.get("users")
    if not isinstance(users, Sequence) or isinstance(users, str | bytes):
        raise InvalidArgument(f"{where}.params.users", "must be an array (contract CAU-05)")
    effective_at = _moment(params.get("effective_at"), f"{where}.params.effective_at")
    expires_at = _moment(params.get("expires_at"), f"{where}.params.expires_at")
    _check_times(effective_at, expires_at, f"{where}.params.", now)
    operation_type = _operation_type(fields.get("operation_type"), f"{where}.operation_type")
    return _Kind(operation_type, effective_at, expires_at), users


def _object(value: object, where: str, keys: Iterable[str]) -> Mapping[str, Any]:
    fields = attrs.asdict(value, recurse=False) if attrs.has(type(value)) else value  # type: ignore[arg-type]
    if not isinstance(fields, Mapping) or not fields.keys() <= set(keys):
        raise InvalidArgument(where, f"must be an object with no keys but {', '.join(keys)}")
    return fields


def _operation_type(value: object, where: str) -> str:
    if value not in list(BatchOperationType):
        raise InvalidArgument(where, f"must be one of {', '.join(BatchOperationType)} (contract CAU-04)")
    return str(value)


def _moment(value: object, where: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidArgument(where, "must be a time in ISO 8601 (contract CAU-06)") from None
    if moment is None or isinstance(moment, datetime):
        return moment
    raise InvalidArgument(where, "must be a time (contract CAU-06)")


def _check_times(effective_at: datetime | None, expires_at: datetime | None, where: str, now: datetime) -> None:
    """Hold the times of an operation to their order, to the second, as they are sent (contract CAU-06b)."""
    for name, moment in (("effective_at", effective_at), ("expires_at", expires_at)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidArgument(f"{where}{name}", "must carry a time zone (contract GEN-12)")
    if timestamp(expires_at or _months_after(now, _MONTHS)) <= timestamp(effective_at or now):
        raise InvalidArgument(f"{where}expires_at", "must be later than effective_at (contract CAU-06b)")


def _checked_user(user: object, where: str) -> Mapping[str, Sequence[str]]:
    fields = _object(user, where, IDENTIFIERS)
    if not any(fields.values()):
        raise InvalidArgument(where, "must have at least one identifier")
    return {name: _checked_values(name, values, f"{where}.{name}") for name, values in fields.items()}


def _checked_values(name: str, values: object, where: str) -> Sequence[str]:
    if not isinstance(values, list) or not values:
        raise InvalidArgument(where, "must be an array with a value (contract CAU-07)")
    if isinstance(IDENTIFIERS[name], PartnerId):
        if all(isinstance(value, str) and value.strip() for value in values):
            return values
        raise InvalidArgument(where, "must hold text (contract CAU-08)")
    if not all(map(is_hash, values)):
        raise InvalidArgument(where, "must hold SHA-256 hashes as 64 hexadecimal digits (contract CAU-08)")
    return [value.lower() for value in values]
