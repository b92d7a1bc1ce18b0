"""Remembers the last keys that went by."""

import attrs

__all__ = ["Seen"]


@attrs.define
class Seen:
    """A bounded set of keys: the oldest is forgotten first.

    Args:
        size: the most keys that are remembered; 0 remembers none.
    """

    size: int
    _keys: dict[str, None] = attrs.field(factory=dict, init=False)

    def add(self, key: str) -> bool:
        """Remember a key, and tell whether it is new."""
        if key in self._keys:
            return False
        if self.size:
            self._keys[key] = None
            if len(self._keys) > self.size:
                del self._keys[next(iter(self._keys))]
        return True
