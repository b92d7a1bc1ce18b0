"""Texts that stand for no value in a source, such as `n/a`."""

from collections.abc import Collection, Sequence
from typing import Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.value_rules import TEXTS

__all__ = ["NO_EMPTY_VALUES", "EmptyValues"]


@attrs.frozen
class EmptyValues:
    """Texts that stand for no value, whatever their case and the spaces around them."""

    _texts: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Collection[str]) -> "EmptyValues":
        """Parse the texts of a caller.

        Raises:
            InvalidArgument: they are not several texts.
        """
        if not TEXTS.accepts(texts):
            raise InvalidArgument("empty", "must be a list of texts, such as n/a")
        return cls(frozenset(map(_normalize, texts)))

    @property
    def texts(self) -> Sequence[str]:
        """The texts, in an order that depends on nothing else."""
        return sorted(self._texts)

    def clear(self, value: Any) -> Any:
        """Return a value, or none if it is one of the texts; of a list those elements are left out."""
        if isinstance(value, str):
            return "" if _normalize(value) in self._texts else value
        if isinstance(value, list):
            return [each for each in value if not (isinstance(each, str) and _normalize(each) in self._texts)]
        return value

    def clear_all(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a column without these texts."""
        return [self.clear(value) for value in values] if self._texts else values


def _normalize(text: str) -> str:
    return text.strip().casefold()


NO_EMPTY_VALUES = EmptyValues()
