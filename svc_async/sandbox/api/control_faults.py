"""The faults that the control API can arm: their kinds and fields as values, and how they are read from JSON.

Kinds and fields have the names of the methods of `Fault` and of their arguments.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import attrs

from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.faults import METHODS, STAGES, Fault, Faults, Injection, Plan, Stage

__all__ = ["KINDS", "FaultField", "FaultKind", "arm", "describe", "describe_kind"]

_LONGEST_PATTERN = 500
_LONGEST_TEXT = 500
_MOST_ARMED = 100


class FaultField(Protocol):
    """A field of a fault; it has the name of the argument of `Fault`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def read(self, fields: Mapping[str, Any]) -> Any:
        """Return the value in a JSON object, or the default; None leaves it out.

        Raises:
            Refusal: it is no such value.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return what a form needs to know of it."""
        ...


@attrs.frozen
class NumberField:
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

    def describe(self) -> dict[str, Any]:
        """Return what a form needs to know of it."""
        return {"type": "number", **attrs.asdict(self)}


@attrs.frozen
class TextField:
    """A text that a fault takes; it may be left out.

    Attributes:
        label: what a form calls it.
    """

    name: str
    label: str

    def read(self, fields: Mapping[str, Any]) -> str | None:
        """Return the value in a JSON object, or None.

        Raises:
            Refusal: it is no text, or too long.
        """
        value = fields.get(self.name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT):
            raise _refuse(self.name, f"must be a text of 1 to {_LONGEST_TEXT} characters")
        return value

    def describe(self) -> dict[str, Any]:
        """Return what a form needs to know of it."""
        return {"type": "text", "default": None, **attrs.asdict(self)}


@attrs.frozen
class MessagesField:
    """Messages by the position of an operation."""

    name: str
    label: str
    default: Mapping[str, str]

    def read(self, fields: Mapping[str, Any]) -> Mapping[int, str]:
        """Return the value in a JSON object, or the default; in Python, positions may be numbers.

        Raises:
            Refusal: it is no such object.
        """
        value = fields.get(self.name, self.default)
        if isinstance(value, Mapping) and value and all(map(_is_message, value.items())):
            return {int(position): message for position, message in value.items()}
        raise _refuse(self.name, 'must be an object such as {"0": "a message"}')

    def describe(self) -> dict[str, Any]:
        """Return what a form needs to know of it."""
        return {"type": "json", **attrs.asdict(self)}


def _is_message(item: tuple[object, object]) -> bool:
    position, message = item
    return re.fullmatch("[0-9]{1,6}", str(position)) is not None and isinstance(message, str)


@attrs.frozen
class NestedField:
    """Another fault; it may be left out."""

    name: str
    label: str

    def read(self, fields: Mapping[str, Any]) -> Fault | None:
        """Return the fault that a JSON object describes, or None.

        Raises:
            Refusal: it describes none.
        """
        value = fields.get(self.name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _refuse(self.name, 'must be a fault, such as {"kind": "hang"}')
        return _make_fault(value)

    def describe(self) -> dict[str, Any]:
        """Return what a form needs to know of it."""
        return {"type": "json", "default": None, **attrs.asdict(self)}


@attrs.frozen
class FaultKind:
    """A kind of fault, with the name of the method of `Fault` that makes it.

    Attributes:
        label: what happens, for a form.
        fields: what it takes; those that are left out have the default of the method.
    """

    name: str
    label: str
    fields: tuple[FaultField, ...] = ()


_SECONDS = NumberField("seconds", "Seconds", 5.0, 0, 86_400)
_STATUS = NumberField("status", "Status", 503, 400, 599, whole=True)
_CODE = TextField("code", "Code (optional)")
_MESSAGES = MessagesField("messages", "Messages by position, from 0", {"0": "injected"})

KINDS: tuple[FaultKind, ...] = (
    FaultKind(
        "http",
        "Answer with an error",
        (
            _STATUS,
            NumberField("retry_after", "Retry-After, seconds (optional)", None, 0, 86_400),
            _CODE,
            TextField("message", "Message (optional)"),
        ),
    ),
    FaultKind(
        "rate_limited",
        "Answer 429, rate limited",
        (
            NumberField("reset", "Reset in seconds", 30.0, -3600, 86_400),
            NumberField("limit", "Limit", 1500, 0, 1_000_000, whole=True),
        ),
    ),
    FaultKind("latency", "Wait, then answer", (_SECONDS,)),
    FaultKind("hang", "Never answer"),
    FaultKind("drop_connection", "Close the connection"),
    FaultKind("reset_connection", "Reset the connection (RST)"),
    FaultKind(
        "truncate", "Cut the answer short", (NumberField("size", "Bytes that are sent", 20, 0, 1_000_000, whole=True),)
    ),
    FaultKind("slow_body", "Answer in four slow pieces", (_SECONDS,)),
    FaultKind("malformed_json", "Answer with broken JSON"),
    FaultKind("empty", "Answer without a body", (attrs.evolve(_STATUS, default=200, minimum=200),)),
    FaultKind("html", "Answer with an HTML page", (attrs.evolve(_STATUS, default=502, minimum=200),)),
    FaultKind(
        "partial_counts",
        "Batch: answer with other counts",
        (
            NumberField("success", "Users that succeeded", 0, 0, 1_000_000, whole=True),
            NumberField("total", "Users in all (optional)", None, 0, 1_000_000, whole=True),
        ),
    ),
    FaultKind(
        "operation_errors",
        "Batch: refuse operations",
        (_MESSAGES, _CODE),
    ),
    FaultKind(
        "product_errors",
        "Products: refuse single ones",
        (_MESSAGES, _CODE),
    ),
    FaultKind(
        "late",
        "Close the connection, take effect later",
        (
            NumberField("seconds", "Seconds until then", 60.0, 0, 86_400),
            NestedField("then", "Another fault meanwhile (optional)"),
        ),
    ),
)
_COMMON = ("method", "path", "stage", "times", "nth", "probability", "seed")


def arm(faults: Faults, body: Mapping[str, Any]) -> Injection:
    """Arm a fault as a JSON object describes it.

    Raises:
        Refusal: a field is unknown, missing or wrong, or too many faults are armed.
    """
    fault = _make_fault(body, _COMMON)
    if len(faults.armed) >= _MOST_ARMED:
        raise Refusal(409, Problem("TOO_MANY_FAULTS", f"{_MOST_ARMED} faults are armed; clear them first"))
    plan, stage = _narrow(_select(faults, body), body), _read_stage(body)
    try:
        return plan.do(fault, stage=stage)
    except ValueError as error:
        raise Refusal(400, Problem("INVALID_PARAMETER", str(error), str(error).partition(" ")[0])) from None


def _make_fault(body: Mapping[str, Any], common: Sequence[str] = ()) -> Fault:
    """Return the fault that a JSON object describes, beside fields that all faults have in common."""
    kind = next((kind for kind in KINDS if kind.name == body.get("kind")), None)
    if kind is None:
        raise _refuse("kind", f"must be one of {', '.join(kind.name for kind in KINDS)}")
    own = [field.name for field in kind.fields]
    for name in body.keys() - {"kind", *own, *common}:
        takes = ", ".join(own) or "no fields of its own"
        others = f", and each fault {', '.join(common)}" if common else ""
        raise _refuse(str(name), f"is unknown here; {kind.name} takes {takes}{others}")
    values = {field.name: value for field in kind.fields if (value := field.read(body)) is not None}
    if "status" in values and values["status"] not in {known.value for known in HTTPStatus}:
        raise _refuse("status", "is no status that HTTP knows")
    make: Callable[..., Fault] = getattr(Fault, kind.name)
    return make(**values)


def _select(faults: Faults, body: Mapping[str, Any]) -> Plan:
    method, path = body.get("method", "*"), body.get("path", "*")
    if method not in METHODS:
        raise _refuse("method", f"must be one of {', '.join(METHODS)}")
    if not isinstance(path, str) or not 0 < len(path) <= _LONGEST_PATTERN:
        raise _refuse("path", f"must be a pattern of up to {_LONGEST_PATTERN} characters")
    return faults.on(method, path)


_TIMES = NumberField("times", "Times", None, 1, 1_000_000, whole=True)
_NTH = attrs.evolve(_TIMES, name="nth")
_PROBABILITY = NumberField("probability", "Probability", None, 0, 1)
_SEED = NumberField("seed", "Seed", 0, 0, 2**31, whole=True)


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
    stage = body.get("stage")
    if stage is not None and stage not in STAGES:
        raise _refuse("stage", f"must be one of {', '.join(STAGES)}")
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
    return {"name": kind.name, "label": kind.label, "fields": [field.describe() for field in kind.fields]}


def _refuse(name: str, rule: str) -> Refusal:
    return Refusal(400, Problem("INVALID_PARAMETER", f"{name} {rule}", name))
