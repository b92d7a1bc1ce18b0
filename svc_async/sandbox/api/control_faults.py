"""The faults that the control API can arm: their kinds and fields as values, and how they are read from JSON."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Literal, get_args

import attrs

from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.faults import Fault, Faults, Injection, Plan, Stage

__all__ = ["KINDS", "FaultField", "FaultKind", "arm", "describe", "describe_kind"]

_METHODS = ("*", "GET", "POST", "PUT", "DELETE")
_LONGEST_PATTERN = 500
_MOST_ARMED = 100


@attrs.frozen
class FaultField:
    """A number that a fault takes.

    Attributes:
        default: None leaves it out.
        whole: whether it must be an integer.
        label: what a form calls it, with its unit.
    """

    name: str
    label: str
    default: float | None
    minimum: float
    maximum: float
    whole: bool = False

    def read(self, fields: Mapping[str, Any]) -> float | None:
        """Return the value in a JSON object, or the default.

        Raises:
            Refusal: it is not such a number.
        """
        value = fields.get(self.name, self.default)
        if value is None and self.default is None:
            return None
        kinds = (int,) if self.whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not self.minimum <= value <= self.maximum:
            what = "a whole number" if self.whole else "a number"
            raise _refuse(self.name, f"must be {what} from {self.minimum:g} to {self.maximum:g}")
        return value


@attrs.frozen
class FaultKind:
    """A kind of fault.

    Attributes:
        label: what happens, for a form.
        make: takes the fields as keywords; those that are left out are missing.
    """

    name: str
    label: str
    make: Callable[..., Fault] = attrs.field(repr=False)
    fields: tuple[FaultField, ...] = ()


_SECONDS = FaultField("seconds", "Seconds", 5.0, 0, 86_400)
_STATUS = FaultField("status", "Status", 503, 400, 599, whole=True)


def _make_http(*, status: int, retry_after: float | None = None) -> Fault:
    if status not in {known.value for known in HTTPStatus}:
        raise _refuse("status", "is no status that HTTP knows")
    return Fault.http(status, retry_after=retry_after)


def _make_operation_error(*, index: int) -> Fault:
    return Fault.operation_errors({index: "injected"})


KINDS: tuple[FaultKind, ...] = (
    FaultKind(
        "http",
        "Answer with an error",
        _make_http,
        (_STATUS, FaultField("retry_after", "Retry-After, seconds (optional)", None, 0, 86_400)),
    ),
    FaultKind(
        "rate_limited",
        "Answer 429, rate limited",
        Fault.rate_limited,
        (FaultField("reset", "Reset in seconds", 30.0, -3600, 86_400),),
    ),
    FaultKind("latency", "Wait, then answer", Fault.latency, (_SECONDS,)),
    FaultKind("hang", "Never answer", Fault.hang),
    FaultKind("drop_connection", "Close the connection", Fault.drop_connection),
    FaultKind("reset_connection", "Reset the connection (RST)", lambda: Fault.drop_connection(reset=True)),
    FaultKind(
        "truncate",
        "Cut the answer short",
        Fault.truncate,
        (FaultField("size", "Bytes that are sent", 20, 0, 1_000_000, whole=True),),
    ),
    FaultKind("slow_body", "Answer in four slow pieces", Fault.slow_body, (_SECONDS,)),
    FaultKind("malformed_json", "Answer with broken JSON", Fault.malformed_json),
    FaultKind("empty", "Answer 200 without a body", Fault.empty),
    FaultKind("html", "Answer with an HTML page", Fault.html, (attrs.evolve(_STATUS, default=502),)),
    FaultKind(
        "partial_counts",
        "Batch: answer with other counts",
        Fault.partial_counts,
        (FaultField("success", "Users that succeeded", 0, 0, 1_000_000, whole=True),),
    ),
    FaultKind(
        "operation_errors",
        "Batch: refuse one operation",
        _make_operation_error,
        (FaultField("index", "Its position, from 0", 0, 0, 1_000_000, whole=True),),
    ),
    FaultKind(
        "late",
        "Close the connection, take effect later",
        Fault.late,
        (FaultField("delay", "Seconds until then", 60.0, 0, 86_400),),
    ),
)
_KNOWN = ("method", "path", "kind", "stage", "times", "nth", "probability", "seed")


def arm(faults: Faults, body: Mapping[str, Any]) -> Injection:
    """Arm a fault as a JSON object describes it.

    Raises:
        Refusal: a field is unknown, missing or wrong, or too many faults are armed.
    """
    kind = next((kind for kind in KINDS if kind.name == body.get("kind")), None)
    if kind is None:
        raise _refuse("kind", f"must be one of {', '.join(kind.name for kind in KINDS)}")
    for name in body.keys() - {*_KNOWN, *(field.name for field in kind.fields)}:
        raise _refuse(name, "is unknown here")
    if len(faults.armed) >= _MOST_ARMED:
        raise Refusal(409, Problem("TOO_MANY_FAULTS", f"{_MOST_ARMED} faults are armed; clear them first"))
    values = {field.name: value for field in kind.fields if (value := field.read(body)) is not None}
    return _narrow(_select(faults, body), body).do(kind.make(**values), stage=_read_stage(body))


def _select(faults: Faults, body: Mapping[str, Any]) -> Plan:
    method, path = body.get("method", "*"), body.get("path", "*")
    if method not in _METHODS:
        raise _refuse("method", f"must be one of {', '.join(_METHODS)}")
    if not isinstance(path, str) or not 0 < len(path) <= _LONGEST_PATTERN:
        raise _refuse("path", f"must be a pattern of up to {_LONGEST_PATTERN} characters")
    return faults.on(method, path)


_TIMES = FaultField("times", "Times", None, 1, 1_000_000, whole=True)
_NTH = attrs.evolve(_TIMES, name="nth")
_PROBABILITY = FaultField("probability", "Probability", None, 0, 1)
_SEED = FaultField("seed", "Seed", 0, 0, 2**31, whole=True)


def _narrow(plan: Plan, body: Mapping[str, Any]) -> Plan:
    times, nth, share = _TIMES.read(body), _NTH.read(body), _PROBABILITY.read(body)
    if [times, nth, share].count(None) < 2:  # noqa: PLR2004 of the three
        raise _refuse("times", "excludes nth and probability, and each of them the others")
    if times is not None:
        return plan.times(int(times))
    if nth is not None:
        return plan.nth(int(nth))
    return plan if share is None else plan.probability(share, seed=int(_SEED.read(body) or 0))


def _read_stage(body: Mapping[str, Any]) -> Stage | None:
    stages: tuple[Literal["before", "effect", "after"], ...] = get_args(Stage)
    stage = body.get("stage")
    if stage is not None and stage not in stages:
        raise _refuse("stage", f"must be one of {', '.join(stages)}")
    return stage


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


def describe_kind(kind: FaultKind) -> dict[str, Any]:
    """Return a kind of fault as a form needs it."""
    fields = [attrs.asdict(field) for field in kind.fields]
    return {"name": kind.name, "label": kind.label, "fields": fields}


def _refuse(name: str, rule: str) -> Refusal:
    return Refusal(400, Problem("INVALID_PARAMETER", f"{name} {rule}", name))
