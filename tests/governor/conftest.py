import pytest

from tests.support.clock import DrivenClock


@pytest.fixture
def clock() -> DrivenClock:
    return DrivenClock()
