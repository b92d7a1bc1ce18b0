"""A sandbox on its own time, a session with it, and spans and metrics that stay in memory."""

import pytest

from tests.support.session_fixtures import clock, sandbox, session  # noqa: F401 - fixtures
from tests.support.telemetry import Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()
