"""What tests say about an error: its fields and the places that it names, never its wording."""

import re
from collections.abc import Callable

Check = Callable[[BaseException], bool]
"""What `pytest.raises(..., check=)` takes."""


def has(**fields: object) -> Check:
    """Return a check for `pytest.raises(..., check=)`: the error has these fields."""

    def check(error: BaseException) -> bool:
        found = {name: getattr(error, name, None) for name in fields}
        assert found == fields
        return True

    return check


def because(kind: type[BaseException] | tuple[type[BaseException], ...], **fields: object) -> Check:
    """Return a check like `has`: the cause of the error is of a kind and has these fields."""

    def check(error: BaseException) -> bool:
        assert isinstance(error.__cause__, kind)
        return has(**fields)(error.__cause__)

    return check


def at(**places: int | None) -> Check:
    """Return a check like `has`: the message names these places, such as `line=3`; None if it names no such place."""

    def check(error: BaseException) -> bool:
        assert {name: find_place(error, name) for name in places} == places
        return True

    return check


def find_place(error: BaseException, name: str) -> int | None:
    """Return the number of the line or row that a message names, which is in no field."""
    found = re.search(rf"\b{name} (\d+)", str(error))
    return int(found[1]) if found else None
