import pytest

from tests.support.receivers import ENTRY_POINTS, EntryPoint


@pytest.fixture(params=sorted(ENTRY_POINTS))
def entry_point(request: pytest.FixtureRequest) -> EntryPoint:
    return ENTRY_POINTS[request.param]
