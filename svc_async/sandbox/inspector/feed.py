"""What is sent to one open page: at first the latest rows, then what has changed since.

The feed looks at the sandbox a few times a second while a page is open, and writes only when the page has read what was
written before; so a page costs nothing while it is closed, and a slow one delays nobody.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import attrs

from svc_async.sandbox.api.control import PROTECTION, ControlApi
from svc_async.sandbox.inspector.present import describe_options, describe_present
from svc_async.sandbox.inspector.rows import make_delivery_row, make_request_row
from svc_async.sandbox.push.deliveries import Delivery
from svc_async.sandbox.server.open_response import OpenResponse
from svc_async.sandbox.server.rendering import render_json
from svc_async.sandbox.server.request_log import LoggedRequest

__all__ = ["REQUESTS_SHOWN", "Feed", "serve_feed"]

REQUESTS_SHOWN = 2_000
_DELIVERIES_SHOWN = 500
_ROWS_AT_ONCE = 250
_KEEP_ALIVE = 75
"""Looks without a change after which a comment is written, so that a lost connection is noticed."""

Message = tuple[str, Any]


@attrs.define(eq=False)
class Feed:
    """What one page knows."""

    api: ControlApi
    _run: str = attrs.field(default="", init=False)
    _requests: int = attrs.field(default=0, init=False)
    _open: dict[int, LoggedRequest] = attrs.field(factory=dict[int, LoggedRequest], init=False)
    """Requests that the page knows and that are not over."""
    _deliveries: dict[str, tuple[object, ...]] = attrs.field(factory=dict[str, tuple[object, ...]], init=False)
    _present: Any = attrs.field(default=None, init=False)

    def collect(self) -> Iterator[Message]:
        """Yield what the page does not know yet, as the names and the data of messages."""
        if self._run != self.api.run:
            self._begin()
            yield "hello", describe_options(self.api)
        for name, rows in (("requests", self._list_requests()), ("deliveries", self._list_deliveries())):
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                yield name, rows[start : start + _ROWS_AT_ONCE]
        present = describe_present(self.api)
        if present != self._present:
            self._present = present
            yield "present", present

    def _begin(self) -> None:
        self._run, self._requests, self._present = self.api.run, 0, None
        self._open.clear()
        self._deliveries.clear()

    def _list_requests(self) -> list[dict[str, Any]]:
        log = self.api.log
        kept = log.total - len(log)
        first = max(self._requests, kept, log.total - REQUESTS_SHOWN)
        known = [number for number in self._open if number >= kept]
        changed = [entry for number in known if (entry := log[number - kept]) is not self._open[number]]
        new = log[first - kept :]
        self._requests = log.total
        self._open = {
            entry.number: entry
            for entry in (*(log[number - kept] for number in known), *new)
            if entry.seconds is None and entry.number >= log.total - REQUESTS_SHOWN
        }
        return [make_request_row(entry) for entry in (*changed, *new)]

    def _list_deliveries(self) -> list[dict[str, Any]]:
        shown = [
            delivery
            for channels in self.api.sandbox.channels.list_all()
            for delivery in channels.deliveries[-_DELIVERIES_SHOWN:]
        ]
        states = {delivery.id: _get_progress(delivery) for delivery in shown}
        rows = [make_delivery_row(each) for each in shown if self._deliveries.get(each.id) != states[each.id]]
        self._deliveries = states
        return rows


def _get_progress(delivery: Delivery) -> tuple[object, ...]:
    return delivery.state, len(delivery.attempts)


async def serve_feed(api: ControlApi, response: OpenResponse, *, interval: float) -> None:
    """Write to a page until it is closed.

    Args:
        api: what the page shows.
        response: the open connection.
        interval: real seconds between two looks.
    """
    stream = await response.start(headers={**PROTECTION, "Content-Type": "text/event-stream;charset=utf-8"})
    feed, silent = Feed(api), 0
    with response.release_clock():
        while not response.closed.is_set():
            silent += 1
            for name, data in feed.collect():
                await stream.write(b"event: %b\ndata: %b\n\n" % (name.encode(), render_json(data)))
                silent = 0
            if silent >= _KEEP_ALIVE:
                await stream.write(b":\n\n")
                silent = 0
            await _wait(response.closed, interval)


async def _wait(closed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closed.wait()
    except TimeoutError:
        return
