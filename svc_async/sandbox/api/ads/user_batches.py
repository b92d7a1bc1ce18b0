"""Groups of operations on the users of an audience, for custom audiences and do-not-reach lists.

A group is validated before it is applied: `_OperationReader` reads every operation without side effects, and only a
group without a single problem is applied, in order.
"""

import calendar
import gc
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs

from svc_async.sandbox.refusal import Finding, Problem, Refusal, find_basis
from svc_async.sandbox.server.decoding import decode_json
from svc_async.sandbox.server.operations import Call
from svc_async.sandbox.server.reading import parse_time
from svc_async.sandbox.server.rendering import list_operation_errors
from svc_async.sandbox.state.audiences import Audience

__all__ = [
    "MAX_BYTES",
    "MAX_OPERATIONS",
    "OperationGroup",
    "OperationSchema",
    "Rules",
    "UserOperation",
    "are_lowercase_hashes",
    "pause_gc",
]

MAX_OPERATIONS = 2_500
MAX_BYTES = 5_000_000
_HASH_DIGITS = 64
_IS_HASH = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
_MONTHS = 12


@attrs.frozen(eq=False, kw_only=True)
class Rules:
    """The rules that a group may break."""

    group: str
    operations: str
    size: str
    operation_type: str
    params: str
    effective_at: str
    expires_at: str
    user: str
    hash: str


@attrs.frozen(kw_only=True)
class OperationSchema:
    """The form of the operations of one family.

    Attributes:
        hashed: the identifiers that must be hashes.
        plain: the other identifiers.
        params: the fields of `params`.
        expires_bounded: whether `expires_at` may be no later than the default.
    """

    hashed: frozenset[str]
    plain: frozenset[str] = frozenset()
    params: tuple[str, ...]
    rules: Rules
    expires_bounded: bool = False

    @property
    def earliest_expiry(self) -> str:
        """The name of the time that `expires_at` must be later than."""
        return "effective_at" if "effective_at" in self.params else "now"


@attrs.frozen
class OperationGroup:
    """A valid group.

    Attributes:
        sent: the operations as they were sent.
    """

    sent: list[Any]
    operations: list["UserOperation"]

    @classmethod
    def read(cls, call: Call, schema: OperationSchema) -> "OperationGroup":
        """Read the body of a request.

        Raises:
            Refusal: the group as a whole, or some of its operations, are invalid.
        """
        sent = _read_array(call, schema.rules)
        read = [_OperationReader(call, schema).read(operation) for operation in sent]
        refused = {index: found for index, found in enumerate(read) if isinstance(found, list)}
        if refused:
            raise _refuse_group(refused, len(sent))
        return cls(sent, [found for found in read if isinstance(found, UserOperation)])

    def apply(self, audience: Audience, now: datetime) -> None:
        """Apply all operations, in order."""
        audience.begin_change(now)
        for operation in self.operations:
            operation.apply(audience)

    def count(self) -> list[int]:
        """Return the number of users of each operation."""
        # Unspecified: that `success_count` and `total_count` count users, not operations (ASM-110, CAX-03).
        return [len(operation.users) for operation in self.operations]


@contextmanager
def pause_gc() -> Generator[None]:
    """Keep the garbage collector from traversing the 100,000 new objects of a large group again and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _read_array(call: Call, rules: Rules) -> list[Any]:
    """Read the body; refuse what concerns the request as a whole (ERR-04)."""
    # Unspecified: the codes and the status of these refusals (UNS-batch-error-shape).
    if call.size > MAX_BYTES:
        raise _refuse_request("BATCH_SIZE_EXCEEDED", f"the body is over {MAX_BYTES} bytes", rules.size)
    operations = decode_json(call.body)
    if not isinstance(operations, list):
        raise _refuse_request("INVALID_PARAMETER", "the body must be an array of operations", rules.group)
    if len(operations) > MAX_OPERATIONS:
        raise _refuse_request("BATCH_SIZE_EXCEEDED", f"there are over {MAX_OPERATIONS} operations", rules.operations)
    if not operations:  # Unspecified: that empty groups, operations and users are refused
        raise _refuse_request("MISSING_PARAMETER", "there is no operation", rules.group)
    return operations


def _refuse_request(code: str, message: str, rule: str) -> Refusal:
    return Refusal(400, Problem(code, message), rule=rule, basis=find_basis(rule))


def _refuse_group(refused: Mapping[int, list[Finding]], total: int) -> Refusal:
    by_operation = {index: [found.problem for found in problems] for index, problems in refused.items()}
    first, problems = next(iter(refused.items()))
    rule = problems[0].rule
    more = f"; {len(refused) - 1} more" if len(refused) > 1 else ""
    place = (
        f"operation {first}, {found.parameter}" if (found := problems[0].problem).parameter else f"operation {first}"
    )
    reason = f"{place}: {found.message}{more}"
    entries = list_operation_errors(by_operation, total)
    # Unspecified: the status, and that `errors` stays empty (UNS-batch-error-shape).
    return Refusal(400, rule=rule, basis=find_basis(rule), more={"operation_errors": entries}, reason=reason)


@attrs.frozen
class UserOperation:
    """A valid operation."""

    operation_type: str
    users: list[dict[str, list[str]]]
    effective_at: datetime
    expires_at: datetime

    def apply(self, audience: Audience) -> None:
        """Add, change or remove its users."""
        if self.operation_type == "Delete":
            for user in self.users:
                audience.remove(user)
        else:
            for user in self.users:
                audience.update(user, self.effective_at, self.expires_at)


@attrs.frozen
class _OperationReader:
    """Reads one operation and collects its problems."""

    call: Call
    schema: OperationSchema
    found: dict[tuple[str, str | None], Finding] = attrs.field(factory=dict[tuple[str, str | None], Finding])

    @property
    def rules(self) -> Rules:
        return self.schema.rules

    def read(self, value: Any) -> UserOperation | list[Finding]:
        """Return the operation, or all its problems."""
        if not isinstance(value, dict):
            self._note(self.rules.group, "an operation is an object")
            return list(self.found.values())
        self._refuse_unknown(value, ("operation_type", "params"), self.rules.params)
        operation_type = self._get_required(value, "operation_type", self.rules.operation_type)
        if operation_type not in (None, "Update", "Delete"):
            self._note(self.rules.operation_type, "must be Update or Delete", "operation_type")
        params = self._get_required(value, "params", self.rules.params)
        if params is not None and not isinstance(params, dict):
            self._note(self.rules.params, "must be an object", "params")
        if not isinstance(params, dict):
            return list(self.found.values())
        self._refuse_unknown(params, self.schema.params, self.rules.params)
        effective_at = self._read_time(params, "effective_at", self.rules.effective_at) or self.call.now
        expires_at = self._read_expiry(params, effective_at)
        users = self._get_required(params, "users", self.rules.params)
        read: list[dict[str, list[str]]] = []
        if isinstance(users, list):
            if not users:
                self._note(self.rules.params, "holds no user", "users")
            known = are_lowercase_hashes(users, self.schema.hashed)
            read = users if known else [self._read_user(user) for user in users]
        elif users is not None:
            self._note(self.rules.params, "must be an array", "users")
        return list(self.found.values()) or UserOperation(str(operation_type), read, effective_at, expires_at)

    def _read_expiry(self, params: dict[str, Any], effective_at: datetime) -> datetime:
        rule, latest = self.rules.expires_at, _add_months(self.call.now, self.call.sandbox.config.expiry_months)
        expires_at = self._read_time(params, "expires_at", rule) or latest
        if expires_at <= effective_at:
            self._note(rule, f"must be later than {self.schema.earliest_expiry}", "expires_at")
        if self.schema.expires_bounded and expires_at > latest:
            self._note("DNL-04", f"is over {self.call.sandbox.config.expiry_months} months away", "expires_at")
        return expires_at

    def _read_user(self, user: Any) -> dict[str, list[str]]:
        if not isinstance(user, dict):
            self._note(self.rules.user, "a user is an object", "users")
            return {}
        if not any(user.values()):
            self._note(self.rules.user, "a user without identifiers", "users")
        return {kind: self._read_values(kind, values) for kind, values in user.items()}

    def _read_values(self, kind: str, values: Any) -> list[str]:
        if kind not in self.schema.hashed | self.schema.plain:
            self._note(self.rules.user, f"{kind} is not an identifier of a user", kind)
        elif not isinstance(values, list):
            self._note(self.rules.user, "must be an array", kind)
        elif not all(isinstance(value, str) and value for value in values):
            self._note(self.rules.user, "must hold strings", kind)
        elif kind in self.schema.plain:
            return values
        elif not all(_IS_HASH(value) for value in values):
            self._note(self.rules.hash, "must hold SHA256 hashes: 64 hex digits", kind)
        else:
            return [value.lower() for value in values]
        return []

    def _read_time(self, params: Mapping[str, Any], name: str, rule: str) -> datetime | None:
        if name not in params:
            return None
        try:
            return parse_time(params[name])
        except (TypeError, ValueError):
            self._note(rule, "must be ISO 8601 in UTC", name)
            return None

    def _get_required(self, value: Mapping[str, Any], name: str, rule: str) -> Any:
        if name not in value:
            self._note(rule, "is required", name, code="MISSING_PARAMETER")
        elif value[name] is None:
            self._note(rule, "must not be null", name)
        return value.get(name)

    def _refuse_unknown(self, value: Mapping[str, Any], known: tuple[str, ...], rule: str) -> None:
        for name in value:
            if name not in known:
                self._note(rule, "is unknown", name)

    def _note(self, rule: str, message: str, name: str | None = None, *, code: str = "INVALID_PARAMETER") -> None:
        self.found.setdefault((message, name), Finding(rule, Problem(code, message, name)))


def are_lowercase_hashes(users: list[Any], hashed: frozenset[str]) -> bool:
    """Return whether all users consist of hashes in lower case: the usual case, decided for many at once."""
    hashes: list[str] = []
    for user in users:
        if not isinstance(user, dict) or not user:
            return False
        for kind, values in user.items():
            if kind not in hashed or not isinstance(values, list) or not values:
                return False
            hashes += values
    try:
        joined = "".join(hashes)
        octets = bytes.fromhex(joined)
    except (TypeError, ValueError):
        return False
    whole = set(map(len, hashes)) <= {_HASH_DIGITS} and 2 * len(octets) == len(joined)
    return whole and joined == joined.lower()


def _add_months(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, _MONTHS)
    year, month = start.year + years, month + 1
    return start.replace(year=year, month=month, day=min(start.day, calendar.monthrange(year, month)[1]))
