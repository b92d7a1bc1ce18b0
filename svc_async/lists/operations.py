"""Operations on the users of a list: the rules of the service, how those of a caller are checked, what answers mean."""

import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import attrs
import msgspec

from svc_async.ads.custom_audiences import AudienceUserOperation
from svc_async.ads.dicts import DoNotReachOperationDict, OperationDict
from svc_async.ads.do_not_reach_lists import DoNotReachOperation
from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.destination import Verdict, describe_dialect
from svc_async.batch.packing.batch import Batch, Limits, OperationFrame
from svc_async.batch.recovery import REMOVED, remove_hashes
from svc_async.errors import ErrorDetail, InvalidArgument
from svc_async.users.identifiers import IDENTIFIERS, PartnerId, is_hash
from svc_async.wire.dialect import Dialect
from svc_async.wire.params import timestamp, to_utc
from svc_async.wire.records import describe_mapping, fields_of
from svc_async.wire.route import Request

__all__ = ["Counted", "ListDestination", "ListRules", "Operation", "OperationParser", "Operations", "UserOperation"]


@attrs.frozen(kw_only=True)
class ListRules:
    """The service's rules for the operations on one kind of list.

    Attributes:
        identifiers: the keys of a user.
        times: the times of an operation; the last one is its end.
        default_times: the times that an Update is built with where none are given.
        begin: what the end must be later than.
        latest_end: returns the latest end that may be given, if there is one.
        contract: the contract ids of the rules of operations, bytes, type, users, times, end, keys and values.
    """

    identifiers: Sequence[str]
    times: Sequence[str]
    default_times: Callable[[datetime], Mapping[str, datetime]]
    begin: str
    latest_end: Callable[[datetime], datetime] | None = None
    contract: Mapping[str, str]

    def make_error(self, where: str, rule: str, about: str) -> InvalidArgument:
        """Return the error of an argument that breaks a rule."""
        return InvalidArgument(where, rule, rule_ids=(self.contract[about],))

    def check_times(self, times: Mapping[str, datetime | None], where: str, now: datetime) -> None:
        """Check the order of the times of an operation, to the second, as they are sent.

        Raises:
            InvalidArgument: a time is not a datetime, or has no zone, or the end is too early or too late.
        """
        given = {name: moment for name, moment in times.items() if moment is not None}
        for name, moment in given.items():
            to_utc(f"{where}{name}", moment)
        end = given.get("expires_at")
        start = given.get("effective_at", now)
        if timestamp(end or self.default_times(now)["expires_at"]) <= timestamp(start):
            is_past = end is not None and timestamp(end) <= timestamp(now)
            rule = "must be later than now: it is past" if is_past else f"must be later than {self.begin}"
            raise self.make_error(f"{where}expires_at", rule, "end")
        latest = self.latest_end and self.latest_end(now)
        if end is not None and latest is not None and timestamp(end) > timestamp(latest):
            rule = f"must be within 13 months, by {latest.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
            raise self.make_error(f"{where}expires_at", rule, "end")


Operation = OperationDict | DoNotReachOperationDict | Mapping[str, Any] | AudienceUserOperation | DoNotReachOperation
Operations = Iterable[Operation] | AsyncIterable[Operation]


@attrs.frozen(cache_hash=True, slots=False)
class UserOperation:
    """What operations of one job have in common: their type, and the times that were given.

    Attributes:
        dialect: the words in which they are written, if they are not those of the contract.
    """

    rules: ListRules = attrs.field(eq=False, repr=False)
    operation_type: str
    times: tuple[tuple[str, datetime], ...] = ()
    dialect: Dialect | None = attrs.field(default=None, eq=False, repr=False)
    overhead: int = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda operation: operation.measure(), takes_self=True)
    )

    @classmethod
    def from_plain(cls, rules: ListRules, plain: Any, dialect: Dialect | None) -> "UserOperation":
        """Parse what `to_plain` returned."""
        operation_type, times = plain
        moments = tuple((name, datetime.fromisoformat(moment)) for name, moment in times)
        return cls(rules, operation_type, moments, dialect)

    def to_plain(self) -> Any:
        """Return plain values that `from_plain` parses."""
        return [self.operation_type, [[name, timestamp(moment)] for name, moment in self.times]]

    def measure(self) -> int:
        """Return the size of the frame; the length of a time does not depend on the time."""
        return self.build_frame(datetime(2000, 1, 1, tzinfo=UTC)).size

    def build_frame(self, now: datetime) -> OperationFrame:
        """Pin the times when a batch is built, so that sending its bytes again means the same."""
        defaults = self.rules.default_times(now) if self.operation_type == BatchOperationType.UPDATE else {}
        times = {**defaults, **dict(self.times)}
        tail = "".join(f',"{name}":"{timestamp(times[name])}"' for name in self.rules.times if name in times)
        frame = OperationFrame(f'{{"operation_type":"{self.operation_type}","params":{{"users":[', f"]{tail}}}}}")
        return frame if self.dialect is None else frame.write_in(self.dialect)


@attrs.frozen
class OperationParser:
    """Parses the operations of a caller, and checks them against the rules of their list."""

    rules: ListRules
    dialect: Dialect | None = None

    def build(self, operation_type: object, times: Mapping[str, datetime | None], now: datetime) -> UserOperation:
        """Check a type and times, and return what operations with them have in common.

        Raises:
            InvalidArgument: names the argument and the rule that it breaks.
        """
        self.rules.check_times(times, "", now)
        return self._build(self._parse_type(operation_type, "operation_type"), times)

    def parse(self, operation: object, where: str, now: datetime) -> tuple[UserOperation, Sequence[object]]:
        """Split an operation into what it shares with others and its users.

        Raises:
            InvalidArgument: names the part of the operation and the rule that it breaks.
        """
        fields = _parse_object(operation, where, ("operation_type", "params"))
        params = _parse_object(fields.get("params"), f"{where}.params", ("users", *self.rules.times))
        users = params.get("users")
        if not isinstance(users, Sequence) or isinstance(users, str | bytes):
            raise self.rules.make_error(f"{where}.params.users", "must be an array", "users")
        times = {name: self._parse_time(params.get(name), f"{where}.params.{name}") for name in self.rules.times}
        self.rules.check_times(times, f"{where}.params.", now)
        return self._build(self._parse_type(fields.get("operation_type"), f"{where}.operation_type"), times), users

    def check_hashed(self, operation: Mapping[str, Any], where: str, now: datetime) -> Mapping[str, Any]:
        """Check an operation whose values are hashes already; return it with the hashes in lower case.

        Raises:
            InvalidArgument: names the user and the rule that it breaks.
        """
        _, users = self.parse(operation, where, now)
        checked = [self._check_user(user, f"{where}.params.users[{index}]") for index, user in enumerate(users)]
        return {**operation, "params": {**operation["params"], "users": checked}}

    def _build(self, operation_type: str, times: Mapping[str, datetime | None]) -> UserOperation:
        given = tuple((name, moment) for name, moment in times.items() if moment is not None)
        return UserOperation(self.rules, operation_type, given, self.dialect)

    def _parse_type(self, value: object, where: str) -> str:
        if value not in list(BatchOperationType):
            raise self.rules.make_error(where, f"must be one of {', '.join(BatchOperationType)}", "type")
        return str(value)

    def _parse_time(self, value: object, where: str) -> datetime | None:
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise self.rules.make_error(where, "must be a time in ISO 8601", "times") from None
        if moment is None or isinstance(moment, datetime):
            return moment
        raise self.rules.make_error(where, "must be a time", "times")

    def _check_user(self, user: object, where: str) -> Mapping[str, Sequence[str]]:
        fields = _parse_object(user, where, self.rules.identifiers)
        if not any(fields.values()):
            raise InvalidArgument(where, "must have at least one identifier")
        return {name: self._check_values(name, values, f"{where}.{name}") for name, values in fields.items()}

    def _check_values(self, name: str, values: object, where: str) -> Sequence[str]:
        if not isinstance(values, list) or not values:
            raise self.rules.make_error(where, "must be an array with a value", "keys")
        if isinstance(IDENTIFIERS[name], PartnerId):
            if all(isinstance(value, str) and value.strip() for value in values):
                return values
            raise self.rules.make_error(where, "must contain text", "values")
        if not all(map(is_hash, values)):
            raise self.rules.make_error(where, "must contain SHA-256 hashes as 64 hexadecimal digits", "values")
        return [value.lower() for value in values]


def _parse_object(value: object, where: str, keys: Iterable[str]) -> Mapping[str, Any]:
    fields = fields_of(value)
    if fields is None or not fields.keys() <= set(keys):
        rule = f"must be an object with no keys but {', '.join(keys)}"
        proposal = describe_mapping(value, tuples="dict(zip(columns, row))") if fields is None else ""
        raise InvalidArgument(where, f"{rule}{proposal}")
    return fields


T = TypeVar("T")

Counted = Literal["users", "operations"]

_NOTHING = "(?!)"
"""A pattern that matches nothing."""


@attrs.frozen(kw_only=True)
class ListDestination(Generic[T]):
    """The list that batches of users are sent to, and what its answers mean.

    Attributes:
        empty: the request without operations.
        confirms: returns whether an answer confirms everything that was sent.
        counted: what the answer counts.
        rules: the rules of the list.
        limits: what one request may hold.
        purpose: what the operations are for, lest a journal take a removal for a finished upload.
        host: where the list is.
        settings: what changes what a job sends of a row, as values for JSON.
        dialect: the words in which it is sent, if they are not those of the contract.
    """

    empty: Request[T]
    confirms: Callable[[T, int], bool]
    counted: Counted
    rules: ListRules
    limits: Limits
    purpose: str
    host: str
    settings: Mapping[str, Any]
    dialect: Dialect | None

    @property
    def about(self) -> Mapping[str, Any]:
        """The host, the list with the purpose, the settings and the words."""
        purpose = "" if self.purpose == BatchOperationType.UPDATE else f" ({self.purpose})"
        destination = f"{self.empty.method} {self.empty.path}{purpose}"
        return {"host": self.host, "destination": destination, **self.settings, **describe_dialect(self.dialect)}

    def parse_group(self, plain: Any) -> UserOperation:
        """Parse a group from its plain values."""
        return UserOperation.from_plain(self.rules, plain, self.dialect)

    def build_request(self, batch: Batch) -> Request[T]:
        """Return the request that carries a batch."""
        return self.empty.with_body(batch.write_body())

    def evaluate(self, answer: T, batch: Batch) -> Verdict | None:
        """Return the verdict on the rows of a batch; None if the answer counts other rows than were sent."""
        sent = batch.rows if self.counted == "users" else batch.operations
        return Verdict() if self.confirms(answer, sent) else None

    def name_rows(self, batch: Batch) -> Sequence[str | None]:  # noqa: ARG002 - people have no names here
        """Return nothing: a failure contains nothing of a person."""
        return ()

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Remove every identifier of a row, which is in JSON, and every hash from the service's words."""
        values = sorted(_collect_values(msgspec.json.decode(row)), key=len, reverse=True)
        find_value = re.compile("|".join(map(re.escape, values)) or _NOTHING, re.IGNORECASE)
        # A code or a name may contain a short identifier by chance, but hardly as a whole word.
        find_word = re.compile(rf"(?<!\w)(?:{find_value.pattern})(?!\w)", re.IGNORECASE)
        return attrs.evolve(
            reason,
            message=find_value.sub(REMOVED, remove_hashes(reason.message)),
            code=_remove(find_word, reason.code),
            parameter=None if reason.parameter is None else _remove(find_word, reason.parameter),
        )


def _remove(find: re.Pattern[str], words: str | int) -> str:
    return find.sub(REMOVED, remove_hashes(str(words)))


def _collect_values(user: object) -> set[str]:
    if isinstance(user, str):
        return {user} - {""}
    if isinstance(user, dict):
        user = list(user.values())
    return set().union(*map(_collect_values, user)) if isinstance(user, list) else set()
