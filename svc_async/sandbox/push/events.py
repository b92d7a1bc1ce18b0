"""The types of events, and their payloads: one row a type.

Payloads are made from the users of the seed, in the shapes of ASM-24, with an invented post, message or change.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.sandbox.kinds import WrongArgument, check_json_object, check_kind
from svc_async.sandbox.push.public_events import (
    PUBLIC_KINDS,
    Direction,
    EventKind,
    Scene,
    make_post,
    show_user,
    wrap_user,
)
from svc_async.sandbox.state.store import Store

__all__ = ["KINDS", "Event", "EventFactory", "find_similar_types", "may_have_direction", "set_paths"]

_DIRECTED = ("dm.", "chat.")  # ACT-03


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened to a user.

    Attributes:
        event_type: the dot-separated name.
        direction: of a direct message, seen from the user.
        keyword: a subject, besides the words of its text.
        includes: the objects that the payload refers to.
    """

    event_type: str
    user_id: str
    payload: Mapping[str, Any] = attrs.field(repr=False)
    time: datetime
    direction: Direction | None = None
    keyword: str | None = None
    includes: Mapping[str, Any] | None = attrs.field(default=None, repr=False)

    @property
    def text(self) -> str:
        """All text in it."""
        return " ".join(_find_texts(self.payload))


def _make_post(scene: Scene) -> dict[str, Any]:
    return make_post(scene, author=scene.user, text=scene.words)


def _make_deleted_post(scene: Scene) -> dict[str, Any]:
    return {"id": scene.new_id(), "author_id": scene.user["id"]}


def _make_message(scene: Scene) -> dict[str, Any]:
    sender, recipient = (scene.user, scene.other) if scene.direction == "sent" else (scene.other, scene.user)
    message = {
        "type": _MESSAGE_TYPES[scene.event_type],
        "id": scene.new_id(),
        "created_timestamp": str(int(scene.now.timestamp() * 1000)),
        "sender_id": sender["id"],
        "target": {"recipient_id": recipient["id"]},
    }
    if message["type"] == "message_create":
        message["message_data"] = {"text": scene.words, "entities": {}}
    return {"direct_message_events": [message], "users": {user["id"]: wrap_user(user) for user in (sender, recipient)}}


# Unspecified: the types of the four inside `direct_message_events`.
_MESSAGE_TYPES = {
    "dm.received": "message_create",
    "dm.sent": "message_create",
    "dm.read": "message_read",
    "dm.indicate_typing": "message_indicate_typing",
}


def _make_space(scene: Scene) -> dict[str, Any]:
    return {"user": wrap_user(scene.user), "broadcast_id": scene.new_id(), "event_type": scene.event_type}


def _make_change(field: str, after: object) -> Callable[[Scene], dict[str, Any]]:
    def payload(scene: Scene) -> dict[str, Any]:
        before = scene.user.get(field)
        return {"before": {field: before}, "after": {field: (not before) if isinstance(before, bool) else after}}

    return payload


# EV-01; the last four continue its pattern (ASM-19). Types that are public facts follow (EVT-04).
KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        "post.create": EventKind(_make_post),
        "post.delete": EventKind(_make_deleted_post),
        "dm.received": EventKind(_make_message, direction="received"),
        "dm.sent": EventKind(_make_message, direction="sent"),
        "dm.read": EventKind(_make_message, direction="received"),
        "dm.indicate_typing": EventKind(_make_message, direction="received"),
        "spaces.start": EventKind(_make_space),
        "spaces.end": EventKind(_make_space),
        "profile.update.bio": EventKind(_make_change("bio", "Reads more than is good for me")),
        "profile.update.verified": EventKind(_make_change("verified", True)),
        "profile.update.affiliate": EventKind(_make_change("affiliate", "Harbour Books")),
        "profile.update.screenname": EventKind(_make_change("screen_name", "reads_at_night")),
        "profile.update.picture": EventKind(_make_change("picture", "https://pictures.example/new.png")),
        "profile.update.banner": EventKind(_make_change("banner", "https://pictures.example/wide.png")),
        "profile.update.geo": EventKind(_make_change("geo", "Porto")),
        "profile.update.url": EventKind(_make_change("url", "https://reading.example")),
        **PUBLIC_KINDS,
    }
)


def find_similar_types(name: str) -> Sequence[str]:
    """Return the types of events that were probably meant by a name, the likeliest first; at most three."""
    return get_close_matches(name, KINDS, n=3) or [kind for kind in KINDS if _have_like_parts(kind, name)][:3]


def _have_like_parts(kind: str, name: str) -> bool:
    """Return whether a part between dots of one begins with one of the other, such as `posts` and `post`."""
    parts = [part for part in name.split(".") if len(part) > 1]
    return any(a.startswith(b) or b.startswith(a) for a in kind.split(".") for b in parts)


def may_have_direction(event_type: str) -> bool:
    """Return whether subscriptions to a type may have a direction (ACT-03)."""
    return event_type.startswith(_DIRECTED)


@attrs.frozen
class EventFactory:
    """Creates events from the users of the seed."""

    store: Store

    def create(
        self,
        event_type: str,
        *,
        user_id: str,
        payload: Mapping[str, Any] | None = None,
        direction: Direction | None = None,
        keyword: str | None = None,
    ) -> Event:
        """Create an event; `payload` is merged into the default payload and takes precedence.

        Raises:
            ValueError: the type is not documented, and there is no payload; or an argument cannot be part of an event.
        """
        for name, value in (("event_type", event_type), ("user_id", user_id)):
            check_kind(name, str, value)
        if not (user_id.isascii() and user_id.isdigit()):
            raise WrongArgument("user_id", "must be the id of a user, a string of digits; by default the first user's")
        if payload is not None:
            check_json_object("payload", payload)
        check_kind("direction", Direction | None, direction)
        check_kind("keyword", str | None, keyword)
        kind = KINDS.get(event_type)
        if kind is None and payload is None:
            near = find_similar_types(event_type)
            subject = f"is not documented; similar ones are {', '.join(near)}; it " if near else ""
            raise WrongArgument("event_type", f"{subject}must be one of {', '.join(KINDS)}, or come with a payload")
        direction = direction or (kind.direction if kind else None)
        scene = Scene(
            event_type=event_type,
            user=self.find_user(user_id),
            other=next(row.show() for row in self.store["users"] if row.id != user_id),
            now=self.store.now(),
            new_id=lambda: str(int(self.store.ids.next("post", 12), 36)),
            keyword=keyword,
            direction=direction,
        )
        return Event(
            event_type=event_type,
            user_id=user_id,
            payload=_merge(kind.payload(scene) if kind else {}, payload or {}),
            time=scene.now,
            direction=direction,
            keyword=keyword,
            includes={"users": [show_user(scene.user)]} if event_type == "post.create" else None,
        )

    def find_user(self, user_id: str) -> Mapping[str, Any]:
        """Return a user of the seed, or a made-up one with this id."""
        row = self.store["users"].get(user_id)
        return (
            {"id": user_id, "name": f"User {user_id}", "screen_name": f"user{user_id}"} if row is None else row.show()
        )


def _merge(usual: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into a JSON object and the objects in it."""
    merged = dict(usual)
    for name, after in changes.items():
        before = usual.get(name)
        merged[name] = after
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            merged[name] = _merge(before, after)
    return merged


def set_paths(payload: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload with values set at paths such as `after.bio` or `direct_message_events.0.id`.

    Raises:
        ValueError: a path does not exist.
    """
    result = copy.deepcopy(dict(payload))
    for path, value in changes.items():
        *parents, last = path.split(".")
        try:
            place: Any = result
            for name in parents:
                place = place[_parse_key(place, name)]
            key = _parse_key(place, last)
            place[key]  # raises if there is none
            place[key] = value
        except (LookupError, TypeError, ValueError):
            raise WrongArgument("set", f"names {path}, where the payload has nothing") from None
    return result


def _parse_key(place: object, name: str) -> Any:
    return int(name) if isinstance(place, list) else name


def _find_texts(value: object) -> Sequence[str]:
    """Return every string named `text`, at any depth."""
    if isinstance(value, Mapping):
        own = [value["text"]] if isinstance(value.get("text"), str) else []
        return [*own, *(text for inner in value.values() for text in _find_texts(inner))]
    return [text for inner in value for text in _find_texts(inner)] if isinstance(value, list) else []
