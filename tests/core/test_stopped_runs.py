"""How a run of the tests is stopped."""

import signal

import pytest


@pytest.mark.parametrize("_", range(2))
def test_sigterm_ends_the_run_as_ctrl_c_does_whatever_an_earlier_test_has_set(_: int) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
