"""What a session reports of the rows of its jobs."""

import asyncio

from svc_async import Session
from svc_async.monitoring import LimitWaitEvent, RowsEvent
from svc_async.sandbox import Fault, Sandbox, VirtualClock

PATH = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"


def make_rows(count: int) -> list[dict[str, str]]:
    return [{"email": f"person{number}@example.test"} for number in range(count)]


async def test_the_rows_of_a_job_add_up_by_outcome() -> None:
    events: list[object] = []
    rows = [*make_rows(6_000), {"email": "nobody"}, make_rows(1)[0]]
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox, Session.sandbox(sandbox) as session:
        session.subscribe(events.append)
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.upload(rows)

    settled = [event for event in events if isinstance(event, RowsEvent)]
    assert len(settled) >= report.requests
    assert (sum(each.accepted for each in settled), sum(each.failed for each in settled)) == (report.accepted, 1)
    assert sum(each.coalesced for each in settled) == report.coalesced
    assert sum(each.requests for each in settled) == report.requests
    assert {(each.path, each.account) for each in settled} == {(PATH, sandbox.account_id)}
    assert all(each.priority == "bulk" for each in events if isinstance(each, LimitWaitEvent))
    assert "person" not in repr(events)


async def test_rows_are_in_doubt_until_they_are_settled_or_the_job_ends() -> None:
    events: list[RowsEvent] = []
    async with Sandbox(clock=VirtualClock(mode="jump")) as sandbox, Session.sandbox(sandbox) as session:
        session.subscribe(lambda event: events.append(event) if isinstance(event, RowsEvent) else None)
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        sandbox.faults.on("POST", "*/users").once().do(Fault.drop_connection(), stage="after")
        assert (await users.upload(make_rows(10))).complete
        assert [each.in_doubt for each in events] == [10, 0]
        assert [each.accepted for each in events] == [0, 10]

        events.clear()
        sandbox.faults.on("POST", "*/users").once().do(Fault.drop_connection())
        job = asyncio.ensure_future(users.upload(make_rows(10)))
        session.subscribe(lambda _: job.cancel() if events and events[-1].in_doubt else None)
        await asyncio.wait([job])

    assert job.cancelled()
    assert [each.in_doubt for each in events] == [10, 0]
    assert [each.in_doubt_change for each in events] == [10, -10]
