"""What the tests of a property share."""

from tests.support.properties import examples  # noqa: F401 - fixture
