"""Which plain values fit which type, and what is said about the others."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.ads.accounts import ApprovalStatus
from svc_async.wire.records import EXACT, Record, Timestamp
from svc_async.wire.tolerant import Builder, Misfit, decode

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def build(kind: Any, value: object) -> Any:
    model, left_out = Builder().build(kind, value)
    assert left_out == ()
    return model


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (str, "a", "a"),
        (str, "", ""),
        (str, 7, "7"),
        (str, "cut \ud83d off", "cut \ufffd off"),
        (str, "\ud800\udfff", "\ufffd\ufffd"),
        (ApprovalStatus, "ACCEPTED", ApprovalStatus.ACCEPTED),
        (int, 7, 7),
        (int, 7.0, 7),
        (int, "-7", -7),
        (int, "9" * 300, int("9" * 300)),
        (float, 7, 7.0),
        (float, 0.5, 0.5),
        (float, "-1.5e2", -150.0),
        (float, "1E-2", 0.01),
        (float, "1e+2", 100.0),
        (float, "0" * 300 + "." + "0" * 300, 0.0),
        (float, "0e999", 0.0),
        (bool, True, True),
        (bool, False, False),
        (datetime, "2026-01-02T03:04:05Z", MOMENT),
        (Timestamp, "2026-01-02T03:04:05", MOMENT),
        (datetime, "Fri Jan 02 03:04:05 +0000 2026", MOMENT),
        (str | None, None, None),
        (int | None, "7", 7),
        (datetime | None, "2026-01-02T03:04:05Z", MOMENT),
        (list[str], ["a", 7], ["a", "7"]),
        (Sequence[int], ["7"], [7]),
        (tuple[str, ...], ["a"], ("a",)),
        (list[tuple[int, ...]], [[1], []], [(1,), ()]),
        (Mapping[str, int], {"a": "7"}, {"a": 7}),
        (dict[str, list[float]], {"a": [1]}, {"a": [1.0]}),
        (Any, {"a": [None]}, {"a": [None]}),
    ],
)
def test_a_value_fits_in_each_form_in_which_it_means_the_same(kind: Any, value: object, expected: object) -> None:
    assert repr(build(kind, value)) == repr(expected)


def test_the_zone_of_a_datetime_is_kept_and_missing_is_utc() -> None:
    forms = ["2026-01-01T23:34:05-03:30", "Thu Jan 01 23:34:05 -0330 2026"]
    assert [build(datetime, form) for form in forms] == [MOMENT, MOMENT]
    assert {build(datetime, form).tzinfo for form in forms} == {timezone(-timedelta(hours=3, minutes=30))}
    assert build(datetime, "2026-01-02").tzinfo is UTC


@pytest.mark.rule("POST-14")
@pytest.mark.parametrize(("number", "name"), [*enumerate(MONTHS, start=1)])
def test_the_dates_of_posts_have_the_names_of_months(number: int, name: str) -> None:
    assert build(datetime, f"Tue {name} 27 22:22:12 +0000 2019") == datetime(2019, number, 27, 22, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "noun", "values"),
    [
        (str, "a string", [None, True, 1.5, [], {}]),
        (ApprovalStatus, "a string", [None, 1.5]),
        (int, "an integer", [None, True, 1.5, "", "1.0", "1e3", " 7", "+7", "9" * 301, "\u0667", math.inf, []]),
        (float, "a number", [None, True, "", "half", "nan", "1_0", ".5", "1.", "1e9999", "9" * 301, "\u0667", []]),
        (float, "a number", ["1e999", math.nan, math.inf, 10**400, "." + "1" * 301, "0." + "1" * 301]),
        (bool, "a boolean", [None, 0, 1, "true", []]),
        (datetime, "a datetime", [None, 5, "", "yesterday", "2026-02-30T00:00:00Z", "Tue Foo 27 22:22:12 +0000 2019"]),
        (datetime, "a datetime", ["Tue Aug 32 22:22:12 +0000 2019", "Tue Aug 27 22:22:12 +0000 2019x"]),
        (Timestamp, "a datetime", [5, []]),
        (str | None, "a string", [True, []]),
        (int | float, "an integer or a number", [True, "x"]),
        (Path, "of its documented type", [5]),
    ],
)
def test_what_does_not_fit_is_refused_by_its_type(kind: Any, noun: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(Misfit) as caught:
            build(kind, value)
        assert str(caught.value) == f"the value must be {noun}", value


@pytest.mark.parametrize(
    ("kind", "values"), [(list[str], ["ab", None, {"a": 1}, 5]), (Mapping[str, int], ["ab", None, [], 5])]
)
def test_arrays_and_objects_are_never_made_of_something_else(kind: Any, values: list[object]) -> None:
    for value in values:
        with pytest.raises(Misfit):
            build(kind, value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": [1, 1.5, "x", null, true]}', {"a": [1, 1.5, "x", None, True]}),
        (b'"\\ud83d"', "\ud83d"),
        (b"1" * 4_300, int("1" * 4_300)),
        (b"1" * 4_301, "1" * 4_301),
        (b"-1e999", "-1e999"),
        (b"1e308", 1e308),
        (b"[NaN, Infinity, -Infinity]", ["NaN", "Infinity", "-Infinity"]),
        (b'{"a\xff": "M\xfcller"}', {"a\udcff": "M\udcfcller"}),
        (b'\xef\xbb\xbf"\xfc"', "\udcfc"),
        (b'"\xed\xa0\xbd"', "\ud83d"),
        ('"\u00fc"'.encode("utf-16"), "\u00fc"),
    ],
)
def test_json_is_decoded_whatever_its_numbers_and_its_characters_are(body: bytes, expected: object) -> None:
    assert repr(decode(body)) == repr(expected)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{'a': 1}"])
def test_what_is_not_json_is_not_decoded(body: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        decode(body)


@attrs.frozen(kw_only=True)
class Side(Record):
    length: int
    color: str | None = None


@attrs.frozen(kw_only=True)
class Square(Record):
    side: Side
    type: str = "SQUARE"


@attrs.frozen(kw_only=True)
class Circle(Record):
    radius: int
    type: str = "CIRCLE"


@attrs.frozen(kw_only=True)
class Drawing(Record):
    name: str
    shapes: Sequence[Square | Circle | Mapping[str, Any]] = ()
    first: Square | Circle | Mapping[str, Any] | None = None
    count: int | None = attrs.field(default=None, metadata=EXACT)
    ratio: float | None = None
    tags: list[str] = attrs.field(factory=list)
    computed: int = attrs.field(default=7, init=False)


SQUARE = {"type": "SQUARE", "side": {"length": 2}}
CIRCLE = {"type": "CIRCLE", "radius": 1}
OTHER = {"type": "TO_COME", "anything": [1]}


def test_the_type_of_an_object_decides_which_model_it_is() -> None:
    drawing = build(Drawing, {"name": "n", "shapes": [SQUARE, CIRCLE, OTHER, {}], "first": CIRCLE})
    assert drawing.shapes == [Square(side=Side(length=2)), Circle(radius=1), OTHER, {}]
    assert drawing.first == Circle(radius=1)
    assert (drawing.extra, drawing.computed) == ({}, 7)
    assert build(Drawing, {"name": "n", "first": None}) == Drawing(name="n")


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ({"type": "CIRCLE"}, "left as it came: Circle.radius is missing"),
        ({"type": "CIRCLE", "radius": "x"}, "left as it came: Circle.radius must be an integer"),
        ({"type": "SQUARE", "side": 5}, "left as it came: Square.side does not fit: Side must be an object"),
    ],
)
def test_an_object_that_does_not_fit_its_type_is_left_as_it_came(shape: dict[str, object], problem: str) -> None:
    drawing, left_out = Builder().build(Drawing, {"name": "n", "shapes": [shape, CIRCLE]})
    assert (drawing.shapes, left_out) == ([shape, Circle(radius=1)], (problem,))
    with pytest.raises(Misfit):
        Builder(strict=True).build(Drawing, {"name": "n", "shapes": [shape]})


@pytest.mark.parametrize("shape", [5, "SQUARE", [], None])
def test_an_element_that_is_no_object_makes_the_field_unreadable(shape: object) -> None:
    drawing, left_out = Builder().build(Drawing, {"name": "n", "shapes": [shape]})
    assert (drawing.shapes, drawing.extra) == ((), {"shapes": [shape]})
    assert left_out == ("Drawing.shapes does not fit: must be an object",)


@pytest.mark.parametrize(
    ("field", "came", "read"),
    [
        ("name", 7, "7"),
        ("name", "\ud800", "\ufffd"),
        ("ratio", "0.5", 0.5),
        ("tags", ["a", 7], ["a", "7"]),
    ],
)
def test_what_came_in_another_form_is_in_extra(field: str, came: object, read: object) -> None:
    drawing = build(Drawing, {"name": "n"} | {field: came})
    assert (getattr(drawing, field), drawing.extra) == (read, {field: came})


@pytest.mark.parametrize(
    ("field", "came"), [("ratio", 2), ("ratio", 0.5), ("count", 4), ("tags", ["a"]), ("first", None), ("name", "n")]
)
def test_what_came_as_documented_is_not_in_extra(field: str, came: object) -> None:
    assert build(Drawing, {"name": "n"} | {field: came}).extra == {}


@pytest.mark.parametrize("count", ["4", 4.0, True, "x"])
def test_an_exact_field_is_read_as_documented_or_makes_the_record_unreadable(count: object) -> None:
    with pytest.raises(Misfit):
        build(Drawing, {"name": "n", "count": count})


def test_an_optional_field_that_does_not_fit_has_its_default_and_is_told() -> None:
    drawing, left_out = Builder().build(Drawing, {"name": "n", "ratio": "half", "tags": "ab", "unknown": 1})
    assert (drawing.ratio, drawing.tags, drawing.extra) == (None, [], {"ratio": "half", "tags": "ab"})
    assert left_out == ("Drawing.ratio must be a number", "Drawing.tags does not fit: must be an array")


@attrs.frozen(kw_only=True)
class Deleted(Record):
    done: bool | None = True


def test_an_optional_field_that_does_not_fit_is_none_where_it_may_be() -> None:
    bodies: list[Any] = [{}, {"done": "false"}, {"done": None}, {"done": False}]
    read = [Builder().build(Deleted, body)[0].done for body in bodies]
    assert read == [True, None, None, False]


def test_null_is_the_default_of_an_optional_field_and_not_told() -> None:
    drawing = build(Drawing, {"name": "n", "tags": None, "shapes": None})
    assert (drawing.tags, drawing.shapes, drawing.extra) == ([], (), {"tags": None, "shapes": None})


def test_what_an_unreadable_part_left_out_is_not_told_twice() -> None:
    side = {"length": "long", "color": 1.5}
    drawing, left_out = Builder().build(Drawing, {"name": "n", "first": {"type": "SQUARE", "side": side}})
    assert drawing.first == {"type": "SQUARE", "side": side}
    assert left_out == ("left as it came: Square.side does not fit: Side.length must be an integer",)


def test_unknown_fields_are_kept_where_they_were() -> None:
    came = {"name": "n", "salt": 1, "_extra": 2, "computed": 3, "first": {**SQUARE, "side": {"length": 2, "pepper": 4}}}
    drawing, _ = Builder(keep_unknown=True).build(Drawing, came)
    assert drawing.extra == {"salt": 1, "_extra": 2, "computed": 3}
    assert drawing.computed == 7
    assert isinstance(drawing.first, Square)
    assert drawing.first.side.extra == {"pepper": 4}
    assert build(Drawing, came).extra == {}


@attrs.frozen(kw_only=True)
class Plain:
    """A caller's own model, without a place for what does not fit."""

    size: int
    name: str | None = None


def test_a_model_that_is_no_record_is_read_as_documented_or_not_at_all() -> None:
    assert build(Plain, {"size": 1, "other": 2}) == Plain(size=1)
    assert build(Plain, {"size": "1", "name": None}) == Plain(size=1)
    assert Builder(keep_unknown=True).build(Plain, {"size": 1, "other": 2}) == (Plain(size=1), ())
    with pytest.raises(Misfit):
        build(Plain, {"size": 1, "name": []})
