"""What payloads of events are made from: the participants and the time."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import attrs

from svc_async.sandbox.state.store import format_milliseconds

__all__ = ["Direction", "EventKind", "Scene", "make_post", "show_user", "wrap_user"]

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
    """Return a user as events have it (record EventUser)."""
    shown = {"id": user["id"], "name": user.get("name", ""), "username": user.get("screen_name", "")}
    return {**shown, "protected": False, "verified": bool(user.get("verified"))}


def wrap_user(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user as payloads have it: in an object `data` (record EventUserWrapped)."""
    return {"data": show_user(user)}


def make_post(scene: Scene, *, author: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a new post, which nobody has seen yet (record EventPost)."""
    post_id = scene.new_id()
    return {
        "id": post_id,
        "text": text,
        "author_id": author["id"],
        "created_at": format_milliseconds(scene.now),
        "conversation_id": post_id,
        "lang": "en",
        "reply_settings": "everyone",
        "possibly_sensitive": False,
        "edit_history_post_ids": [post_id],
        "public_metrics": dict.fromkeys(_METRICS, 0),
    }


_METRICS = ("retweet_count", "reply_count", "like_count", "quote_count", "bookmark_count", "impression_count")
