import asyncio
import signal

import pytest

from svc_async.cli.exit_codes import Interrupted
from svc_async.cli.signals import run_until_stopped


async def test_the_first_signal_cancels_the_work_and_the_second_has_its_usual_effect() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        await run_until_stopped(work())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_a_signal_after_the_work_keeps_no_report_from_being_printed() -> None:
    async def work() -> str:
        return "done"

    assert await run_until_stopped(work()) == "done"
    signal.raise_signal(signal.SIGINT)
    for _ in range(10):  # the loop reads that a signal arrived
        await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
