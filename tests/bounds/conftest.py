from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: `nox -s bounds` runs them, and the default run does not."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("bounds")
