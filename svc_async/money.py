"""Decimal amounts and the service's `*_local_micro` integers (contract GEN-13)."""

from decimal import Context, Decimal, Inexact

from svc_async.errors import InvalidArgument
from svc_async.value_rules import is_whole

__all__ = ["MICRO", "from_micro", "to_micro"]

MICRO = 1_000_000
"""Micros in one unit of the funding instrument's currency (contract limit `micro.unit`)."""

_EXACT = Context(prec=100, traps=[Inexact])
"""Never rounds, whatever the decimal context of the caller."""


def to_micro(amount: Decimal | int | str) -> int:
    """Convert an amount in currency units to a `*_local_micro` value.

    Args:
        amount: units of the funding instrument's currency, such as `"12.50"`. Floats are rejected, because they
            round silently.

    Raises:
        InvalidArgument: the amount is not a finite decimal number or has more than 6 decimal places.
    """
    try:
        return int(_EXACT.to_integral_exact(_EXACT.multiply(_parse_decimal(amount), MICRO)))
    except Inexact:
        raise InvalidArgument("amount", "must have at most 6 decimal places", rule_ids=("GEN-13",)) from None


def from_micro(micro: int) -> Decimal:
    """Convert a `*_local_micro` value to currency units, exactly.

    Raises:
        InvalidArgument: it is no int.
    """
    if not is_whole(micro):
        raise InvalidArgument("micro", "must be a whole number", rule_ids=("GEN-13",))
    return Decimal(micro).scaleb(-6, _EXACT)


def _parse_decimal(amount: Decimal | int | str) -> Decimal:
    # bool is an int, and Decimal accepts a float: both are mistakes here.
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        raise InvalidArgument("amount", "must be a Decimal, an int or a string of digits, never a float")
    try:
        value = Decimal(amount)
    except ArithmeticError:
        raise InvalidArgument("amount", "must be a decimal number") from None
    if not value.is_finite():
        raise InvalidArgument("amount", "must be finite")
    return value
