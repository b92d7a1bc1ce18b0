"""What tests say about an error: its fields, never its wording."""

from collections.abc import Callable


def has(**fields: object) -> Callable[[BaseException], bool]:
    """Return a check for `pytest.raises(..., check=)`: the error has these fields."""

    def check(error: BaseException) -> bool:
        found = {name: getattr(error, name, None) for name in fields}
        assert found == fields
        return True

    return check
