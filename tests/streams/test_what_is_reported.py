"""What a session reports of its streams."""

from svc_async import Session
from svc_async.monitoring import StreamLagEvent, StreamStateEvent
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock


async def test_a_stream_reports_its_connections_its_gaps_and_its_lag() -> None:
    events: list[object] = []
    clock = VirtualClock()
    async with (
        Sandbox(clock=clock, config=SandboxConfig(stream_recovery=True)) as sandbox,
        Session.sandbox(sandbox, on_event=events.append) as session,
    ):
        await session.activity.subscriptions.create(event_type="post.create", user_id=sandbox.user_id, tag="mine")
        async with session.activity.stream() as stream:
            for pause in (0.0, 0.5, 0.5):
                await clock.advance(seconds=pause)
                await sandbox.trigger("post.create", payload={"text": "ann"})
                await anext(stream)

    states = [(event.path, event.state) for event in events if isinstance(event, StreamStateEvent)]
    assert states == [("/2/activity/stream", state) for state in ("connecting", "open", "closed")]
    lags = [event for event in events if isinstance(event, StreamLagEvent)]
    assert [(lag.path, lag.waiting) for lag in lags] == [("/2/activity/stream", 0)] * 2, "at most one a second"
    assert all(lag.lag >= 0 for lag in lags)
    assert "ann" not in repr(events)
