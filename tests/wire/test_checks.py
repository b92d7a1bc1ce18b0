from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from svc_async.errors import InvalidArgument
from svc_async.wire.checks import (
    Check,
    any_of,
    at_most,
    between,
    by_type,
    distinct,
    each,
    each_row,
    exclusive,
    inside,
    length,
    not_empty,
    not_greater_than,
    one_of,
    required,
    required_when,
    requires,
    satisfies,
    sized,
    together_at_most,
    whole_hours,
    window,
)

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)
NAIVE = HOUR.replace(tzinfo=None)
KEY = required("key")


@attrs.frozen(kw_only=True)
class Thing:
    key: str | None = None
    type: str = "THING"


@pytest.mark.parametrize(
    "check",
    [
        one_of("a", 1),
        at_most("a", 0),
        between("a", 1, 2),
        distinct("a", "key"),
        each("a", KEY),
        each_row("a", KEY),
        exclusive("a", "b"),
        not_empty("a"),
        inside("a", KEY),
        length("a", 0),
        requires("a", "b"),
        not_greater_than("a", "b"),
        sized("a", 1, 2, "keys"),
        together_at_most(("a", "b"), 0, "keys"),
        required_when("a", ("x",), "b"),
        whole_hours("a", "b"),
        window("a", "b", timedelta(0)),
    ],
)
@pytest.mark.parametrize("params", [{}, {"a": None, "b": None}])
def test_what_is_not_given_breaks_no_rule(check: Check, params: dict[str, Any]) -> None:
    assert check(params) is None


@pytest.mark.parametrize(
    ("check", "params", "message"),
    [
        (any_of("a", "b", "c"), {}, "a must be given where b and c are not"),
        (any_of("a", "b"), {"b": ""}, "a must be given where b is not"),
        (at_most("a", 2), {"a": "ids"}, "a must be a sequence of ids"),
        (at_most("a", 2), {"a": {"k": 1}}, "a must be a sequence of ids"),
        (at_most("a", 2), {"a": iter("ab")}, "a must be a sequence of ids"),
        (at_most("a", 2), {"a": {1, 2, 3}}, "a must contain at most 2 ids"),
        (exclusive("a", "b", "c"), {"a": 0, "c": ""}, "c must not be given together with a"),
        (length("a", 2, least=1), {"a": ""}, "a must have from 1 to 2 characters"),
        (length("a", 2), {"a": 5}, "a must have at most 2 characters"),
        (length("a", 2, without="#"), {"a": "#a#bc"}, "a must have at most 2 characters, # not counted"),
        (inside("a", inside("b", KEY)), {"a": {"b": Thing()}}, "a.b.key must be given"),
        (inside("a", KEY), {"a": "text"}, "a must be an object"),
        (each("a", KEY), {"a": [Thing(key="k"), Thing()]}, "a[1].key must be given"),
        (each_row("a", KEY), {"a": [[], [Thing()]]}, "a[1][0].key must be given"),
        (each("a", by_type({"THING": [KEY]})), {"a": [{"type": "OTHER"}, Thing()]}, "a[1].key must be given"),
        (distinct("a", "key"), {"a": [{"key": 1}, Thing(key="k"), {"key": 1}]}, "a[2].key must not occur twice"),
        (requires("a", "b", "c"), {"a": 1, "b": 2}, "c must be given with a"),
        (together_at_most(("a", "b"), 1, "keys"), {"a": ["k"], "b": "k"}, "b must be a sequence of keys"),
        (not_greater_than("a", "b"), {"a": 2, "b": 1}, "a must be at most b"),
    ],
)
def test_a_breach_names_parameter_and_rule(check: Check, params: dict[str, Any], message: str) -> None:
    problem = check(params)

    assert problem is not None
    assert str(problem).startswith(message)


@pytest.mark.parametrize(
    ("check", "params"),
    [
        (whole_hours("a"), {"a": NAIVE.replace(minute=1)}),
        (whole_hours("a"), {"a": "2026-01-02T03:04:05Z"}),
        (window("a", "b", timedelta(days=1)), {"a": NAIVE, "b": HOUR}),
        (window("a", "b", timedelta(days=1)), {"a": "2026-01-02", "b": HOUR}),
        (window("a", "b", timedelta(days=1)), {"a": HOUR, "b": HOUR + timedelta(days=1)}),
        (not_greater_than("a", "b"), {"a": "2", "b": 1}),
        (each("a", by_type({"THING": [KEY]})), {"a": [{"type": "TO_COME"}, {}]}),
        (distinct("a", "key"), {"a": [{"key": 1}, {"key": 2}]}),
        (exclusive("a", "b"), {"b": 0}),
    ],
)
def test_what_cannot_be_told_here_is_left_to_others(check: Check, params: dict[str, Any]) -> None:
    assert check(params) is None


def test_an_error_names_the_rules_that_are_broken_beside_its_sentence() -> None:
    check = inside("a", satisfies("b", bool, "must be true", rule_ids=("CAU-06b", "CAU-07")))
    error = check({"a": {"b": False}})

    assert isinstance(error, InvalidArgument)
    assert (str(error), error.rule_ids) == ("a.b must be true", ("CAU-06b", "CAU-07"))
    assert InvalidArgument("a", "b").rule_ids == ()
