"""A sandbox on its own time, and a session that shares it."""

from tests.support.session_fixtures import clock, sandbox  # noqa: F401 - fixtures
