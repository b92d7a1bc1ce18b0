"""The types of events that are public facts beyond the specification, and their payloads (EVT-04)."""

import base64
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

import attrs

from svc_async.sandbox.state.store import format_milliseconds

__all__ = ["PUBLIC_KINDS", "Direction", "EventKind", "Scene", "make_post", "show_user", "wrap_user"]

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


def _make_reference(reference: str | None) -> Callable[[Scene], dict[str, Any]]:
    """Return a function that makes a post of another user, which refers to a post of the user (EVT-08b)."""

    def payload(scene: Scene) -> dict[str, Any]:
        post = make_post(scene, author=scene.other, text=f"@{scene.user.get('screen_name', '')} {scene.words}")
        original = scene.new_id()
        if reference == "replied_to":
            replied = {"in_reply_to_post_id": original, "in_reply_to_user_id": scene.user["id"]}
            post |= {"conversation_id": original, **replied}
        return post | ({"referenced_posts": [{"type": reference, "id": original}]} if reference else {})

    return payload


def _make_like(scene: Scene) -> dict[str, Any]:
    return {
        "id": f"like_{scene.new_id()}",
        "liked_post_id": scene.new_id(),
        "liked_post_author_id": scene.other["id"],
        "created_at": format_milliseconds(scene.now),
        "timestamp_ms": _count_ms(scene),
    }


def _make_pair(scene: Scene) -> dict[str, Any]:
    return {"source": wrap_user(scene.user), "target": wrap_user(scene.other)}


def _make_chat(scene: Scene) -> dict[str, Any]:
    sender = scene.user if scene.event_type == "chat.sent" else scene.other
    opaque = base64.b64encode(scene.words.encode()).decode()  # nobody can read what is encrypted (EVT-17)
    return {
        "id": str(uuid.UUID(int=int(scene.new_id()))),
        "conversation_id": f"{scene.user['id']}:{scene.other['id']}",
        "conversation_token": opaque,
        "sender_id": sender["id"],
        "created_at_msec": _count_ms(scene),
        "conversation_key_version": _count_ms(scene),
        "encoded_event": opaque,
        "message_event_signature": {
            "public_key_version": _count_ms(scene),
            "signature": opaque,
            "signature_version": "4",
            "signing_public_key": opaque,
        },
    }


def _make_change(before: str, after: str) -> Callable[[Scene], dict[str, Any]]:
    return lambda _: {"before": before, "after": after}  # both are strings (EVT-12)


def _make_broadcast(scene: Scene) -> dict[str, Any]:
    has_ended = scene.event_type == "broadcast.end"
    times = {f"{name}_timestamp_ms": int(_count_ms(scene)) for name in ("event", "created", "updated")}
    times |= {"duration_ms": 60_000} if has_ended else {}
    return {
        "user": wrap_user(scene.user),
        "broadcast_id": scene.new_id(),
        "title": scene.words,
        "language": "en",
        "broadcast_state": "Ended" if has_ended else "Running",  # EVT-14
        "thumbnail_url": "https://pictures.example/live.png",
        "available_for_replay": True,
        **times,
        **{f"{name}_str": str(value) for name, value in times.items()},
    }


def _make_comment(scene: Scene) -> dict[str, Any]:
    return {
        "broadcast_id": scene.new_id(),
        "message_id": scene.new_id(),
        "message": scene.words,
        "author": wrap_user(scene.other),
    }


def _make_news(scene: Scene) -> dict[str, Any]:
    subject = scene.keyword or "books"
    return {
        "id": scene.new_id(),
        "name": f"Everybody talks about {subject}",
        "category": "Culture",
        "hook": f"What is it about {subject}?",
        "summary": scene.words,
        "contexts": {"topics": [subject], "entities": {"people": []}, "finance": {"tickers": []}},
        "cluster_posts_results": [{"post_id": scene.new_id()}],
        "updated_at": format_milliseconds(scene.now),
    }


def _make_revocation(scene: Scene) -> dict[str, Any]:
    return {"user_id": scene.user["id"], "app_id": scene.new_id(), "date_time": scene.now.isoformat()}


def _count_ms(scene: Scene) -> str:
    return str(int(scene.now.timestamp() * 1000))


_PAIR = EventKind(_make_pair)
_CHAT_CHANGE = EventKind(_make_chat)

PUBLIC_KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        "post.mention.create": EventKind(_make_reference(None)),
        "post.reply.create": EventKind(_make_reference("replied_to")),
        "post.quote.create": EventKind(_make_reference("quoted")),
        "post.repost.create": EventKind(_make_reference("retweeted")),
        "like.create": EventKind(_make_like),
        "follow.follow": _PAIR,
        "follow.unfollow": _PAIR,
        "mute.mute": _PAIR,
        "mute.unmute": _PAIR,
        "block.block": _PAIR,
        "block.unblock": _PAIR,
        "profile.update.profile_picture": EventKind(
            _make_change("https://pictures.example/old.png", "https://pictures.example/new.png")
        ),
        "profile.update.banner_picture": EventKind(
            _make_change("https://pictures.example/narrow.png", "https://pictures.example/wide.png")
        ),
        "profile.update.handle": EventKind(_make_change("reads", "reads_at_night")),
        "profile.update.verified_badge": EventKind(_make_change("none", "blue")),
        "profile.update.affiliate_badge": EventKind(_make_change("", "Harbour Books")),
        "chat.received": EventKind(_make_chat, direction="received"),
        "chat.sent": EventKind(_make_chat, direction="sent"),
        "chat.conversation.join": _CHAT_CHANGE,
        "chat.conversation.member_added": _CHAT_CHANGE,
        "chat.conversation.member_removed": _CHAT_CHANGE,
        "chat.conversation.admin_added": _CHAT_CHANGE,
        "chat.conversation.admin_removed": _CHAT_CHANGE,
        "chat.update.group_name": _CHAT_CHANGE,
        "chat.update.restrictions": _CHAT_CHANGE,
        "broadcast.start": EventKind(_make_broadcast),
        "broadcast.end": EventKind(_make_broadcast),
        "broadcast.chat": EventKind(_make_comment),
        "news.new": EventKind(_make_news),
        "oauth.revoke": EventKind(_make_revocation),
    }
)
