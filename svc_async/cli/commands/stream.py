"""`svc-async stream`: print the events of a stream."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Literal

from cyclopts import App

from svc_async.cli.exit_codes import Exit, Interrupted, explain
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import print_error, say, show, show_item
from svc_async.cli.sessions import open_session, run_in
from svc_async.errors import SvcError
from svc_async.session import Session
from svc_async.streams.recovery import Gap, GapRecovery
from svc_async.streams.states import MalformedLine, StateChange, StreamState

__all__ = ["app"]

app = App(name="stream")

Name = Literal["activity", "filtered"]

_NO_SUBSCRIPTION = (
    "The app has no subscription, without which no event comes. Create one: in Python, "
    'await session.activity.subscriptions.create(event_type="post.create", user_id="...")'
)


@app.command
def tail(name: Name, /, *, profile: str | None = None, as_json: JsonFlag = False) -> int:
    """Print events as they arrive, until interrupted (Ctrl-C, exit code 0).

    The stream reconnects by itself and requests the events that it missed. Stderr says when it is not connected, and
    which events it cannot get. It needs the app's consumer key and secret, or its bearer token. If the app has no
    subscription to activity, a note on stderr says so.

    Args:
        name: "activity": the events of the app's subscriptions. "filtered": the posts that match the app's rules.
        profile: Use the credentials and hosts of this profile, not SVC_* variables.
        as_json: Print each event as one line of JSON: its result is the event as it was received.
    """
    try:
        run_in(open_session(profile), partial(_follow, name=name, as_json=as_json))
    except Interrupted:
        say("The stream is closed.")
    return Exit.DONE


async def _follow(session: Session, name: Name, *, as_json: bool) -> None:
    product = session.activity if name == "activity" else session.filtered_stream
    async with (
        product.stream(on_state=_print_state, on_gap=_print_gap, on_malformed=_print_malformed) as stream,
        # Without a rule, the service refuses to open the filtered stream.
        _ask_for_subscriptions(session) if name == "activity" else nullcontext(),
    ):
        async for event in stream:
            if as_json:
                show_item(dict(event.raw))
            else:
                show(f"{event.event_type:<26} {event.user_id or '-':<20} {event.key}")
                sys.stdout.flush()


@asynccontextmanager
async def _ask_for_subscriptions(session: Session) -> AsyncGenerator[None]:
    """Ask within the block, once, whether the app has a subscription."""

    async def ask() -> None:
        with suppress(SvcError):  # the stream itself says what is wrong; a hint need not
            if await session.activity.subscriptions.list(max_results=1).first() is None:
                say(_NO_SUBSCRIPTION)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait([asking])


def _print_state(change: StateChange) -> None:
    if change.state is StreamState.OPEN:
        say("The stream is open. Ctrl-C ends it.")
    elif change.wait is not None and change.error is not None:
        print_error(f"not connected: {explain(change.error)}; again in {change.wait:.3g} s")


def _print_gap(gap: Gap) -> None:
    if gap.recovery is GapRecovery.NONE:
        print_error(f"events from {gap.start:%Y-%m-%dT%H:%M:%SZ} to {gap.end:%Y-%m-%dT%H:%M:%SZ} were missed")


def _print_malformed(malformed: MalformedLine) -> None:
    print_error(f"a line of {malformed.size} bytes is no event: {malformed.reason}")
