"""The calls of the page."""

from collections.abc import Mapping
from typing import Any

from svc_async.sandbox.api.control import ControlApi, ControlCall
from svc_async.sandbox.inspector.feed import serve_feed
from svc_async.sandbox.inspector.pages import FILES, read_page
from svc_async.sandbox.inspector.rows import describe_delivery, describe_request
from svc_async.sandbox.inspector.state import describe_state
from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.open_response import OpenResponse
from svc_async.sandbox.server.rendering import Reply

__all__ = ["Inspector"]

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
