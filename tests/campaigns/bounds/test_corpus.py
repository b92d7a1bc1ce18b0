"""What the fuzzer begins with, and what it has found, is read or refused within its bounds."""

import pytest

from tests.campaigns.fuzz.oracle import CORPUS, find_faults
from tests.campaigns.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_read_or_refused_in_two_seconds(target: str) -> None:
    assert find_faults(target, sorted((CORPUS / target).iterdir())) == {}
