from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from svc_async.errors import InvalidArgument
from svc_async.wire.checks import (
    any_of,
    at_most,
    between,
    by_type,
    datetimes,
    distinct,
    each,
    each_row,
    exclusive,
    greater_than,
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
from svc_async.wire.params import Check

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)
NAIVE = HOUR.replace(tzinfo=None)
KEY = required("key")
HOURS = " must be a whole hour in UTC: minutes and seconds zero"


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
        datetimes("a", "b"),
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
        (
            distinct("a", "key"),
            {"a": [{"key": 1}, Thing(key="k"), {"key": 1}]},
            "a[2].key must not occur twice in one request",
        ),
        (requires("a", "b", "c"), {"a": 1, "b": 2}, "c must be given with a"),
        (together_at_most(("a", "b"), 1, "keys"), {"a": ["k"], "b": "k"}, "b must be a sequence of keys"),
        (not_greater_than("a", "b"), {"a": 2, "b": 1}, "a must be at most b"),
        (required("a", "b"), {"a": 0, "b": ()}, "b must be given"),
        (required_when("a", ("x", "y"), "b"), {"a": "y", "b": []}, "b must be given when a is x or y"),
        (not_empty("a", "b"), {"a": "x", "b": []}, "b must not be empty"),
        (
            together_at_most(("a", "b", "c"), 1, "k"),
            {"a": [1], "c": [2]},
            "a must contain at most 1 k, b and c counted as well",
        ),
        (each_row("a", KEY), {"a": {}}, "a must be a sequence of sequences"),
        (each("a", KEY), {"a": {"key": 1}}, "a must be a sequence of objects"),
        (datetimes("a", "b"), {"a": HOUR, "b": "2026-01-02T03:04:05Z"}, "b must be a datetime with a time zone"),
        (whole_hours("a", "b"), {"b": HOUR.replace(minute=1)}, "b" + HOURS),
        (whole_hours("a"), {"a": HOUR.replace(second=1)}, "a" + HOURS),
        (whole_hours("a"), {"a": HOUR.replace(microsecond=1)}, "a" + HOURS),
    ],
)
def test_a_breach_names_parameter_and_rule(check: Check, params: dict[str, Any], message: str) -> None:
    problem = check(params)

    assert str(problem) == message


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


@pytest.mark.parametrize(
    ("check", "accepted", "refused", "rule"),
    [
        (between("a", 1, 3), [1, 2, 3], [0, 4, True, 2.0, "2"], "must be a whole number from 1 to 3"),
        (greater_than("a", 1), [2, 10**9], [1, 0, True, 2.0, "2"], "must be a whole number greater than 1"),
        (one_of("a", 1, "x"), [1, "x"], [0, True, "y", 2], "must be 1 or x"),
        (length("a", 3), ["", "abc"], ["abcd", 5, b"abc"], "must have at most 3 characters"),
        (length("a", 3, least=2), ["ab", "abc"], ["", "a", "abcd"], "must have from 2 to 3 characters"),
        (length("a", 2, without="#"), ["#a#b#"], ["#abc"], "must have at most 2 characters, # not counted"),
        (at_most("a", 2), [[], (1, 2), {1, 2}], [[1, 2, 3]], "must contain at most 2 ids"),
        (sized("a", 2, 3, "keys"), [[1, 2], (1, 2, 3)], [[1], [1, 2, 3, 4]], "must contain from 2 to 3 keys"),
        (sized("a", 1, 1, "keys"), [[1]], [[], [1, 2]], "must contain from 1 to 1 keys"),
        (sized("a", 1, 3, "keys"), [], ["ab", b"ab", 5, {"k": 1}, iter("ab")], "must be a sequence of keys"),
        (not_empty("a"), ["x", [1]], ["", []], "must not be empty"),
        (together_at_most(("a",), 2, "keys"), [[], [1, 2]], [[1, 2, 3]], "must contain at most 2 keys"),
        (required("a"), [0, False, "x"], [None, "", [], ()], "must be given"),
    ],
)
def test_a_bound_is_where_the_rule_says(
    check: Check, accepted: Sequence[object], refused: Sequence[object], rule: str
) -> None:
    assert [value for value in accepted if check({"a": value})] == []
    problems = [check({"a": value}) for value in refused]
    assert [problem and problem.parameter for problem in problems] == ["a"] * len(refused)
    assert all(problem.rule.startswith(rule) for problem in problems if problem)


@pytest.mark.parametrize(
    ("check", "params", "is_broken"),
    [
        (not_greater_than("a", "b"), {"a": 1, "b": 1}, False),
        (not_greater_than("a", "b"), {"a": 2, "b": 1}, True),
        (not_greater_than("a", "b"), {"a": 2, "b": None}, False),
        (not_greater_than("a", "b"), {"a": 2, "b": "1"}, False),
        (not_greater_than("a", "b"), {"a": True, "b": 0}, False),
        (window("b", "a", timedelta(days=2)), {"b": HOUR, "a": HOUR + timedelta(days=2)}, False),
        (window("b", "a", timedelta(days=2)), {"b": HOUR, "a": HOUR + timedelta(days=2, microseconds=1)}, True),
        (window("b", "a", timedelta(days=2)), {"b": NAIVE, "a": HOUR + timedelta(days=3)}, False),
        (together_at_most(("a", "b"), 2, "keys"), {"a": [1], "b": [2]}, False),
        (together_at_most(("a", "b"), 2, "keys"), {"a": [1], "b": [2, 3]}, True),
        (exclusive("a", "b"), {"a": 1, "b": None}, False),
        (exclusive("a", "b"), {"a": None, "b": 1}, False),
        (exclusive("b", "a"), {"a": "", "b": 0}, True),
        (requires("b", "a"), {"b": "", "a": None}, False),
        (requires("b", "a"), {"b": 1, "a": ""}, True),
        (requires("b", "a"), {"b": 1, "a": 0}, False),
        (required_when("b", ("x",), "a"), {"b": "x"}, True),
        (required_when("b", ("x",), "a"), {"b": "x", "a": 0}, False),
        (required_when("b", ("x",), "a"), {"b": "y"}, False),
        (any_of("a", "b"), {"a": 0}, False),
        (any_of("a", "b"), {"b": 0}, False),
        (any_of("a", "b"), {"a": "", "b": []}, True),
        (inside("a", KEY), {"a": {"key": 1}}, False),
        (each("a", KEY), {"a": [{"key": 1}]}, False),
        (each_row("a", KEY), {"a": [[{"key": 1}], ()]}, False),
        (whole_hours("a"), {"a": HOUR}, False),
        (by_type({"x": [required("a")]}), {"type": "x"}, True),
        (by_type({"x": [required("a")]}), {"type": "x", "a": 1}, False),
        (by_type({"x": [required("a")]}), {"type": "y"}, False),
        (by_type({"x": [required("a")]}), {}, False),
    ],
)
def test_parameters_break_a_rule_together_or_not(check: Check, params: dict[str, Any], is_broken: bool) -> None:
    problem = check(params)
    assert (problem is not None) == is_broken
    assert problem is None or problem.parameter.startswith("a")


def test_an_error_names_the_rules_that_are_broken_beside_its_sentence() -> None:
    check = inside("a", satisfies("b", bool, "must be true", rule_ids=("CAU-06b", "CAU-07")))
    error = check({"a": {"b": False}})

    assert isinstance(error, InvalidArgument)
    assert (error.parameter, error.rule_ids) == ("a.b", ("CAU-06b", "CAU-07"))
    assert InvalidArgument("a", "b").rule_ids == ()
