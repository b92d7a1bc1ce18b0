"""The keys of recent events, to recognise duplicates; no I/O."""

import attrs

__all__ = ["RecentKeys"]


@attrs.define
class RecentKeys:
    """A bounded set of keys that evicts the oldest first.

    Args:
        size: the maximum number of keys; 0 stores none.
    """

    size: int
    _keys: dict[str, None] = attrs.field(factory=dict, init=False)

    def add(self, key: str) -> bool:
        """Store a key and return whether it is new."""
        if key in self._keys:
            return False
        if self.size:
            self._keys[key] = None
            if len(self._keys) > self.size:
                del self._keys[next(iter(self._keys))]
        return True
