from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.errors import InvalidArgument
from svc_async.money import from_micro, to_micro
from tests.support.errors import has


@pytest.mark.rule("GEN-13")
@pytest.mark.parametrize(
    ("amount", "micro"), [("12.50", 12_500_000), (3, 3_000_000), (Decimal("0.000001"), 1), ("-1.5", -1_500_000)]
)
def test_amounts_become_millionths(amount: Decimal | int | str, micro: int) -> None:
    assert to_micro(amount) == micro


@pytest.mark.usefixtures("examples")
@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_micro_amounts_survive_the_way_there_and_back(micro: int) -> None:
    assert to_micro(from_micro(micro)) == micro


@pytest.mark.parametrize(
    "amount",
    ["0.0000001", "1" + "0" * 99 + "1", "1." + "0" * 99 + "1", "twelve", "NaN", "Infinity", 1.5, True, None, b"1"],
)
def test_what_is_no_exact_amount_is_refused(amount: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="amount")):
        to_micro(amount)  # type: ignore[arg-type]  # what callers without types do


@pytest.mark.parametrize("micro", ["5", 1.5, 5.0, True, None, Decimal(5)])
def test_what_is_no_whole_number_of_millionths_is_refused(micro: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="micro")):
        from_micro(micro)  # type: ignore[arg-type]  # what callers without types do


def test_amounts_are_exact_whatever_precision_the_caller_works_in() -> None:
    with localcontext(prec=3):
        assert to_micro("12345.678901") == 12_345_678_901
        assert str(from_micro(12_345_678_901)) == "12345.678901"
