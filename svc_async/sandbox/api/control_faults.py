"""The faults that the control API can arm: their kinds and fields as values, and how they are read from JSON.

Kinds and fields have the names of the methods of `Fault` and of their arguments. The first line of a kind, and the
titles of its fields, are what a form calls them.
"""

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from svc_async.sandbox.kinds import WrongArgument
from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.faults import Fault, Faults, Injection, Plan, Stage

__all__ = ["KINDS", "arm", "describe", "describe_kind"]

_MOST_ARMED = 100

_Seconds = Annotated[float, Meta(ge=0, le=86_400, title="Seconds")]
_Code = Annotated[str, Meta(min_length=1, max_length=500, title="Code (optional)")] | None
_Messages = Annotated[
    dict[Annotated[int, Meta(ge=0, lt=1_000_000)], str],
    Meta(
        min_length=1, title="Messages by position, from 0", description='must be an object such as {"0": "a message"}'
    ),
]


class FaultKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A kind of fault, tagged with the name of the method of `Fault` that makes it."""


class _Http(FaultKind, frozen=True, tag="http"):
    """Answer with an error."""

    status: Annotated[int, Meta(ge=400, le=599, title="Status")] = 503
    retry_after: Annotated[float, Meta(ge=0, le=86_400, title="Retry-After, seconds (optional)")] | None = None
    code: _Code = None
    message: Annotated[str, Meta(min_length=1, max_length=500, title="Message (optional)")] | None = None


class _RateLimited(FaultKind, frozen=True, tag="rate_limited"):
    """Answer 429, rate limited."""

    reset: Annotated[float, Meta(ge=-3600, le=86_400, title="Reset in seconds")] = 30.0
    limit: Annotated[int, Meta(ge=0, le=1_000_000, title="Limit")] = 1500


class _Latency(FaultKind, frozen=True, tag="latency"):
    """Wait, then answer."""

    seconds: _Seconds = 5.0


class _Hang(FaultKind, frozen=True, tag="hang"):
    """Never answer."""


class _DropConnection(FaultKind, frozen=True, tag="drop_connection"):
    """Close the connection."""


class _ResetConnection(FaultKind, frozen=True, tag="reset_connection"):
    """Reset the connection (RST)."""


class _Truncate(FaultKind, frozen=True, tag="truncate"):
    """Cut the answer short."""

    size: Annotated[int, Meta(ge=0, le=1_000_000, title="Bytes that are sent")] = 20


class _SlowBody(FaultKind, frozen=True, tag="slow_body"):
    """Answer in four slow pieces."""

    seconds: _Seconds = 5.0


class _MalformedJson(FaultKind, frozen=True, tag="malformed_json"):
    """Answer with broken JSON."""


class _Empty(FaultKind, frozen=True, tag="empty"):
    """Answer without a body."""

    status: Annotated[int, Meta(ge=200, le=599, title="Status")] = 200


class _Html(FaultKind, frozen=True, tag="html"):
    """Answer with an HTML page."""

    status: Annotated[int, Meta(ge=200, le=599, title="Status")] = 502


class _PartialCounts(FaultKind, frozen=True, tag="partial_counts"):
    """Batch: answer with other counts."""

    success: Annotated[int, Meta(ge=0, le=1_000_000, title="Users that succeeded")] = 0
    total: Annotated[int, Meta(ge=0, le=1_000_000, title="Users in all (optional)")] | None = None


class _OperationErrors(FaultKind, frozen=True, tag="operation_errors"):
    """Batch: refuse operations."""

    messages: _Messages = msgspec.field(default_factory=lambda: {0: "injected"})
    code: _Code = None


class _ProductErrors(FaultKind, frozen=True, tag="product_errors"):
    """Products: refuse single ones."""

    messages: _Messages = msgspec.field(default_factory=lambda: {0: "injected"})
    code: _Code = None


class _Late(FaultKind, frozen=True, tag="late"):
    """Close the connection, take effect later."""

    seconds: Annotated[float, Meta(ge=0, le=86_400, title="Seconds until then")] = 60.0
    then: Annotated[
        "_Any | None",
        Meta(title="Another fault meanwhile (optional)", description='must be a fault, such as {"kind": "hang"}'),
    ] = None


_Any = (
    _Http
    | _RateLimited
    | _Latency
    | _Hang
    | _DropConnection
    | _ResetConnection
    | _Truncate
    | _SlowBody
    | _MalformedJson
    | _Empty
    | _Html
    | _PartialCounts
    | _OperationErrors
    | _ProductErrors
    | _Late
)
KINDS: Mapping[str, type[FaultKind]] = {str(kind.__struct_config__.tag): kind for kind in get_args(_Any)}


class _Selection(msgspec.Struct, frozen=True):
    """The requests that a fault strikes; each fault takes these fields besides its own."""

    method: Annotated[
        Literal["*", "GET", "POST", "PUT", "DELETE"], Meta(description="must be one of *, GET, POST, PUT, DELETE")
    ] = "*"
    path: Annotated[
        str, Meta(min_length=1, max_length=500, description="must be a pattern of up to 500 characters")
    ] = "*"
    stage: Annotated[Stage, Meta(description="must be one of before, effect, after")] | None = None
    times: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    nth: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0

    def narrow(self, plan: Plan) -> Plan:
        """Return the plan for some of its requests."""
        if [self.times, self.nth, self.probability].count(None) < 2:  # noqa: PLR2004 of the three
            raise _refuse("times", "excludes nth and probability, and each of them the others")
        if self.times is not None:
            return plan.times(self.times)
        if self.nth is not None:
            return plan.nth(self.nth)
        return plan if self.probability is None else plan.probability(self.probability, seed=self.seed)


S = TypeVar("S", bound=msgspec.Struct)


def arm(faults: Faults, body: Mapping[str, Any]) -> Injection:
    """Arm a fault as a JSON object describes it; in Python, the positions of messages may be numbers.

    Raises:
        Refusal: a field is unknown, missing or wrong, or too many faults are armed.
    """
    common = _Selection.__struct_fields__
    _check_kind(body, common)
    own = {name: value for name, value in body.items() if name not in common}
    fault = _make_fault(_convert(own, KINDS[own["kind"]]))
    if len(faults.armed) >= _MOST_ARMED:
        raise Refusal(409, Problem("TOO_MANY_FAULTS", f"{_MOST_ARMED} faults are armed; clear them first"))
    selection = _convert({name: body[name] for name in common if name in body}, _Selection)
    plan = selection.narrow(faults.on(selection.method, selection.path))
    try:
        return plan.do(fault, stage=selection.stage)
    except WrongArgument as error:
        raise Refusal(400, Problem("INVALID_PARAMETER", str(error), error.parameter)) from None


def _check_kind(body: Mapping[str, Any], common: Collection[str] = ()) -> None:
    """Check the kind and the names of the fields of a fault, and of one within it."""
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise _refuse("kind", f"must be one of {', '.join(KINDS)}")
    own = KINDS[kind].__struct_fields__
    for name in body.keys() - {"kind", *own, *common}:
        takes = ", ".join(own) or "no fields of its own"
        others = f", and each fault {', '.join(common)}" if common else ""
        raise _refuse(str(name), f"is unknown here; {kind} takes {takes}{others}")
    if "then" in own and isinstance(body.get("then"), Mapping):
        _check_kind(body["then"])


def _convert(body: Mapping[str, Any], kind: type[S]) -> S:
    try:
        return msgspec.convert(body, kind, str_keys=True)
    except msgspec.ValidationError:
        raise _explain(body, kind) from None


def _explain(body: Mapping[str, Any], kind: type[msgspec.Struct]) -> Refusal:
    """Return the refusal of the first field that is wrong, without its value."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        try:
            if name in body:
                msgspec.convert(body[name], hint, str_keys=True)
        except msgspec.ValidationError:
            inner = body[name]
            if name == "then" and isinstance(inner, Mapping):
                return _explain(inner, KINDS[inner["kind"]])
            return _refuse(name, _find_rule(hint))
    raise AssertionError("a field of the body is wrong")


def _find_rule(hint: Any) -> str:
    meta = _get_meta(hint)
    if meta.description is not None:
        return meta.description
    if meta.ge is None:
        return f"must be a text of {meta.min_length} to {meta.max_length} characters"
    return f"must be {'a whole number' if _is_whole(hint) else 'a number'} from {meta.ge:g} to {meta.le:g}"


def _get_meta(hint: Any) -> Meta:
    """Return what is stated about a field, also about one that may be None."""
    meta: Meta = next(each for each in (hint, *get_args(hint)) if hasattr(each, "__metadata__")).__metadata__[0]
    return meta


def _is_whole(hint: Any) -> bool:
    return any(getattr(each, "__origin__", None) is int for each in (hint, *get_args(hint)))


def _make_fault(kind: FaultKind) -> Fault:
    values: dict[str, Any] = {name: getattr(kind, name) for name in kind.__struct_fields__}
    if values.get("status", 200) not in {known.value for known in HTTPStatus}:
        raise _refuse("status", "is no status that HTTP knows")
    if values.get("then") is not None:
        values["then"] = _make_fault(values["then"])
    make: Callable[..., Fault] = getattr(Fault, str(kind.__struct_config__.tag))
    return make(**{name: value for name, value in values.items() if value is not None})


def describe(injection: Injection) -> dict[str, Any]:
    """Return an armed fault as the control API shows it."""
    plan = injection.plan
    return {
        "number": injection.number,
        "fault": injection.fault.name,
        "method": plan.method,
        "path": plan.path,
        "stage": injection.stage,
        "when": plan.when,
        "seen": injection.seen,
        "struck": injection.struck,
    }


def describe_kind(name: str) -> dict[str, Any]:
    """Return a kind of fault as a form needs it."""
    kind = KINDS[name]
    usual, hints = kind(), get_type_hints(kind, include_extras=True)
    fields = [_describe_field(each, hints[each], getattr(usual, each)) for each in kind.__struct_fields__]
    return {"name": name, "label": (kind.__doc__ or "").rstrip("."), "fields": fields}


def _describe_field(name: str, hint: Any, default: object) -> dict[str, Any]:
    meta = _get_meta(hint)
    shown = {"name": name, "label": meta.title, "default": default}
    if meta.ge is not None:
        return {**shown, "type": "number", "minimum": meta.ge, "maximum": meta.le, "whole": _is_whole(hint)}
    return {**shown, "type": "text" if meta.description is None else "json"}


def _refuse(name: str, rule: str) -> Refusal:
    return Refusal(400, Problem("INVALID_PARAMETER", f"{name} {rule}", name))
