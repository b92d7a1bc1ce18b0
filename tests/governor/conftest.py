import pytest

from tests.support.clock import DrivenClock
from tests.support.properties import examples  # noqa: F401 - fixture


@pytest.fixture
def clock() -> DrivenClock:
    return DrivenClock()
