"""A sandbox on its own time, a session that shares it, and a peer that answers with bytes."""

from tests.support.raw_peer import peer, transport  # noqa: F401 - fixtures
from tests.support.scripted_server import service  # noqa: F401 - fixture
from tests.support.session_fixtures import clock, sandbox, session  # noqa: F401 - fixtures
