import asyncio
import gc
import time
import weakref
from datetime import UTC
from math import floor
from typing import Any

import pytest

from svc_async.clock import SystemClock, read_boottime
from svc_async.sandbox import VirtualClock

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


async def test_a_block_whose_time_is_over_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with SystemClock().timeout(0):
            await asyncio.Event().wait()


async def test_a_block_that_is_cancelled_from_outside_is_cancelled() -> None:
    async def wait() -> None:
        async with SystemClock().timeout(HOUR):
            await asyncio.Event().wait()

    waiting = asyncio.ensure_future(wait())
    await asyncio.wait([waiting], timeout=0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_block_that_is_cancelled_when_its_time_is_over_is_cancelled() -> None:
    async def wait() -> None:
        async with SystemClock().timeout(0) as block:
            assert block.when() is not None
            try:
                await asyncio.Event().wait()
            finally:
                waiting.cancel()

    waiting = asyncio.ensure_future(wait())

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_the_outer_of_two_blocks_ends_both() -> None:
    inner = SystemClock().timeout(HOUR)

    async def wait() -> None:
        async with SystemClock().timeout(0), inner:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    assert inner.when() is None


async def test_blocks_of_one_length_end_each_at_its_time_and_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began, passed, timers = floor(loop.time()), 0.0, 0  # whole seconds, whose sums are exact
    call_at = loop.call_at

    def count(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += 1
        return call_at(*args, **kwargs)

    monkeypatch.setattr(loop, "time", lambda: began + passed)
    monkeypatch.setattr(loop, "call_at", count)
    ended: list[float] = []

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with SystemClock().timeout(10 * HOUR):
                await asyncio.Event().wait()
        ended.append(passed)

    blocks: list[asyncio.Task[None]] = []
    for hours in range(3):
        passed = hours * HOUR
        blocks.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(0)
    for _ in range(100):
        async with SystemClock().timeout(10 * HOUR):
            pass
    assert timers == 1
    for hours in range(9, 13):
        passed = hours * HOUR
        for _ in range(4):
            await asyncio.sleep(0)

    assert ended == [10 * HOUR, 11 * HOUR, 12 * HOUR]
    assert timers == 3


async def test_a_block_outside_of_a_task_is_an_error() -> None:
    problems: list[RuntimeError] = []

    def enter() -> None:
        try:
            SystemClock().timeout(HOUR).__aenter__().send(None)
        except RuntimeError as error:
            problems.append(error)

    asyncio.get_running_loop().call_soon(enter)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert len(problems) == 1


def test_a_timer_of_a_closed_loop_is_forgotten() -> None:
    async def open_a_block() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with SystemClock().timeout(HOUR):
            return weakref.ref(asyncio.get_running_loop())

    first = asyncio.run(open_a_block())
    asyncio.run(open_a_block())
    gc.collect()

    assert first() is None


def test_the_time_of_the_system_counts_suspension() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= read_boottime(SystemClock()) <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_clock_without_such_a_time_has_its_monotonic_one() -> None:
    clock = VirtualClock()
    assert read_boottime(clock) == clock.monotonic()


def test_a_system_clock_whose_monotonic_time_is_another_has_no_second_time() -> None:
    class Simulated(SystemClock):
        def monotonic(self) -> float:
            return 7.0

    assert read_boottime(Simulated()) == 7.0
