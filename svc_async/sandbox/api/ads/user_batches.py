"""Groups of operations on the users of an audience, as custom audiences and do-not-reach lists take them.

A group is read twice: `_Check` judges every operation without touching anything, and only a group without a single
problem is applied, in its order.
"""

import calendar
import gc
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs
import msgspec

from svc_async.sandbox.server.operations import Call
from svc_async.sandbox.server.params import moment
from svc_async.sandbox.server.rendering import Basis, Problem, Refusal, operation_errors
from svc_async.sandbox.state.audiences import Audience

__all__ = ["MAX_BYTES", "MAX_OPERATIONS", "Group", "Kind", "Rules", "UserOperation", "all_well", "collector_at_rest"]

MAX_OPERATIONS = 2_500
MAX_BYTES = 5_000_000
_HASH_DIGITS = 64
_IS_HASH = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
_MONTHS = 12


@attrs.frozen(kw_only=True)
class Rules:
    """The rules that a group may break."""

    group: str
    operations: str
    size: str
    kind: str
    params: str
    effective_at: str
    expires_at: str
    user: str
    hash: str


@attrs.frozen(kw_only=True)
class Kind:
    """What sets the groups of one family apart.

    Attributes:
        hashed: the identifiers that must be hashes.
        plain: the other identifiers.
        params: the fields of `params`.
        expires_required: whether `expires_at` must be there.
        expires_bounded: whether it may be no later than the default.
    """

    hashed: frozenset[str]
    plain: frozenset[str] = frozenset()
    params: tuple[str, ...]
    rules: Rules
    expires_required: bool = False
    expires_bounded: bool = False

    @property
    def begins(self) -> str:
        """What an expiry must come after."""
        return "effective_at" if "effective_at" in self.params else "now"


@attrs.frozen
class Group:
    """A group without a problem.

    Attributes:
        sent: the operations as they came.
    """

    sent: list[Any]
    operations: list["UserOperation"]

    @classmethod
    def read(cls, call: Call, kind: Kind) -> "Group":
        """Read the body of a request.

        Raises:
            Refusal: the group as a whole, or some of its operations, are no good.
        """
        sent = _group(call, kind.rules)
        read = [_Check(call, kind).operation(operation) for operation in sent]
        refused = {index: found for index, found in enumerate(read) if isinstance(found, list)}
        if refused:
            raise _refused_group(call, refused, len(sent))
        return cls(sent, [found for found in read if isinstance(found, UserOperation)])

    def apply(self, audience: Audience) -> None:
        """Do all of it, in its order."""
        for operation in self.operations:
            operation.apply(audience)

    def counts(self, unit: str) -> list[int]:
        """Count what each operation holds: its users, or itself."""
        return [len(operation.users) if unit == "users" else 1 for operation in self.operations]


@contextmanager
def collector_at_rest() -> Generator[None]:
    """Keep the collector from walking, many times over, through the 100,000 objects that are just being made."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _group(call: Call, rules: Rules) -> list[Any]:
    """Read the body, and refuse what concerns the request as a whole (ERR-04)."""
    # Unspecified: the codes and the status of these refusals (UNS-batch-error-shape).
    if len(call.body) > MAX_BYTES:
        raise _request_error("BATCH_SIZE_EXCEEDED", f"the body is over {MAX_BYTES} bytes", rules.size)
    try:
        operations = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _request_error("INVALID_PARAMETER", "the body is not JSON", "GEN-16") from None
    if not isinstance(operations, list):
        raise _request_error("INVALID_PARAMETER", "the body must be an array of operations", rules.group)
    if len(operations) > MAX_OPERATIONS:
        raise _request_error("BATCH_SIZE_EXCEEDED", f"there are over {MAX_OPERATIONS} operations", rules.operations)
    if not operations and call.config.refuse_empty:
        raise _request_error("MISSING_PARAMETER", "there is no operation", rules.group)
    return operations


def _request_error(code: str, message: str, rule: str) -> Refusal:
    return Refusal(400, Problem(code, message), rule=rule, basis=_basis(rule))


def _basis(rule: str) -> Basis:
    return Basis.PUBLIC if rule.startswith("ASM") else Basis.SPEC


def _refused_group(call: Call, refused: Mapping[int, list["_Found"]], total: int) -> Refusal:
    by_operation = {index: [found.problem for found in problems] for index, problems in refused.items()}
    rule = next(iter(refused.values()))[0].rule
    entries = operation_errors(by_operation, total, call.config.batch_errors)
    # Unspecified: the status, and that `errors` stays empty (UNS-batch-error-shape).
    return Refusal(400, rule=rule, basis=_basis(rule), more={"operation_errors": entries})


@attrs.frozen
class _Found:
    """A problem of an operation and the rule it breaks."""

    rule: str
    problem: Problem


@attrs.frozen
class UserOperation:
    """An operation without a problem."""

    kind: str
    users: list[dict[str, list[str]]]
    effective_at: datetime
    expires_at: datetime

    def apply(self, audience: Audience) -> None:
        """Do it."""
        if self.kind == "Delete":
            for user in self.users:
                audience.remove(user)
        else:
            for user in self.users:
                audience.update(user, self.effective_at, self.expires_at)


@attrs.frozen
class _Check:
    """Judges one operation."""

    call: Call
    kind: Kind
    found: dict[tuple[str, str | None], _Found] = attrs.field(factory=dict[tuple[str, str | None], _Found])

    @property
    def rules(self) -> Rules:
        return self.kind.rules

    def operation(self, value: Any) -> UserOperation | list[_Found]:
        """Give the operation, or all that is wrong with it."""
        if not isinstance(value, dict):
            self._wrong(self.rules.group, "an operation is an object")
            return list(self.found.values())
        self._only(value, ("operation_type", "params"), self.rules.params)
        kind = self._required(value, "operation_type", self.rules.kind)
        if kind is not None and kind not in ("Update", "Delete"):
            self._wrong(self.rules.kind, "must be Update or Delete", "operation_type")
        params = self._required(value, "params", self.rules.params)
        if params is not None and not isinstance(params, dict):
            self._wrong(self.rules.params, "must be an object", "params")
        return self._params(str(kind), params) if isinstance(params, dict) else list(self.found.values())

    def _params(self, kind: str, params: dict[str, Any]) -> UserOperation | list[_Found]:
        self._only(params, self.kind.params, self.rules.params)
        effective_at = self._moment(params, "effective_at", self.rules.effective_at) or self.call.now
        expires_at = self._expiry(params, effective_at)
        users = self._required(params, "users", self.rules.params)
        if users is not None and not isinstance(users, list):
            self._wrong(self.rules.params, "must be an array", "users")
        read = self._users(users) if isinstance(users, list) else []
        return list(self.found.values()) or UserOperation(kind, read, effective_at, expires_at)

    def _expiry(self, params: dict[str, Any], effective_at: datetime) -> datetime:
        rule, latest = self.rules.expires_at, _months_after(self.call.now, self.call.config.expiry_months)
        if self.kind.expires_required:
            self._required(params, "expires_at", rule)
        expires_at = self._moment(params, "expires_at", rule) or latest
        if expires_at <= effective_at:
            self._wrong(rule, f"must be later than {self.kind.begins}", "expires_at")
        if self.kind.expires_bounded and expires_at > latest:
            self._wrong("ASM-114", f"is over {self.call.config.expiry_months} months away", "expires_at")
        return expires_at

    def _users(self, users: list[Any]) -> list[dict[str, list[str]]]:
        if not users and self.call.config.refuse_empty:
            self._wrong(self.rules.params, "holds no user", "users")
        return users if all_well(users, self.kind.hashed) else [self._user(user) for user in users]

    def _user(self, user: Any) -> dict[str, list[str]]:
        if not isinstance(user, dict):
            self._wrong(self.rules.user, "a user is an object", "users")
            return {}
        if not any(user.values()) and self.call.config.refuse_empty:
            self._wrong(self.rules.user, "a user without identifiers", "users")
        return {kind: self._values(kind, values) for kind, values in user.items()}

    def _values(self, kind: str, values: Any) -> list[str]:
        if kind not in self.kind.hashed | self.kind.plain:
            self._wrong(self.rules.user, f"{kind} is no identifier of a user", kind)
        elif not isinstance(values, list):
            self._wrong(self.rules.user, "must be an array", kind)
        elif not all(isinstance(value, str) and value for value in values):
            self._wrong(self.rules.user, "must hold strings", kind)
        elif kind in self.kind.plain:
            return values
        elif not all(_IS_HASH(value) for value in values):
            self._wrong(self.rules.hash, "must hold SHA256 hashes: 64 hex digits", kind)
        else:
            return [value.lower() for value in values]
        return []

    def _moment(self, params: Mapping[str, Any], name: str, rule: str) -> datetime | None:
        if name not in params:
            return None
        try:
            return moment(params[name])
        except (TypeError, ValueError):
            self._wrong(rule, "must be ISO 8601 in UTC", name)
            return None

    def _required(self, value: Mapping[str, Any], name: str, rule: str) -> Any:
        if name not in value:
            self._wrong(rule, "is required", name, code="MISSING_PARAMETER")
        elif value[name] is None:
            self._wrong(rule, "must not be null", name)
        return value.get(name)

    def _only(self, value: Mapping[str, Any], known: tuple[str, ...], rule: str) -> None:
        for name in value:
            if name not in known:
                self._wrong(rule, "is unknown", name)

    def _wrong(self, rule: str, message: str, name: str | None = None, *, code: str = "INVALID_PARAMETER") -> None:
        self.found.setdefault((message, name), _Found(rule, Problem(code, message, name)))


def all_well(users: list[Any], hashed: frozenset[str]) -> bool:
    """Tell whether all users hold nothing but hashes in lower case: the usual case, decided for many at a stroke."""
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


def _months_after(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, _MONTHS)
    year, month = start.year + years, month + 1
    return start.replace(year=year, month=month, day=min(start.day, calendar.monthrange(year, month)[1]))
