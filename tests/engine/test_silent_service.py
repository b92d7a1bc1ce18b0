"""A service that stays silent on purpose: on a clock that jumps, the client's timeout ends the wait by itself."""

import asyncio

import pytest

from svc_async import Retries, Session, TimedOut
from svc_async.errors import Sent
from svc_async.sandbox import Fault, Sandbox, VirtualClock

POSTS = "*/post"
SILENCES = {
    "hang": Fault.hang(),
    "late, then hang": Fault.late(500, Fault.hang()),
    "latency": Fault.latency(90),
    "slow body": Fault.slow_body(90),
}


async def create_post(session: Session, sandbox: Sandbox) -> None:
    await session.account(sandbox.account_id).posts.create(as_user_id=int(sandbox.user_id), text="x")


@pytest.mark.parametrize("fault", SILENCES.values(), ids=SILENCES)
async def test_a_call_times_out_at_its_own_time(
    session: Session, sandbox: Sandbox, clock: VirtualClock, fault: Fault
) -> None:
    sandbox.faults.on("POST", POSTS).once().do(fault)
    with pytest.raises(TimedOut) as caught:
        await create_post(session, sandbox)
    assert (caught.value.sent, clock.monotonic()) == (Sent.MAYBE, 60.0)


async def test_a_silent_answer_does_not_hurry_other_calls(session: Session, sandbox: Sandbox) -> None:
    sandbox.faults.on("POST", POSTS).once().do(Fault.hang())
    silent = asyncio.create_task(create_post(session, sandbox))
    await sandbox.requests.wait()
    patient = session.but(retries=Retries.none())
    accounts = await asyncio.gather(*(patient.accounts.get(sandbox.account_id) for _ in range(20)))
    assert {account.id for account in accounts} == {sandbox.account_id}
    with pytest.raises(TimedOut):
        await silent


async def test_time_stands_still_again_after_the_client_has_left(
    session: Session, sandbox: Sandbox, clock: VirtualClock
) -> None:
    sandbox.faults.on("POST", POSTS).once().do(Fault.hang())
    silent = asyncio.create_task(create_post(session, sandbox))
    await sandbox.requests.wait()
    silent.cancel()
    await asyncio.wait([silent])
    async with clock.timeout(5):
        for _ in range(300):
            await asyncio.sleep(0)
    assert clock.monotonic() == 0.0


async def test_a_stream_that_stalls_is_opened_again(session: Session, sandbox: Sandbox, clock: VirtualClock) -> None:
    await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id)
    async with session.activity.stream() as stream:
        await sandbox.trigger("post.create", payload={"text": "first"})
        await anext(stream)
        sandbox.streams["activity"].stall()
        await sandbox.trigger("post.create", payload={"text": "second"})
        await anext(stream)
        assert stream.stats.stalls == 1
        assert clock.monotonic() >= 25
