"""What payloads of events are made from: the participants and the time."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import attrs

__all__ = ["Direction", "EventKind", "Scene", "show_user"]

Direction = Literal["sent", "received"]


@attrs.frozen(kw_only=True)
class Scene:
    """The participants and the time of an event."""

    event_type: str
    user: Mapping[str, Any]
    other: Mapping[str, Any]
    now: datetime
    new_id: Callable[[], str]
    keyword: str | None
    direction: Direction | None

    @property
    def words(self) -> str:
        """A text about the keyword."""
        return f"What I like about {self.keyword or 'books'}: there is always a next one"


@attrs.frozen
class EventKind:
    """A type of event.

    Attributes:
        payload: makes a payload.
        direction: the default.
    """

    payload: Callable[[Scene], dict[str, Any]] = attrs.field(repr=False)
    direction: Direction | None = None


def show_user(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a user that payloads have."""
    return {name: user[name] for name in ("id", "name", "screen_name") if name in user}
