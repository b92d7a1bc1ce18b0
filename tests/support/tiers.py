"""Which cases of a function always run, and which run only with the long tests."""

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["keep_short"]


def keep_short(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a function, all but the first ones marked `long`.

    Args:
        count: how many of the first cases stay short.
        cases: a tuple of values each, or what `pytest.param` returns.
    """
    found = [case if hasattr(case, "marks") else pytest.param(*case) for case in cases]
    long = [pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.long)) for case in found[count:]]
    return [*found[:count], *long]
