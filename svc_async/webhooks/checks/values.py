"""Checks of single values."""

from datetime import timedelta
from numbers import Integral, Real

from svc_async.errors import InvalidArgument

__all__ = ["check_count", "check_duration", "check_function", "check_methods", "check_seconds"]


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Check a whole number.

    Raises:
        InvalidArgument: it is none, or less than allowed.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidArgument(name, "must be a whole number")
    if int(value) < least:
        raise InvalidArgument(name, f"must be at least {least}")


def check_seconds(name: str, value: object, *, is_zero_allowed: bool = True) -> None:
    """Check a number of seconds.

    Raises:
        InvalidArgument: it is none, or less than allowed.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidArgument(name, "must be a number of seconds")
    seconds = float(value)  # which may be NaN
    if is_zero_allowed and not seconds >= 0:
        raise InvalidArgument(name, "must be at least 0 seconds")
    if not is_zero_allowed and not seconds > 0:
        raise InvalidArgument(name, "must be greater than 0 seconds")


def check_duration(name: str, value: object) -> None:
    """Check that a duration is a timedelta.

    Raises:
        InvalidArgument: it is something else, such as a number of seconds.
    """
    if not isinstance(value, timedelta):
        raise InvalidArgument(name, "must be a timedelta, such as timedelta(minutes=1)")


def check_function(name: str, value: object, *, form: str) -> None:
    """Check a function.

    Raises:
        InvalidArgument: it cannot be called.
    """
    if not callable(value):
        raise InvalidArgument(name, f"must be a function, {form}")


def check_methods(name: str, value: object, *, methods: tuple[str, ...], rule: str) -> None:
    """Check that a value, which is no class, has methods.

    Raises:
        InvalidArgument: it lacks one, as does the path of a file.
    """
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidArgument(name, rule)
