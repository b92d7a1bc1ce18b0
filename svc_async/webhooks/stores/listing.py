"""The types of events in an inbox, for people who look at it."""

from collections.abc import Mapping

import attrs

from svc_async.events.parser import EventParser
from svc_async.webhooks.keys.event_keys import parse_event_key

__all__ = ["EventTypes"]


@attrs.define
class EventTypes:
    """Finds the types of events in the body that was read last."""

    _body_id: int | None = None
    _types: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def has(self, body_id: int) -> bool:
        """Return whether this body was read last: the events of a delivery share one, and follow each other."""
        return body_id == self._body_id

    def read(self, body_id: int, body: bytes) -> None:
        """Read a body."""
        self._types = {event.key: event.event_type for event in EventParser().parse(body)}
        self._body_id = body_id

    def find(self, key: str) -> str:
        """Return the type of the event with a key of the inbox; `unknown` if the body has none."""
        return self._types.get(parse_event_key(key), "unknown")
