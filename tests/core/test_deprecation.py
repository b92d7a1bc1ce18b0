"""What is deprecated works, and says so once for each line that uses it."""

import inspect
import sys
import warnings
from pathlib import Path

import attrs
import pytest

import svc_async
from svc_async.deprecation import SvcDeprecationWarning, deprecate

MESSAGE = "it goes away in 0.9: use other"


@deprecate(MESSAGE)
def add(left: int, *, right: int) -> int:
    """Return the sum."""
    return left + right


@deprecate(MESSAGE)
async def fetch() -> str:
    return "answer"


@deprecate(MESSAGE)
@attrs.frozen
class Old:
    value: int


@attrs.frozen
class Newer(Old):
    pass


class Service:
    @deprecate(MESSAGE)
    def call(self) -> str:
        return "called"


def test_a_function_works_and_warns_at_the_line_that_calls_it() -> None:
    with pytest.warns(SvcDeprecationWarning, match=MESSAGE) as caught:
        assert add(1, right=2) == 3
    assert Path(caught[0].filename) == Path(__file__)
    assert inspect.getdoc(add) == "Return the sum."


def test_a_method_works() -> None:
    with pytest.warns(SvcDeprecationWarning, match=MESSAGE):
        assert Service().call() == "called"


async def test_a_coroutine_function_warns_where_it_is_called() -> None:
    with pytest.warns(SvcDeprecationWarning, match=MESSAGE) as caught:
        waiting = fetch()
    assert Path(caught[0].filename) == Path(__file__)
    assert await waiting == "answer"
    assert inspect.iscoroutinefunction(fetch) or sys.version_info < (3, 12)


def test_a_class_warns_and_its_subclasses_do_not() -> None:
    with pytest.warns(SvcDeprecationWarning, match=MESSAGE):
        assert Old(1) == Old(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Newer(1).value == 1


def test_tests_of_users_can_make_it_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", svc_async.SvcDeprecationWarning)
        with pytest.raises(DeprecationWarning):
            add(1, right=1)
