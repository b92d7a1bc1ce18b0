"""Prints the events of a stream as they come, until it is stopped."""

import asyncio
import json
from typing import Literal

from svc_async.cli.console import complain, stderr, stdout
from svc_async.cli.exit_codes import Exit, explain
from svc_async.cli.sessions import session_of
from svc_async.cli.signals import Interrupted, until_stopped
from svc_async.events.models import Event
from svc_async.session import Session
from svc_async.streams.recovery import Gap, GapRecovery
from svc_async.streams.states import MalformedLine, StateChange, StreamState
from svc_async.streams.stream import EventStream
from svc_async.wire.route import Surface

__all__ = ["Name", "run"]

Name = Literal["activity", "filtered"]


def run(name: Name, profile: str | None, *, as_json: bool) -> int:
    """Print events, and give the exit code: 0 when it is stopped by Ctrl-C or SIGTERM, its usual ends."""
    try:
        asyncio.run(_tail(name, profile, as_json=as_json))
    except Interrupted:
        stderr().print("The stream is closed.")
    return Exit.DONE


async def _tail(name: Name, profile: str | None, *, as_json: bool) -> None:
    async with session_of(profile, Surface.BASE) as session:
        await until_stopped(_printed(_stream(session, name), as_json=as_json))


def _stream(session: Session, name: Name) -> EventStream:
    product = session.activity if name == "activity" else session.filtered_stream
    return product.stream(on_state=_tell_state, on_gap=_tell_gap, on_malformed=_tell_malformed)


async def _printed(stream: EventStream, *, as_json: bool) -> None:
    written, console = _object if as_json else _line, stdout()
    async with stream:
        async for event in stream:
            console.print(written(event))
            console.file.flush()


def _object(event: Event) -> str:
    return json.dumps(dict(event.raw))


def _line(event: Event) -> str:
    text = f"{event.event_type:<26} {event.user_id or '-':<20} {event.key}"
    return "".join(letter if letter.isprintable() else " " for letter in text)  # a terminal obeys the others


def _tell_state(change: StateChange) -> None:
    if change.state is StreamState.OPEN:
        stderr().print("The stream is open. Ctrl-C ends it.")
    elif change.wait is not None and change.error is not None:
        complain(f"not connected: {explain(change.error)}; again in {change.wait:.3g} s")


def _tell_gap(gap: Gap) -> None:
    if gap.recovery is GapRecovery.NONE:
        complain(f"what happened from {gap.start:%Y-%m-%dT%H:%M:%SZ} to {gap.end:%Y-%m-%dT%H:%M:%SZ} was missed")


def _tell_malformed(malformed: MalformedLine) -> None:
    complain(f"a line of {malformed.size} bytes is no event: {malformed.reason}")
