"""The inspector: its calls, its files, and what an open page is sent."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from svc_async.sandbox.api.control import PROTECTION, ControlApi, ControlCall
from svc_async.sandbox.inspector.rows import (
    describe_delivery,
    describe_options,
    describe_present,
    describe_request,
    make_delivery_row,
    make_request_row,
)
from svc_async.sandbox.inspector.state import describe_state
from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.rendering import OpenResponse, Reply, render_json
from svc_async.sandbox.server.request_log import LoggedRequest

__all__ = ["FILES", "REQUESTS_SHOWN", "Feed", "Inspector", "read_page"]

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
    _deliveries: dict[str, object] = attrs.field(factory=dict[str, object], init=False)
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
        states: dict[str, object] = {each.id: (each.state, len(each.attempts)) for each in shown}
        rows = [make_delivery_row(each) for each in shown if self._deliveries.get(each.id) != states[each.id]]
        self._deliveries = states
        return rows


async def serve_feed(api: ControlApi, response: OpenResponse, *, interval: float) -> None:
    """Write to a page until it is closed.

    Args:
        api: what the page shows.
        response: the open connection.
        interval: real seconds between two looks.
    """
    stream = await response.start(headers={**PROTECTION, "Content-Type": "text/event-stream;charset=utf-8"})
    feed, silent = Feed(api), 0
    with response.clock.release():
        while not response.closed.is_set():
            silent += 1
            for name, data in feed.collect():
                await stream.write(b"event: %b\ndata: %b\n\n" % (name.encode(), render_json(data)))
                silent = 0
            if silent >= _KEEP_ALIVE:
                await stream.write(b":\n\n")
                silent = 0
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await response.closed.wait()


_TYPES: Mapping[str, str] = {
    "html": "text/html;charset=utf-8",
    "css": "text/css;charset=utf-8",
    "js": "text/javascript;charset=utf-8",
    "svg": "image/svg+xml",
}
# No script, style, font or image from elsewhere, none in the page itself, and no text that becomes HTML.
_POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

FILES: tuple[str, ...] = tuple(
    sorted(entry.name for entry in files("svc_async.sandbox.inspector").joinpath("page").iterdir() if "." in entry.name)
)
"""The names of all files; the page itself is `index.html`."""


@cache
def read_page(name: str) -> Reply:
    """Return one of the files as an answer."""
    content = files("svc_async.sandbox.inspector").joinpath("page", name).read_bytes()
    return Reply(200, content, _TYPES[name.rpartition(".")[2]], headers=_HEADERS)


_INTERVAL = 0.2
_MOST_OPEN = 16


class Inspector:
    """The calls of the page, and how many of them are open.

    Args:
        interval: real seconds between two looks of an open page.
    """

    def __init__(self, *, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._open = 0

    @property
    def calls(self) -> tuple[ControlCall, ...]:
        """The rows for the table of the control API."""
        pages = [ControlCall("GET", f"inspector/{name}", _make_handler(name)) for name in FILES]
        return (
            ControlCall("GET", "inspector/", _make_handler("index.html")),
            *pages,
            ControlCall("GET", "inspector/feed", serve=self._serve_feed),
            ControlCall("GET", "inspector/request", _get_request),
            ControlCall("GET", "inspector/delivery", _get_delivery),
            ControlCall("GET", "inspector/state", _get_state),
        )

    async def _serve_feed(self, api: ControlApi, response: OpenResponse) -> None:
        if self._open >= _MOST_OPEN:
            raise Refusal(503, Problem("TOO_MANY_PAGES", f"{_MOST_OPEN} pages of the inspector are open"))
        self._open += 1
        try:
            await serve_feed(api, response, interval=self._interval)
        finally:
            self._open -= 1


def _make_handler(name: str) -> Any:
    def handle(_api: ControlApi, _query: Mapping[str, Any]) -> Reply:
        return read_page(name)

    return handle


def _get_request(api: ControlApi, query: Mapping[str, Any]) -> Any:
    number = str(query.get("number", ""))
    place = int(number) - api.log.total if number.isascii() and number.isdigit() and len(number) < 16 else 0  # noqa: PLR2004 digits
    if not -len(api.log) <= place < 0:
        raise Refusal(404, Problem("REQUEST_NOT_FOUND", "the log has no request with this number", "number"))
    entry = api.log[place]
    return describe_request(entry, api.log.find_bodies(entry.number))


def _get_delivery(api: ControlApi, query: Mapping[str, Any]) -> Any:
    for channels in api.sandbox.channels.list_all():
        for delivery in channels.deliveries:
            if delivery.id == query.get("id"):
                return describe_delivery(delivery)
    raise Refusal(404, Problem("DELIVERY_NOT_FOUND", "there is no such delivery", "id"))


def _get_state(api: ControlApi, _query: Mapping[str, Any]) -> Any:
    return describe_state(api.sandbox)
