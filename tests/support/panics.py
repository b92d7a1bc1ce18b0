"""An exception that is no `Exception`, such as extension modules in Rust raise for a panic."""

__all__ = ["Panic"]


class Panic(BaseException):
    """What `except Exception` does not catch."""
