"""Many calls at once: those that go in time, and what the others are told."""

import asyncio
from datetime import timedelta

import pytest

from svc_async import Session, WouldWaitTooLong
from svc_async.sandbox import Sandbox, VirtualClock


@pytest.mark.long("its law is about many calls")
async def test_of_many_reads_at_once_those_whose_turn_is_too_late_are_told_after_the_first_answer(
    clock: VirtualClock, sandbox: Sandbox, session: Session
) -> None:
    began, today = clock.monotonic(), clock.now()
    told_at: list[float] = []
    turns: list[timedelta] = []

    async def read() -> bool:
        try:
            await session.account(sandbox.account_id).cards.list().collect()
        except WouldWaitTooLong as error:
            told_at.append(clock.monotonic() - began)
            turns.append(error.until - today)
            return False
        return True

    read_in_time = await asyncio.gather(*(read() for _ in range(180)))

    step = 900 / (2_000 * 0.97)
    assert sum(read_in_time) == 20 + int(60 / step), "a hundredth at once and the others at the pace"
    assert clock.monotonic() - began <= 60
    assert max(told_at) < 1
    assert turns == sorted(set(turns))
    assert timedelta(seconds=60) < turns[0] < turns[-1] < timedelta(seconds=180 * step)
