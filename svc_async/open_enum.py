"""Enums that keep the values they do not know."""

from enum import StrEnum
from typing import Self

__all__ = ["OpenEnum"]


class OpenEnum(StrEnum):
    """A string enum for value sets that the service may extend at any time.

    Reading an unknown value gives a member that carries it (`is_known` is False) instead of an error; two such
    members are equal when their values are.
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
        # Some patch releases of Python 3.11 pickle members by name, which an unknown one does not have.
        return type(self), (self.value,)

    @property
    def is_known(self) -> bool:
        """Whether this SDK lists the value."""
        return self.value in type(self)._value2member_map_
