"""Custom audiences: where they are targeted, and the batch of their users (TGT-01, TGT-02, CAU-01 to CAU-11).

A batch is read twice: `_Check` judges every operation without touching anything, and only a group without a single
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

from svc_async.sandbox.audiences import Audience
from svc_async.sandbox.calls import Answer, Call, Operation, many
from svc_async.sandbox.dialects import Basis, Problem, Refusal, operation_errors
from svc_async.sandbox.params import boolean, json_field, moment, text
from svc_async.sandbox.store import Row

__all__ = ["MAX_BYTES", "MAX_OPERATIONS", "OPERATIONS", "all_well"]

MAX_OPERATIONS = 2_500
MAX_BYTES = 5_000_000

_PATH = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}"
_HASHED = frozenset({"email", "device_id", "handle", "svc_id", "phone_number"})
_PLAIN = "partner_user_id"
_HASH_DIGITS = 64
_IS_HASH = re.compile(r"[0-9A-Fa-f]{64}").fullmatch
_MONTHS = 12


def _audience(call: Call) -> Row:
    return call.find(call.store["custom_audiences"], "custom_audience_id", code="CUSTOM_AUDIENCE_NOT_FOUND")


def _targeted(call: Call) -> Answer:
    audience = _audience(call)
    rows = [
        Row(campaign.position, campaign.owner, entry)
        for campaign in call.store["campaigns"]
        if campaign.owner == call.account and (entry := _entry(call, campaign, audience.id))["line_items"]
    ]
    return many(call.cut(rows, sortable=(), filters=call.path))


def _entry(call: Call, campaign: Row, audience_id: str) -> dict[str, Any]:
    line_items = [
        {"id": row.id, "name": row.fields["name"], "servable": row.fields["servable"]}
        for row in call.store["line_items"]
        if row.fields["campaign_id"] == campaign.id
        and audience_id in row.fields["custom_audience_ids"]
        and not row.deleted
        and (row.fields["servable"] or not call.params["with_active"])
    ]
    return {"campaign_id": campaign.id, "campaign_name": campaign.fields["name"], "line_items": line_items}


def _users(call: Call) -> Answer:
    audience = call.store.audiences[_audience(call).id]
    with _collector_at_rest():
        return _take(call, audience)


@contextmanager
def _collector_at_rest() -> Generator[None]:
    """Keep the collector from walking, many times over, through the 100,000 objects that are just being made."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _take(call: Call, audience: Audience) -> Answer:
    operations = _group(call)
    read = [_Check(call).operation(operation) for operation in operations]
    refused = {index: found for index, found in enumerate(read) if isinstance(found, list)}
    if refused:
        raise _refused_group(call, refused, len(operations))
    accepted = [found for found in read if isinstance(found, _Operation)]
    for operation in accepted:
        operation.apply(audience)
    count = sum(len(operation.users) for operation in accepted)
    count = count if call.config.batch_counts == "users" else len(accepted)
    return Answer({"success_count": count, "total_count": count})


def _group(call: Call) -> list[Any]:
    """Read the body, and refuse what concerns the request as a whole (ERR-04)."""
    # Unspecified: the codes and the status of these refusals (UNS-batch-error-shape).
    if len(call.body) > MAX_BYTES:
        raise _request_error("BATCH_SIZE_EXCEEDED", f"the body is over {MAX_BYTES} bytes", "CAU-02")
    try:
        operations = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _request_error("INVALID_PARAMETER", "the body is not JSON", "GEN-16") from None
    if not isinstance(operations, list):
        raise _request_error("INVALID_PARAMETER", "the body must be an array of operations", "CAU-01")
    if len(operations) > MAX_OPERATIONS:
        raise _request_error("BATCH_SIZE_EXCEEDED", f"there are over {MAX_OPERATIONS} operations", "CAU-01b")
    if not operations and call.config.refuse_empty:
        raise _request_error("MISSING_PARAMETER", "there is no operation", "CAU-01")
    return operations


def _request_error(code: str, message: str, rule: str) -> Refusal:
    return Refusal(400, Problem(code, message), rule=rule, basis=Basis.SPEC)


def _refused_group(call: Call, refused: Mapping[int, list["_Found"]], total: int) -> Refusal:
    by_operation = {index: [found.problem for found in problems] for index, problems in refused.items()}
    rule = next(iter(refused.values()))[0].rule
    entries = operation_errors(by_operation, total, call.config.batch_errors)
    # Unspecified: the status, and that `errors` stays empty (UNS-batch-error-shape).
    return Refusal(400, rule=rule, basis=Basis.SPEC, more={"operation_errors": entries})


@attrs.frozen
class _Found:
    """A problem of an operation and the rule it breaks."""

    rule: str
    problem: Problem


@attrs.frozen
class _Operation:
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
    found: dict[tuple[str, str | None], _Found] = attrs.field(factory=dict[tuple[str, str | None], _Found])

    def operation(self, value: Any) -> _Operation | list[_Found]:
        """Give the operation, or all that is wrong with it."""
        if not isinstance(value, dict):
            self._wrong("CAU-01", "an operation is an object")
            return list(self.found.values())
        self._only(value, ("operation_type", "params"), "CAU-05")
        kind = self._required(value, "operation_type", "CAU-04")
        if kind is not None and kind not in ("Update", "Delete"):
            self._wrong("CAU-04", "must be Update or Delete", "operation_type")
        params = self._required(value, "params", "CAU-05")
        if params is not None and not isinstance(params, dict):
            self._wrong("CAU-05", "must be an object", "params")
        return self._params(str(kind), params) if isinstance(params, dict) else list(self.found.values())

    def _params(self, kind: str, params: dict[str, Any]) -> _Operation | list[_Found]:
        self._only(params, ("users", "effective_at", "expires_at"), "CAU-05")
        now = self.call.now
        effective_at = self._moment(params, "effective_at", "CAU-06") or now
        expires_at = self._moment(params, "expires_at", "CAU-06b") or _months_after(now, self.call.config.expiry_months)
        if expires_at <= effective_at:
            self._wrong("CAU-06b", "must be later than effective_at", "expires_at")
        users = self._required(params, "users", "CAU-05")
        if users is not None and not isinstance(users, list):
            self._wrong("CAU-05", "must be an array", "users")
        read = self._users(users) if isinstance(users, list) else []
        return list(self.found.values()) or _Operation(kind, read, effective_at, expires_at)

    def _users(self, users: list[Any]) -> list[dict[str, list[str]]]:
        if not users and self.call.config.refuse_empty:
            self._wrong("CAU-05", "holds no user", "users")
        return users if all_well(users) else [self._user(user) for user in users]

    def _user(self, user: Any) -> dict[str, list[str]]:
        if not isinstance(user, dict):
            self._wrong("CAU-07", "a user is an object", "users")
            return {}
        if not any(user.values()) and self.call.config.refuse_empty:
            self._wrong("CAU-07", "a user without identifiers", "users")
        return {kind: self._values(kind, values) for kind, values in user.items()}

    def _values(self, kind: str, values: Any) -> list[str]:
        if kind not in _HASHED and kind != _PLAIN:
            self._wrong("CAU-07", f"{kind} is no identifier of a user", kind)
        elif not isinstance(values, list):
            self._wrong("CAU-07", "must be an array", kind)
        elif not all(isinstance(value, str) and value for value in values):
            self._wrong("CAU-07", "must hold strings", kind)
        elif kind == _PLAIN:
            return values
        elif not all(_IS_HASH(value) for value in values):
            self._wrong("CAU-08", "must hold SHA256 hashes: 64 hex digits", kind)
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


def all_well(users: list[Any]) -> bool:
    """Tell whether all users hold nothing but hashes in lower case: the usual case, decided for many at a stroke."""
    hashes: list[str] = []
    for user in users:
        if not isinstance(user, dict) or not user:
            return False
        for kind, values in user.items():
            if kind not in _HASHED or not isinstance(values, list) or not values:
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


OPERATIONS = (
    Operation(
        id="targeted_audiences.list",
        method="GET",
        path=f"{_PATH}/targeted",
        handler=_targeted,
        query=(boolean("with_active", default=True, rule="TGT-01"), text("cursor", rule="GEN-07")),
        limit="account_reads",
        rule="TGT-02",
    ),
    Operation(
        id="custom_audience_users.batch",
        method="POST",
        path=f"{_PATH}/users",
        handler=_users,
        query=(
            json_field("operation_type", "string", required=True, enum=("Update", "Delete"), rule="CAU-04"),
            json_field("params", "object", required=True, rule="CAU-05"),
            json_field("params.users", "array", required=True, rule="CAU-05"),
            json_field("params.effective_at", "timestamp", rule="CAU-06"),
            json_field("params.expires_at", "timestamp", rule="CAU-06b"),
        ),
        limit="audience_users",
        rule="CAU-10",
        body="array",
        batch=True,
    ),
)
