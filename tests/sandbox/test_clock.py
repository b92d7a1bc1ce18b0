import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from svc_async.sandbox import Fault, Sandbox, SystemClock, VirtualClock, WrongArgument
from tests.support.errors import has
from tests.support.raw_client import open_raw_client

START = datetime(2026, 6, 10, 12, tzinfo=UTC)


def test_virtual_time_does_not_move_by_itself() -> None:
    clock = VirtualClock("2026-06-10T14:00:00+02:00")
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    assert clock.now() == START


@pytest.mark.parametrize("start", ["2026-06-10T12:00:00", "noon", 1_781_092_800])
def test_a_start_needs_a_time_zone(start: Any) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="start")):
        VirtualClock(start)


def test_a_clock_has_a_known_mode() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="mode")):
        VirtualClock(mode="Jump")  # type: ignore[arg-type] # on purpose


async def test_advance_moves_both_readings() -> None:
    clock = VirtualClock()
    await clock.advance(hours=1, minutes=2, seconds=3.5)
    assert clock.now() == START + timedelta(hours=1, minutes=2, seconds=3.5)
    assert clock.monotonic() == 3723.5


async def test_time_does_not_run_backwards() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="seconds")):
        await VirtualClock().advance(seconds=-1)


async def test_timers_run_in_the_order_of_time_then_of_asking() -> None:
    clock = VirtualClock()
    ran: list[tuple[str, float]] = []
    for name, delay in (("c", 2), ("a", 1), ("b", 1), ("far", 9)):
        clock.call_later(delay, partial(lambda name: ran.append((name, clock.monotonic())), name))
    await clock.advance(seconds=5)
    assert ran == [("a", 1.0), ("b", 1.0), ("c", 2.0)]


async def test_what_a_timer_starts_is_in_line_before_the_next_one() -> None:
    clock = VirtualClock()
    ran: list[tuple[str, float]] = []

    async def sleep_twice() -> None:
        for _ in range(2):
            await clock.sleep(1)
            ran.append(("sleeper", clock.monotonic()))

    clock.call_later(3, lambda: ran.append(("late", clock.monotonic())))
    task = asyncio.create_task(sleep_twice())
    await clock.advance(seconds=10)
    assert ran == [("sleeper", 1.0), ("sleeper", 2.0), ("late", 3.0)]
    await task


async def test_a_cancelled_timer_never_runs() -> None:
    clock = VirtualClock()
    ran: list[int] = []
    timers = [clock.call_later(1, partial(ran.append, n)) for n in range(1000)]
    for timer in timers[1:]:
        timer.cancel()
        timer.cancel()
    await clock.advance(seconds=2)
    timers[0].cancel()
    assert ran == [0]


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    clock = VirtualClock(mode="jump")
    task = asyncio.create_task(clock.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with clock.timeout(30):
        for _ in range(100):
            await asyncio.sleep(0)
    assert clock.monotonic() == 0.0


async def test_a_timeout_fires_when_time_passes_it() -> None:
    clock = VirtualClock()

    async def wait() -> None:
        async with clock.timeout(30):
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    await clock.advance(seconds=29)
    assert not task.done()
    await clock.advance(seconds=1)
    with pytest.raises(TimeoutError):
        await task


async def test_a_block_that_was_left_in_time_is_not_cancelled_later() -> None:
    clock = VirtualClock()
    async with clock.timeout(1) as block:
        pass
    async with clock.timeout(None):
        await clock.advance(seconds=5)
    assert not block.expired()


async def test_nested_timeouts_fire_the_inner_one_only() -> None:
    clock = VirtualClock()
    seen: list[str] = []

    async def wait() -> None:
        async with clock.timeout(10):
            try:
                async with clock.timeout(2):
                    await asyncio.get_running_loop().create_future()
            except TimeoutError:
                seen.append("inner")

    task = asyncio.create_task(wait())
    await clock.advance(seconds=60)
    await task
    assert seen == ["inner"]


async def test_a_timeout_alone_never_moves_time() -> None:
    clock = VirtualClock(mode="jump")
    async with clock.timeout(5):
        for _ in range(200):
            await asyncio.sleep(0)
    assert clock.monotonic() == 0.0


async def test_jumps_go_from_sleeper_to_sleeper_in_order() -> None:
    clock = VirtualClock(mode="jump")
    woke: list[tuple[int, float]] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woke.append((seconds, clock.monotonic()))
        if seconds == 10:
            await sleeper(5)

    await asyncio.gather(*(sleeper(seconds) for seconds in (60, 10, 30)))
    assert woke == [(10, 10.0), (5, 15.0), (30, 30.0), (60, 60.0)]


async def test_a_call_later_is_jumped_to() -> None:
    clock = VirtualClock(mode="jump")
    called = asyncio.Event()
    clock.call_later(900, called.set)
    await called.wait()
    assert clock.monotonic() == 900.0


async def test_a_jump_past_a_timeout_fires_it_at_its_own_time() -> None:
    clock = VirtualClock(mode="jump")
    failed_at: list[float] = []

    async def wait_for_timeout() -> None:
        try:
            async with clock.timeout(30):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            failed_at.append(clock.monotonic())

    await asyncio.gather(wait_for_timeout(), clock.sleep(60))
    assert failed_at == [30.0]


async def test_time_that_is_held_does_not_jump() -> None:
    clock = VirtualClock(mode="jump")
    with clock.hold():  # what the server does from the first byte of a request to the last of the answer
        sleeper = asyncio.create_task(clock.sleep(60))
        for _ in range(300):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0.0
    await sleeper
    assert clock.monotonic() == 60.0


@pytest.mark.long("reading the body has to take more turns of the event loop than make it idle")
async def test_time_is_held_while_an_exchange_is_under_way() -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        sleeper = asyncio.create_task(clock.sleep(60))
        body = b'[{"operation_type":"Update","params":{"users":[' + b'{"partner_user_id":["x"]},' * 150_000
        async with clock.timeout(1):
            got, _ = await asyncio.gather(raw.send_users(body + b'{"email":[1]}]}}]'), asyncio.sleep(0))
        assert got.status == 400
        await sleeper


async def test_a_latency_passes_by_itself_and_in_line_with_other_sleepers() -> None:
    clock = VirtualClock(mode="jump")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        sandbox.faults.on("GET").once().do(Fault.latency(40))
        path = f"{raw.account}/line_item_curated_categories"

        async def slow() -> float:
            await raw("GET", path)
            return clock.monotonic()

        async def sleeper() -> float:
            await sandbox.requests.wait()
            await clock.sleep(10)
            return clock.monotonic()

        assert tuple(await asyncio.gather(slow(), sleeper())) == (40.0, 10.0)


async def test_the_system_clock_is_the_machine_s() -> None:
    clock = SystemClock()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.monotonic() <= clock.monotonic()
    called = asyncio.Event()
    clock.call_later(0, called.set)
    async with clock.timeout(10):
        await called.wait()
        await clock.sleep(0)


async def test_advance_waits_for_a_job_until_it_is_done_or_sleeps() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []

    async def job() -> None:
        await asyncio.to_thread(sum, range(500_000))
        seen.append(("worked", clock.monotonic()))
        await asyncio.gather(clock.sleep(5), clock.sleep(7))
        await asyncio.to_thread(sum, range(500_000))
        seen.append(("worked", clock.monotonic()))

    clock.call_later(1, lambda: clock.start(job()))
    clock.call_later(1, lambda: seen.append(("timer", clock.monotonic())))
    await clock.advance(seconds=20)
    assert seen == [("worked", 1.0), ("timer", 1.0), ("worked", 8.0)]


@pytest.mark.usefixtures("little_patience")
async def test_a_job_that_waits_for_nothing_known_holds_time_up_for_a_moment_only() -> None:
    clock = VirtualClock()
    timed_out: list[float] = []

    async def job() -> None:
        try:
            async with clock.timeout(10):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            timed_out.append(clock.monotonic())

    task = clock.start(job())
    await clock.advance(seconds=60)
    assert timed_out == [10.0]
    await task


async def test_a_job_may_begin_another_and_wait_for_it() -> None:
    clock = VirtualClock()
    seen: list[str] = []

    async def inner() -> None:
        await asyncio.to_thread(sum, range(500_000))
        seen.append("inner")

    async def outer() -> None:
        clock.start(inner())
        await clock.settle()
        assert len(clock.busy) == 1  # itself; time has not given it up
        seen.append("outer")

    await clock.start(outer())
    assert seen == ["inner", "outer"]


async def test_a_cancelled_job_holds_nothing_up() -> None:
    clock = VirtualClock()
    task = clock.start(clock.sleep(60))
    await clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await clock.advance(hours=1)
    assert not clock.busy


async def test_time_does_not_jump_while_a_job_works_nor_for_what_does_not_move_it() -> None:
    clock = VirtualClock(mode="jump")
    woke: list[float] = []
    rang: list[float] = []
    clock.call_later(30, lambda: rang.append(clock.monotonic()), moves_time=False)

    async def job() -> None:
        await asyncio.to_thread(sum, range(500_000))
        woke.append(clock.monotonic())
        await clock.sleep(20)
        woke.append(clock.monotonic())

    await asyncio.gather(clock.start(job()), clock.sleep(10))
    assert (woke, rang) == ([0.0, 20.0], [])
    await clock.sleep(15)
    assert rang == [30.0]
    for _ in range(300):
        await asyncio.sleep(0)
    assert clock.monotonic() == 35.0


async def test_on_the_machine_s_clock_a_job_is_a_task() -> None:
    clock = SystemClock()
    done = asyncio.Event()

    async def job() -> int:
        done.set()
        return 7

    task = clock.start(job())
    await clock.settle()
    assert (done.is_set(), await task) == (True, 7)
