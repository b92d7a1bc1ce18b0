"""The fake service and an audience of the sandbox, as fixtures."""

from tests.support.audiences import audience, sandbox, service, users  # noqa: F401 - fixtures
from tests.support.properties import examples  # noqa: F401 - fixture
