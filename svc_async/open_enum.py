"""Enums that keep unknown values."""

from enum import StrEnum
from typing import Self

__all__ = ["OpenEnum"]


class OpenEnum(StrEnum):
    """A string enum whose values the service may extend at any time.

    An unknown value becomes a member with that value and `is_known` False, instead of an error; two such members are
    equal if their values are.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __reduce_ex__(self, proto: object) -> tuple[type[Self], tuple[str]]:
        # Some patch releases of Python 3.11 pickle members by name, which unknown members do not have.
        return type(self), (self.value,)

    @property
    def is_known(self) -> bool:
        """Whether this SDK lists the value."""
        return self.value in type(self)._value2member_map_
