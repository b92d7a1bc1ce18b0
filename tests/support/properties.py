"""A fixture of properties that hypothesis checks: few examples, and many in `nox -s long`."""

import pytest
from hypothesis import settings

__all__ = ["FEWER", "examples"]

FEWER = pytest.mark.parametrize("examples", [3, pytest.param(50, marks=pytest.mark.long)], indirect=True)
"""Has a property whose examples take long checked on three of them, and in `nox -s long` on fifty."""


@pytest.fixture(params=[10, pytest.param(100, marks=pytest.mark.long)])
def examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many examples hypothesis makes of a test: it reads the settings of the function when the test begins."""
    monkeypatch.setattr(request.function, "_hypothesis_internal_use_settings", settings(max_examples=request.param))
    number: int = request.param
    return number
