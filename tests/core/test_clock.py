import asyncio
from datetime import UTC

from svc_async.clock import SystemClock

HOUR = 3600.0


async def test_the_machine_tells_the_time_in_utc() -> None:
    clock = SystemClock()

    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


async def test_a_sleep_lasts_until_it_is_over_or_cancelled() -> None:
    sleeper = asyncio.ensure_future(SystemClock().sleep(HOUR))
    await asyncio.wait([sleeper], timeout=0)

    assert not sleeper.done()
    sleeper.cancel()


async def test_a_callback_is_called_once_and_can_be_called_off() -> None:
    called = asyncio.Event()
    SystemClock().call_later(0, called.set)
    await called.wait()
    called.clear()
    late = SystemClock().call_later(HOUR, called.set)
    soon = asyncio.Event()
    SystemClock().call_later(0, soon.set)
    await soon.wait()
    late.cancel()

    assert not called.is_set()


async def test_a_block_ends_when_it_has_taken_too_long() -> None:
    now = asyncio.get_running_loop().time()
    async with SystemClock().timeout(HOUR) as block:
        assert block.when() is not None
        assert now + HOUR <= (block.when() or 0) < now + 2 * HOUR
    async with SystemClock().timeout(None) as block:
        assert block.when() is None
