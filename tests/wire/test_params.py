from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.ads.accounts import IndustryType
from svc_async.errors import InvalidArgument
from svc_async.wire.checks import whole_hours
from svc_async.wire.params import Param, fill_path, query_string, quote, segment, timestamp, to_pairs, to_utc
from tests.support.errors import has

UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%")


@pytest.mark.rule("GEN-15")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a%20b"),
        ("it's $5: a+b, ~é", "it%27s%20%245%3A%20a%2Bb%2C%20~%C3%A9"),
        (True, "true"),
        (False, "false"),
        (200, "200"),
        (2**64 - 1, "18446744073709551615"),
        (["a", "b"], "a%2Cb"),
        ((1, 2), "1%2C2"),
        ([], ""),
        (IndustryType.RETAIL, "RETAIL"),
        ([IndustryType.RETAIL, IndustryType("NEW")], "RETAIL%2CNEW"),
        (datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), "2026-01-02T03%3A04%3A05Z"),
    ],
)
def test_values_are_written_the_way_the_service_reads_them(value: Param, text: str) -> None:
    assert to_pairs({"name": value}) == (("name", text),)


def test_none_is_not_given() -> None:
    assert to_pairs({"a": None, "b": ""}) == (("b", ""),)


@pytest.mark.usefixtures("examples")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoting_leaves_only_unreserved_characters_and_can_be_undone(text: str) -> None:
    assert set(quote(text)) <= UNRESERVED
    assert unquote(quote(text)) == text


@pytest.mark.rule("GEN-12")
def test_moments_of_other_zones_are_written_in_utc() -> None:
    assert timestamp(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))) == "2025-12-31T23:00:00Z"


@pytest.mark.parametrize("year", [1, 26, 999, 9999])
def test_years_have_four_digits(year: int) -> None:
    assert timestamp(datetime(year, 2, 3, 4, 5, 6, 7, tzinfo=UTC)) == f"{year:04}-02-03T04:05:06Z"


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1))),
    ],
)
def test_a_moment_whose_year_has_other_digits_in_utc_is_refused(moment: datetime) -> None:
    assert whole_hours("start_time")({"start_time": moment}) is None
    with pytest.raises(InvalidArgument, check=has(parameter="start_time")):
        to_pairs({"start_time": moment})


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1), ["a,b"], b"bytes", 1.5, {"a": 1}, date(2026, 1, 1), object(), [["a"], ["b,c"]], "\ud800"],  # noqa: DTZ001 - without a zone on purpose
)
def test_values_that_cannot_travel_are_refused_by_the_name_of_the_parameter(value: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="start_time")):
        to_pairs({"start_time": value})  # type: ignore[dict-item]  # what callers without types do


@pytest.mark.parametrize(
    ("name", "value", "parameter", "rule_ids"),
    [
        ("a", datetime(2026, 1, 1), "a", ("GEN-12",)),  # noqa: DTZ001 - without a zone on purpose
        ("a", ["x", "a,b"], "a", ()),
        ("a", b"bytes", "a", ()),
        ("a", [None], "a", ()),
        (
            "bid_amount_local_micro",
            Decimal("1.50"),
            "bid_amount_local_micro",
            ("GEN-13",),
        ),
        ("a", "\ud800", "a", ()),
        ("\ud800", "a", "params", ()),
        ("a", 2**64, "a", ()),
        ("a", [-(2**64)], "a", ()),
    ],
)
def test_an_error_names_what_is_wrong_and_the_rule_behind_it(
    name: str, value: Any, parameter: str, rule_ids: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter, rule_ids=rule_ids)):
        to_pairs({name: value})


@pytest.mark.rule("GEN-02")
@pytest.mark.parametrize(
    ("value", "rule_ids"),
    [
        (True, ()),
        (" ", ("GEN-02",)),
        ("..", ()),
        ("\ud800", ()),
        (2**64, ()),
    ],
)
def test_a_refused_id_is_told_with_its_rule(value: object, rule_ids: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="id", rule_ids=rule_ids)):
        segment("id", value)


def test_a_moment_is_named_by_its_parameter() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - without a zone on purpose
    for convert, name in ((timestamp, "timestamp"), (lambda moment: to_utc("a", moment), "a")):
        with pytest.raises(InvalidArgument, check=has(parameter=name)) as caught:
            convert(naive)
        assert caught.value.rule_ids == ("GEN-12",)


@pytest.mark.rule("GEN-02")
@pytest.mark.parametrize("bad", ["", " ", "a/b", "/", ".", "..", None, True, 1.5, b"a", "\ud800"])
def test_ids_that_would_change_the_path_are_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="account_id")):
        fill_path("/12/accounts/{account_id}", {"account_id": bad})


def test_ids_are_quoted() -> None:
    assert fill_path("/12/accounts/{a}/x/{b}", {"a": "é?", "b": 7}) == "/12/accounts/%C3%A9%3F/x/7"


@pytest.mark.usefixtures("examples")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=4))
def test_a_query_string_keeps_the_order(pairs: Sequence[tuple[str, int]]) -> None:
    quoted = [(name, str(value)) for name, value in pairs]
    assert query_string(quoted) == "&".join(f"{name}={value}" for name, value in pairs)
