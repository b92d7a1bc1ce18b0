"""Rules that are checked before a request is sent, as values in the row of an operation.

A check takes the parameters of a call and returns what is wrong with them, or None. A parameter that is missing or None
breaks no rule about its value. Nested objects are checked by the same checks: see `inside`, `each`, `by_type`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from svc_async.errors import InvalidArgument
from svc_async.value_rules import MOMENT, TEXT, is_aware, is_whole
from svc_async.wire.params import Check, first_problem
from svc_async.wire.records import fields_of

__all__ = [
    "any_of",
    "at_most",
    "between",
    "by_type",
    "datetimes",
    "distinct",
    "each",
    "each_row",
    "exclusive",
    "greater_than",
    "inside",
    "length",
    "not_empty",
    "not_greater_than",
    "one_of",
    "related",
    "required",
    "required_when",
    "requires",
    "satisfies",
    "sized",
    "text",
    "together_at_most",
    "whole_hours",
    "window",
]


def satisfies(name: str, accepts: Callable[[Any], bool], rule: str, *, rule_ids: Sequence[str] = ()) -> Check:
    """Require that a value, if given, is accepted."""
    return related((name,), accepts, rule, rule_ids=rule_ids)


def related(names: Sequence[str], accept: Callable[..., bool], rule: str, *, rule_ids: Sequence[str] = ()) -> Check:
    """Require that values, if all are given, are accepted together; the problem names the first of them."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        values = [params.get(name) for name in names]
        if any(value is None for value in values) or accept(*values):
            return None
        return InvalidArgument(names[0], rule, rule_ids=rule_ids)

    return check


def between(name: str, low: int, high: int) -> Check:
    """Require an int within bounds."""
    return satisfies(
        name, lambda value: is_whole(value) and low <= value <= high, f"must be a whole number from {low} to {high}"
    )


def greater_than(name: str, bound: int) -> Check:
    """Require an int greater than a bound."""
    return satisfies(
        name, lambda value: is_whole(value) and value > bound, f"must be a whole number greater than {bound}"
    )


def not_greater_than(name: str, other: str) -> Check:
    """Require an int not greater than another parameter."""

    def fits(value: Any, bound: Any) -> bool:
        return not (is_whole(value) and is_whole(bound)) or value <= bound

    return related((name, other), fits, f"must be at most {other}")


def one_of(name: str, *values: object) -> Check:
    """Require one of several values."""
    return satisfies(
        name, lambda value: value in values and not isinstance(value, bool), f"must be {_join_alternatives(values)}"
    )


def length(name: str, most: int, *, least: int = 0, without: str = "") -> Check:
    """Require a string of `least` to `most` characters, those in `without` not counted."""
    bounds = f"from {least} to {most}" if least else f"at most {most}"
    uncounted = f", {without} not counted" if without else ""

    def fits(value: object) -> bool:
        return isinstance(value, str) and least <= sum(character not in without for character in value) <= most

    return satisfies(name, fits, f"must have {bounds} characters{uncounted}")


def at_most(name: str, bound: int, of: str = "ids") -> Check:
    """Require a sequence of at most `bound` elements (contract GEN-17)."""
    return sized(name, 0, bound, of)


def sized(name: str, low: int, high: int, of: str) -> Check:
    """Require a sequence of `low` to `high` elements."""
    bounds = f"from {low} to {high}" if low else f"at most {high}"
    count = satisfies(name, lambda value: low <= len(value) <= high, f"must contain {bounds} {of}")
    return lambda params: first_problem((_require_sequence(name, of), count), params)


def together_at_most(names: Sequence[str], bound: int, of: str) -> Check:
    """Require sequences of at most `bound` elements in total."""
    several = [_require_sequence(name, of) for name in names]
    rule = f"must contain at most {bound} {of}, {' and '.join(names[1:])} counted as well"

    def count(params: Mapping[str, Any]) -> InvalidArgument | None:
        total = sum(len(params.get(name) or ()) for name in names)
        return InvalidArgument(names[0], rule) if total > bound else None

    return lambda params: first_problem((*several, count), params)


def not_empty(*names: str) -> Check:
    """Require that sequences and strings, if given, are not empty."""
    return lambda params: first_problem((satisfies(name, bool, "must not be empty") for name in names), params)


def text(*names: str) -> Check:
    """Require that parameters, if given, are strings."""
    rules = [satisfies(name, lambda value: isinstance(value, str), f"must be {TEXT.words}") for name in names]
    return lambda params: first_problem(rules, params)


def required(*names: str) -> Check:
    """Require all of the parameters."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        missing = _find_missing(params, names)
        return InvalidArgument(missing[0], "must be given") if missing else None

    return check


def any_of(*names: str) -> Check:
    """Require at least one of the parameters."""
    others = " and ".join(names[1:])

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        if len(_find_missing(params, names)) < len(names):
            return None
        return InvalidArgument(names[0], f"must be given where {others} {'are' if len(names) > 2 else 'is'} not")  # noqa: PLR2004 - grammar

    return check


def exclusive(*names: str) -> Check:
    """Allow at most one of the parameters."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        given = [name for name in names if params.get(name) is not None]
        return InvalidArgument(given[1], f"must not be given together with {given[0]}") if len(given) > 1 else None

    return check


def requires(name: str, *others: str) -> Check:
    """Require other parameters if this one is given."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        missing = _find_missing(params, others) if not _find_missing(params, (name,)) else ()
        return InvalidArgument(missing[0], f"must be given with {name}") if missing else None

    return check


def required_when(name: str, values: Collection[str], needed: str) -> Check:
    """Require another parameter if this one has certain values."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        if params.get(name) in values and _find_missing(params, (needed,)):
            return InvalidArgument(needed, f"must be given when {name} is {_join_alternatives(values)}")
        return None

    return check


def datetimes(*names: str) -> Check:
    """Require datetimes; one without a time zone is rejected when it is encoded."""
    rules = [satisfies(name, lambda value: isinstance(value, datetime), f"must be {MOMENT.words}") for name in names]
    return lambda params: first_problem(rules, params)


def whole_hours(*names: str) -> Check:
    """Require datetimes whose minutes and seconds are zero in UTC, as they are sent."""
    rule = "must be a whole hour in UTC: minutes and seconds zero"
    return lambda params: first_problem((satisfies(name, _is_whole_hour, rule) for name in names), params)


def window(start: str, end: str, longest: timedelta) -> Check:
    """Require that two datetimes are at most `longest` apart."""

    def fits(last: Any, first: Any) -> bool:
        return not (is_aware(last) and is_aware(first)) or last - first <= longest

    return related((end, start), fits, f"must be at most {longest.days} days after {start}")


def distinct(name: str, field: str) -> Check:
    """Require that a field differs in all objects of a sequence."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        seen: set[str] = set()
        for position, element in enumerate(_elements(params.get(name))):
            value = str((fields_of(element) or {}).get(field))
            if value in seen:
                return InvalidArgument(f"{name}[{position}].{field}", "must not occur twice in one request")
            seen.add(value)
        return None

    return check


def inside(name: str, *checks: Check) -> Check:
    """Check the fields of an object."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        value = params.get(name)
        return None if value is None else _check_object(name, value, checks)

    return check


def each(name: str, *checks: Check) -> Check:
    """Check the fields of each object of a sequence."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        problems = (
            _check_object(f"{name}[{position}]", element, checks)
            for position, element in enumerate(_elements(params.get(name)))
        )
        return _require_sequence(name, "objects")(params) or next(filter(None, problems), None)

    return check


def each_row(name: str, *checks: Check) -> Check:
    """Check the fields of each object of each sequence of a sequence."""

    def check(params: Mapping[str, Any]) -> InvalidArgument | None:
        rows = {f"{name}[{position}]": row for position, row in enumerate(_elements(params.get(name)))}
        return _require_sequence(name, "sequences")(params) or first_problem((each(row, *checks) for row in rows), rows)

    return check


def by_type(checks: Mapping[str, Sequence[Check]]) -> Check:
    """Check the fields of an object by its `type`; a type that is not listed is left to the service."""
    return lambda params: first_problem(checks.get(str(params.get("type")), ()), params)


def _check_object(where: str, value: object, checks: Sequence[Check]) -> InvalidArgument | None:
    fields = fields_of(value)
    if fields is None:
        return InvalidArgument(where, "must be an object")
    problem = first_problem(checks, fields)
    return problem and InvalidArgument(f"{where}.{problem.parameter}", problem.rule, rule_ids=problem.rule_ids)


def _require_sequence(name: str, of: str) -> Check:
    def accepts(value: object) -> bool:
        return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)

    return satisfies(name, accepts, f"must be a sequence of {of}")


def _elements(value: object) -> Iterable[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _find_missing(params: Mapping[str, Any], names: Iterable[str]) -> Sequence[str]:
    return [name for name in names if params.get(name) is None or params[name] in ("", [], ())]


def _join_alternatives(values: Iterable[object]) -> str:
    return " or ".join(str(value) for value in values)


def _is_whole_hour(value: object) -> bool:
    # A datetime without a time zone, or out of range in UTC, is rejected when it is encoded, with a better message.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return True
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        return True
    return utc == utc.replace(minute=0, second=0, microsecond=0)
