"""Operations on the users of a list: what they share in a request, and how those of a caller are parsed and checked."""

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from svc_async.ads.custom_audiences import AudienceUserOperation
from svc_async.ads.dicts import DoNotReachOperationDict, OperationDict
from svc_async.ads.do_not_reach_lists import DoNotReachOperation
from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.lists.rules import ListRules
from svc_async.batch.packing.operations import OperationFrame
from svc_async.errors import InvalidArgument
from svc_async.users.identifiers import IDENTIFIERS, PartnerId, is_hash
from svc_async.wire.fields import describe_mapping, fields_of
from svc_async.wire.params import timestamp

__all__ = ["Operation", "OperationParser", "Operations", "UserOperation"]

Operation = OperationDict | DoNotReachOperationDict | Mapping[str, Any] | AudienceUserOperation | DoNotReachOperation
Operations = Iterable[Operation] | AsyncIterable[Operation]


@attrs.frozen(cache_hash=True, slots=False)
class UserOperation:
    """What operations of one job have in common: their type, and the times that were given."""

    rules: ListRules = attrs.field(eq=False, repr=False)
    operation_type: str
    times: tuple[tuple[str, datetime], ...] = ()
    overhead: int = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda operation: operation.measure(), takes_self=True)
    )

    @classmethod
    def from_plain(cls, rules: ListRules, plain: Any) -> "UserOperation":
        """Parse what `to_plain` returned."""
        operation_type, times = plain
        return cls(rules, operation_type, tuple((name, datetime.fromisoformat(moment)) for name, moment in times))

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
        return OperationFrame(f'{{"operation_type":"{self.operation_type}","params":{{"users":[', f"]{tail}}}}}")


@attrs.frozen
class OperationParser:
    """Parses the operations of a caller, and checks them against the rules of their list."""

    rules: ListRules

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
        return UserOperation(self.rules, operation_type, given)

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
