"""How controls take a protection away from a process."""

from typing import Any

__all__ = ["change"]


def change(owner: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or a module in this process.

    Raises:
        AttributeError: it has none of this name; a control that changes nothing would prove nothing.
    """
    getattr(owner, name)
    setattr(owner, name, value)
