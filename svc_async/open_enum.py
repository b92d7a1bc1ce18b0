"""Enums that keep unknown values."""

from enum import StrEnum
from typing import Any, Self

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

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON schema of pydantic, in which the values are examples: a client must not refuse others."""
        described: dict[str, Any] = handler.resolve_ref_schema(handler(schema))
        described["examples"] = described.pop("enum", None) or [each.value for each in cls]
        described.pop("const", None)  # what some versions of pydantic write for an enum of one value
        return described

    def __reduce_ex__(self, proto: object) -> tuple[type[Self], tuple[str]]:
        # Some patch releases of Python 3.11 pickle members by name, which unknown members do not have.
        return type(self), (self.value,)

    @property
    def is_known(self) -> bool:
        """Whether this SDK lists the value."""
        return self.value in type(self)._value2member_map_
