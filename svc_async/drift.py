"""The differences between answers and the contract: names, types and words, never values.

The contract is what this SDK knows: its models and enums, its codes and headers, and the table of limits. Of each
operation the first answers are compared, then some: the work stays a small share of that of reading them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from itertools import chain
from threading import Lock
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl

import attrs

from svc_async.errors import ApiError, ErrorDetail
from svc_async.governor.limits import LIMITS, Limit
from svc_async.governor.windows import RateLimitHeaders
from svc_async.open_enum import OpenEnum
from svc_async.wire.envelope import Answer, parse_value
from svc_async.wire.outcome import is_usage_cap
from svc_async.wire.reasons import parse_details
from svc_async.wire.records import name_key
from svc_async.wire.route import Reply, Request, Surface
from svc_async.wire.tolerant import fits_scalar, list_models_by_type

__all__ = ["DriftFinding", "DriftKind", "DriftReport"]

_FIRST_BYTES = 65_536
"""Bytes of the answers of an operation that are compared, whatever else it answers."""
_SHARE = 32
"""Of how many further bytes one is compared: a comparison takes up to three times as long as the reading."""
_MOST_RECORDS = 250
"""Records of one page that are compared, evenly spread."""
_MOST_FINDINGS = 200
"""Findings of one operation; others are counted."""
_HIDDEN = "…"
"""Stands for a value that has not the form of a word of the service."""


class DriftKind(StrEnum):
    """How an answer differs from the contract."""

    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    """An optional field that all records should have, and none has had, not even as null."""
    OTHER_TYPE = "other_type"
    """A value of another type, or a required field that is absent."""
    UNKNOWN_VALUE = "unknown_value"
    """A value that its enumeration lacks."""
    UNKNOWN_CODE = "unknown_code"
    UNKNOWN_HEADER = "unknown_header"
    OTHER_LIMIT = "other_limit"
    """A rate limit that the table states otherwise."""


@attrs.frozen(kw_only=True, order=True)
class DriftFinding:
    """One difference between answers of an operation and the contract.

    Attributes:
        operation: the method and the path, as the reference prints it.
        kind: how they differ.
        place: the dotted place in the answer, the name of a header or of a limit, or the status of a refusal.
        found: the word, the code, the type or the limit that came; `…` for a value that is no word of the service.
        expected: what the contract says, if that is one word; it does not count for equality.
        count: how often it was found; for a missing field, in how many records. It does not count for equality.
    """

    operation: str
    kind: DriftKind
    place: str
    found: str = ""
    expected: str = attrs.field(default="", eq=False, order=False)
    count: int = attrs.field(default=1, eq=False, order=False)


class DriftReport:
    """Collects how the answers of sessions differ from the contract; pass it as `Session(drift=)`, also to several.

    It contains names, types and words of the service, no values. Calls that the SDK does not list have no contract and
    are left out, and so are streams.
    """

    def __init__(self) -> None:
        self._operations: dict[tuple[str, str], _Operation] = {}
        self._lock = Lock()  # large answers are read in threads

    def __reduce__(self) -> tuple[type["DriftReport"], tuple[()]]:
        return DriftReport, ()  # a session that is pickled has one that begins anew

    @property
    def findings(self) -> tuple[DriftFinding, ...]:
        """The findings so far, by operation; some thousand at most."""
        with self._lock:
            return tuple(sorted(chain.from_iterable(each.list_findings() for each in self._operations.values())))

    def see(self, request: Request[Any], answer: Answer) -> None:
        """Compare an answer of success, unless enough of its operation were."""
        if request.shown_path is None and (operation := self._find(request)).is_due(len(answer.body)):
            look = _Look()
            look.at_headers(operation.limit, request, answer.headers)
            look.at_body(operation.rule, request, answer)
            with self._lock:
                operation.total.add(look)

    def see_refusal(self, request: Request[Any], refusal: ApiError) -> None:
        """Compare a refusal."""
        if request.shown_path is None:
            operation, look = self._find(request), _Look()
            operation.answers += 1
            operation.compared += 1
            look.at_headers(operation.limit, request, refusal.headers)
            look.at_codes(f"HTTP {refusal.status}", refusal.errors)
            look.at_codes("operation_errors", chain.from_iterable(refusal.operation_errors.values()))
            with self._lock:
                operation.total.add(look)

    def _find(self, request: Request[Any]) -> "_Operation":
        key = request.method, request.template
        if (operation := self._operations.get(key)) is None:
            with self._lock:
                operation = self._operations.setdefault(key, _Operation.create(request))
        return operation

    def to_dict(self) -> dict[str, Any]:
        """Return the findings, and of how many answers of each operation, as values that JSON can represent."""
        findings = self.findings
        with self._lock:
            operations = [each.describe() for each in self._operations.values()]
        return {"operations": operations, "findings": [attrs.asdict(each) for each in findings]}

    def to_json(self) -> str:
        """Return `to_dict()` as JSON in ASCII."""
        return json.dumps(self.to_dict())

    def _repr_html_(self) -> str:
        """Return a table of the first findings, for notebooks."""
        from svc_async.notebook import render_rows  # noqa: PLC0415 - only notebooks need it

        return render_rows("Drift", [attrs.asdict(each) for each in self.findings])


_NOUNS: Mapping[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    datetime: "datetime",
}
"""The names of types."""
_SCALARS: Mapping[Any, tuple[frozenset[type], type[Any] | None]] = {
    str: (frozenset({str}), None),
    bool: (frozenset({bool}), None),
    int: (frozenset({int, str}), int),  # a number in a string is usual, and is read as a number
    float: (frozenset({int, float, str}), float),
    datetime: (frozenset({str}), datetime),
}
"""The types of JSON that each scalar has, and the type that a string must be of."""


@attrs.frozen(eq=False, kw_only=True)
class _PlaceRule:
    """The rule of the contract for the values at one place.

    Attributes:
        noun: the type in words.
        kinds: the types of JSON that it has.
        words: those of an enumeration.
        scalar: the type that a string must be of.
        element: of an array or of a mapping.
        fields: of a record; None for a field that may be anything.
        required: those that a record must have.
        usual: those that some record should have.
        models: of a union, by `type`.
        is_plain: whether the type is all there is to compare.
    """

    place: str
    noun: str
    kinds: frozenset[type]
    words: frozenset[str] = frozenset()
    scalar: type[Any] | None = None
    element: "_PlaceRule | None" = None
    fields: "Mapping[str, _PlaceRule | None]" = MappingProxyType({})
    required: frozenset[str] = frozenset()
    usual: frozenset[str] = frozenset()
    models: "Mapping[str, _PlaceRule]" = MappingProxyType({})
    is_plain: bool = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: not (self.words or self.scalar or self.element or self.fields or self.models),
            takes_self=True,
        ),
    )


def _rule_of(kind: Any, place: str, null: frozenset[type] = frozenset()) -> _PlaceRule | None:
    """Return the rule for a type; None if it may be anything.

    Args:
        kind: the type.
        place: where it is.
        null: the type of null, if there may be none.
    """
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        null |= {NoneType} & {*arguments}
        models = {name: _rule_of(each, f"{place}[{name}]") for name, each in list_models_by_type(kind).items()}
        if models:
            known = {name: each for name, each in models.items() if each is not None}
            return _PlaceRule(place=place, noun="object", kinds=null | {dict}, models=known)
        return _rule_of(next(each for each in arguments if each is not NoneType), place, null)
    if isinstance(kind, type) and attrs.has(kind):
        return _rule_of_model(kind, place, null)
    if isinstance(kind, type) and issubclass(kind, OpenEnum):
        words = frozenset(each.value for each in kind)
        return _PlaceRule(place=place, noun="string", kinds=null | {str}, words=words)
    if isinstance(origin, type):
        form, step = (dict, ".*") if issubclass(origin, Mapping) else (list, "[]")
        element = _rule_of(arguments[-1 if form is dict else 0], f"{place}{step}")
        return _PlaceRule(place=place, noun=_NOUNS[form], kinds=null | {form}, element=element)
    kinds, scalar = _SCALARS.get(kind, (None, None))
    return None if kinds is None else _PlaceRule(place=place, noun=_NOUNS[kind], kinds=kinds | null, scalar=scalar)


def _rule_of_model(kind: type[attrs.AttrsInstance], place: str, null: frozenset[type]) -> _PlaceRule:
    fields = {
        each.name: each for each in attrs.fields(attrs.resolve_types(kind)) if each.init and each.name != "_extra"
    }
    required = frozenset(name for name, each in fields.items() if each.default is attrs.NOTHING)
    return _PlaceRule(
        place=place,
        noun="object",
        kinds=null | {dict},
        fields={
            name: _rule_of(each.type, _join(place, name), frozenset({NoneType} if name not in required else ()))
            for name, each in fields.items()
        },
        required=required,
        usual=frozenset(fields) - required - {*getattr(kind, "occasional", ())},
    )


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


_Key = tuple[DriftKind, str, str]


@attrs.define(eq=False)
class _Look:
    """One look at answers of one operation.

    Attributes:
        found: what differs from the contract: how often, and what is expected.
        records: of each rule about records, how many there are, and which of its fields came.
    """

    found: dict[_Key, tuple[int, str]] = attrs.field(factory=dict[_Key, tuple[int, str]])
    records: dict[_PlaceRule, tuple[int, set[str]]] = attrs.field(factory=dict[_PlaceRule, tuple[int, set[str]]])
    dropped: int = 0

    def note(self, kind: DriftKind, place: str, found: str = "", expected: str = "", count: int = 1) -> None:
        before = self.found.get((kind, place, found))
        if before is not None or len(self.found) < _MOST_FINDINGS:
            self.found[kind, place, found] = ((before or (0, ""))[0] + count, expected)
        else:
            self.dropped += count

    def add(self, other: "_Look") -> None:
        """Add what another answer says."""
        self.dropped += other.dropped
        for (kind, place, found), (count, expected) in other.found.items():
            self.note(kind, place, found, expected, count)
        for rule, (count, came) in other.records.items():
            before, earlier = self.records.get(rule) or (0, set[str]())
            self.records[rule] = before + count, earlier | came

    def at_headers(self, limit: Limit | None, request: Request[Any], headers: Mapping[str, str]) -> None:
        for name in map(str.lower, headers):
            if name not in _HEADERS and not name.startswith(_HEADER_FAMILIES):
                is_shown = _HEADER.fullmatch(name) is not None and _has_few_digits(name)
                self.note(DriftKind.UNKNOWN_HEADER, name if is_shown else _HIDDEN)
        # Those of a request for the total count may be about either of its two limits.
        if limit is not None and ("with_total_count", "true") not in request.query:
            is_read = request.method == "GET"
            stated = RateLimitHeaders.parse(headers, now=0, wall=lambda: datetime.now(UTC), is_read=is_read).limit
            if stated not in (None, limit.requests):
                self.note(DriftKind.OTHER_LIMIT, limit.name, str(stated), str(limit.requests))

    def at_codes(self, place: str, reasons: Iterable[ErrorDetail]) -> None:
        for reason in reasons:
            code = str(reason.code)
            is_known = code in _CODES or code.endswith("_NOT_FOUND") or is_usage_cap(code)
            if code and not is_known:
                self.note(DriftKind.UNKNOWN_CODE, place, code if _is_code(code) else _HIDDEN)

    def at_body(self, rule: _PlaceRule | None, request: Request[Any], answer: Answer) -> None:
        body = _decode(request, answer.body)
        if body is None:
            return  # the reading says what is wrong with it
        records = [body] if request.reply in _WHOLE else self._find_records(request, body)
        if rule is not None:
            for record in records[:: len(records) // _MOST_RECORDS + 1]:
                self.at_value(rule, record)

    def _find_records(self, request: Request[Any], body: Any) -> Sequence[Any]:
        """Compare what is around the records, and return them."""
        is_main, is_page = request.surface is Surface.BASE, request.reply in _PAGES
        if is_main and isinstance(body, list):
            body = {"data": body}
        if not isinstance(body, dict):
            self.note(DriftKind.OTHER_TYPE, "", _NOUNS[type(body)], "object")
            return ()
        if is_main:
            self.at_codes("errors", parse_details(body.get("errors")))
            if "data" not in body and not is_page:
                return [body]
        data, meta = body.get("data"), body.get("meta")
        self._at_names("", body.keys() - (_BESIDE_MAIN if is_main else _BESIDE))
        self._at_names("meta", meta.keys() - _META if isinstance(meta, dict) else ())
        if is_page:
            if not isinstance(data, list) and not (data is None and request.reply is Reply.META_PAGE):
                self.note(DriftKind.OTHER_TYPE, "data", _NOUNS[type(data)], "array")
            return data if isinstance(data, list) else ()
        record = data[0] if isinstance(data, list) and len(data) == 1 else data
        return [record.get(request.wrapper, record) if isinstance(record, dict) else record]

    def at_value(self, rule: _PlaceRule, value: Any) -> None:
        if type(value) not in rule.kinds:
            self.note(DriftKind.OTHER_TYPE, rule.place, _NOUNS[type(value)], rule.noun)
        elif value is None:
            return
        elif rule.fields:
            self._at_record(rule, value)
        elif rule.words:
            if value not in rule.words:
                word = value if _is_word(value, rule.words) else _HIDDEN
                self.note(DriftKind.UNKNOWN_VALUE, rule.place, word)
        elif rule.models:
            self._at_union(rule, value)
        elif rule.element is not None:
            for each in value.values() if isinstance(value, dict) else value:
                self.at_value(rule.element, each)
        elif isinstance(value, str) and rule.scalar is not None and not fits_scalar(value, rule.scalar):
            self.note(DriftKind.OTHER_TYPE, rule.place, "string", rule.noun)

    def _at_record(self, rule: _PlaceRule, value: dict[str, Any]) -> None:
        fields, known = rule.fields, 0
        for name, child in fields.items():
            if name in value:
                known += 1
                each = value[name]
                if child is not None and not (child.is_plain and type(each) in child.kinds):
                    self.at_value(child, each)
            elif name in rule.required:
                noun = "" if child is None else child.noun
                self.note(DriftKind.OTHER_TYPE, _join(rule.place, name), "absent", noun)
        count, came = self.records.get(rule) or (0, set[str]())
        if len(came) < len(fields):
            came |= value.keys() & fields.keys()
        self.records[rule] = count + 1, came
        if known < len(value):
            self._at_names(rule.place, value.keys() - fields.keys())

    def _at_union(self, rule: _PlaceRule, value: dict[str, Any]) -> None:
        name = value.get("type")
        model = rule.models.get(name) if isinstance(name, str) else None
        if model is not None:
            self.at_value(model, value)
        elif isinstance(name, str):
            word = name if _is_word(name, rule.models) else _HIDDEN
            self.note(DriftKind.UNKNOWN_VALUE, _join(rule.place, "type"), word)
        else:
            self.note(DriftKind.OTHER_TYPE, _join(rule.place, "type"), _NOUNS[type(name)], "string")

    def _at_names(self, place: str, names: Iterable[str]) -> None:
        for name in names:
            shown = name if name_key(name, 0) == name and _has_few_digits(name) else _HIDDEN
            self.note(DriftKind.UNKNOWN_FIELD, _join(place, shown))


@attrs.define(eq=False)
class _Operation:
    """The differences in the answers of one operation.

    Attributes:
        limit: its rate limit in the table, if it has one.
        rule: what the contract says about each of its records.
        answers: how many there were, of which some were compared.
        total: what those say.
    """

    name: str
    limit: Limit | None
    rule: _PlaceRule | None
    answers: int = 0
    compared: int = 0
    total: _Look = attrs.field(factory=_Look)
    _bytes: int = 0
    _compared_bytes: int = 0

    @classmethod
    def create(cls, request: Request[Any]) -> "_Operation":
        rows = (row for row in LIMITS if row.matches(request.method, request.surface, request.template))
        place = "" if request.reply in _WHOLE else "data[]" if request.reply in _PAGES else "data"
        return cls(
            name=f"{request.method} {request.template}",
            limit=next((row for row in rows if not row.with_total_count), None),
            rule=_rule_of(request.into, place),
        )

    def is_due(self, size: int) -> bool:
        """Count an answer of some bytes, and return whether it is to be compared."""
        # Without a lock: of two threads at once, one may be lost, and only the share depends on it.
        self.answers += 1
        self._bytes += size
        compared = self._compared_bytes + size
        if self.compared and compared > _FIRST_BYTES and compared * _SHARE > self._bytes:
            return False
        self.compared += 1
        self._compared_bytes = compared
        return True

    def describe(self) -> dict[str, Any]:
        """Return how many answers were compared, and how many findings were left out."""
        counts = {"answers": self.answers, "compared": self.compared, "dropped": self.total.dropped}
        return {"operation": self.name, **counts}

    def list_findings(self) -> Iterator[DriftFinding]:
        for (kind, place, found), (count, expected) in self.total.found.items():
            yield DriftFinding(operation=self.name, kind=kind, place=place, found=found, expected=expected, count=count)
        for rule, (count, came) in self.total.records.items():
            for name in rule.usual - came:
                place = _join(rule.place, name)
                yield DriftFinding(operation=self.name, kind=DriftKind.MISSING_FIELD, place=place, count=count)


def _decode(request: Request[Any], body: bytes) -> Any:
    if request.reply is Reply.FORM and not body.lstrip().startswith(b"{"):
        return dict(parse_qsl(body[:_FIRST_BYTES].decode("ascii", "replace")))
    return parse_value(body)


# Unspecified: what tells a word of the service from a value of somebody. It is written as the known ones are, and has
# few digits.
_UPPER = re.compile(r"[A-Z][A-Z0-9_]{0,59}")
_LOWER = re.compile(r"[a-z][a-z0-9_.-]{0,39}")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}|\d{1,5}")
_HEADER = re.compile(r"[a-z][a-z0-9-]{0,59}")
_MOST_DIGITS = 3


def _is_word(text: str, known: Iterable[str]) -> bool:
    form = _UPPER if all(map(str.isupper, known)) else _LOWER
    return form.fullmatch(text) is not None and _has_few_digits(text)


def _is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None and (text.isdigit() or _has_few_digits(text))


def _has_few_digits(text: str) -> bool:
    return sum(map(str.isdigit, text)) <= _MOST_DIGITS


_PAGES = frozenset({Reply.PAGE, Reply.META_PAGE})
_WHOLE = frozenset({Reply.BODY, Reply.FORM})
_BESIDE = frozenset({"data", "request", "next_cursor", "total_count"})
_BESIDE_MAIN = frozenset({"data", "meta", "errors"})
_META = frozenset({"next_token", "previous_token", "result_count", "sent", "summary", "total_subscriptions"})
# Unspecified: the codes (contract UNS-error-catalog). These are those of the reference, those that this SDK reacts to,
# and those that are assumed; the titles of problem documents are beside them.
_CODES_SEEN = """
    32 34 38 44 88 89 92 99 130 131 135 215 220 415
    CrcValidationFailed DuplicateRuleError DuplicateSubscription DuplicateUrlFailed ReplayConflictError
    RuleConfigurationIssue TooManyConnections UrlValidationFailed WebhookLimitExceeded
    CANCELLED_REQUEST EXCLUSIVE_PARAMETERS FEATURE_NOT_AVAILABLE FORBIDDEN HTTPS_REQUIRED INSUFFICIENT_SCOPE
    INTERNAL_ERROR INVALID_PARAMETER LOCK_ACQUISITION_TIMEOUT MISSING_PARAMETER OVER_CAPACITY
    READONLY_CLIENT_APPLICATION SERVICE_UNAVAILABLE SHARE_AUDIENCE_OUTSIDE_BUSINESS TOO_MANY_JOBS TOO_MANY_REQUESTS
    TOO_SMALL UNAUTHORIZED_ACCESS UNAUTHORIZED_CLIENT_APPLICATION
    access_denied invalid_client invalid_grant invalid_request invalid_scope server_error temporarily_unavailable
    unauthorized_client unsupported_grant_type unsupported_response_type
"""
_CODES = frozenset(_CODES_SEEN.split()) | {each.phrase for each in HTTPStatus}
_HEADERS_SEEN = """
    age alt-svc cache-control connection content-encoding content-language content-length content-security-policy
    content-type date etag expires keep-alive last-modified location pragma referrer-policy retry-after server
    set-cookie strict-transport-security trailer transfer-encoding vary via warning www-authenticate
    x-api-warn x-content-type-options x-current-api-version x-frame-options x-transaction-id x-xss-protection
"""
_HEADERS = frozenset(_HEADERS_SEEN.split())
"""Those of HTTP, and those that the contract names or assumes."""
_HEADER_FAMILIES = ("access-control-", "x-account-rate-limit-", "x-rate-limit-", "x-sandbox-")
