import pytest

from tests.support.receivers import DOORS, Door


@pytest.fixture(params=sorted(DOORS))
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]
