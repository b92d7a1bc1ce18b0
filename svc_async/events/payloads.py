"""The payloads of the activity product's events: which event each type is, and how its fields are read."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.events import public
from svc_async.events.models import (
    ActivityEvent,
    DeletedPost,
    DirectMessage,
    EventPost,
    EventType,
    PostCreated,
    PostDeleted,
    ProfileUpdated,
    SpaceEvent,
)
from svc_async.wire.records import Record, fields_of
from svc_async.wire.tolerant import Builder

__all__ = ["Form", "find_form", "name_type"]

_BUILDER = Builder()


@attrs.frozen
class Form:
    """How a payload becomes the fields of an event.

    Attributes:
        event: the class of the event.
        record: the model of the payload.
        field: the field of the event that is the record; without it, each field of the record is one of the event.
        users: fields with a user, who may be in an object `data` of their own (contract EventUserWrapped).
    """

    event: type[ActivityEvent]
    record: type[Record]
    field: str | None = None
    users: Sequence[str] = ()

    def read(self, payload: object) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the fields, and what is left out of them.

        Raises:
            Misfit: the payload lacks what the type requires.
        """
        record, misfits = _BUILDER.build(self.record, _unwrap(payload, self.users))
        return ({self.field: record} if self.field else fields_of(record) or {}), misfits


def find_form(event_type: str) -> Form | None:
    """Return the form of a type; None if it is unknown."""
    known = _FORMS.get(event_type)
    return known or next((form for prefix, form in _FAMILIES.items() if event_type.startswith(prefix)), None)


def name_type(event_type: str) -> EventType:
    """Return the current name of a type."""
    return EventType(_ALIASES.get(event_type, event_type))


_ALIASES: Mapping[str, str] = MappingProxyType({"chat.conversation_join": "chat.conversation.join"})
"""Other names of types, a public fact (contract ActivityEventTypeAlias)."""


def _unwrap(payload: object, names: Sequence[str]) -> object:
    if not isinstance(payload, Mapping):
        return payload
    given = {name: payload[name] for name in names if isinstance(payload.get(name), Mapping)}
    users = {name: user["data"] for name, user in given.items() if isinstance(user.get("data"), Mapping)}
    return {**payload, **users} if users else payload


@attrs.frozen(kw_only=True)
class _Messages(Record):
    direct_message_events: tuple[Mapping[str, Any], ...]
    users: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(kw_only=True)
class _Signals(Record):
    """The payload of `dm.read` and `dm.indicate_typing`, which is shown nowhere."""

    direct_message_events: tuple[Mapping[str, Any], ...] = ()
    users: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(kw_only=True)
class _Space(Record):
    broadcast_id: str
    user: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True)
class _Change(Record):
    before: Any = None
    after: Any = None


@attrs.frozen(kw_only=True)
class _Pair(Record):
    source: public.EventUser
    target: public.EventUser


_MESSAGES = Form(DirectMessage, _Messages)
_SIGNALS = Form(DirectMessage, _Signals)
_SPACE = Form(SpaceEvent, _Space)
_MENTION = Form(public.PostMentioned, EventPost, "post")
_PAIR = Form(public.UserEvent, _Pair, users=("source", "target"))
_BROADCAST = Form(public.BroadcastEvent, public.Broadcast, "broadcast", users=("user",))

_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        EventType.POST_CREATE: Form(PostCreated, EventPost, "post"),
        EventType.POST_DELETE: Form(PostDeleted, DeletedPost, "post"),
        EventType.POST_MENTION_CREATE: _MENTION,
        EventType.POST_REPLY_CREATE: _MENTION,
        EventType.POST_QUOTE_CREATE: _MENTION,
        EventType.POST_REPOST_CREATE: _MENTION,
        EventType.LIKE_CREATE: Form(public.PostLiked, public.Like, "like"),
        EventType.FOLLOW_FOLLOW: _PAIR,
        EventType.FOLLOW_UNFOLLOW: _PAIR,
        EventType.MUTE_MUTE: _PAIR,
        EventType.MUTE_UNMUTE: _PAIR,
        EventType.BLOCK_BLOCK: _PAIR,
        EventType.BLOCK_UNBLOCK: _PAIR,
        EventType.DM_RECEIVED: _MESSAGES,
        EventType.DM_SENT: _MESSAGES,
        EventType.DM_READ: _SIGNALS,
        EventType.DM_INDICATE_TYPING: _SIGNALS,
        EventType.SPACES_START: _SPACE,
        EventType.SPACES_END: _SPACE,
        EventType.BROADCAST_START: _BROADCAST,
        EventType.BROADCAST_END: _BROADCAST,
        EventType.BROADCAST_CHAT: Form(public.BroadcastMessage, public.BroadcastComment, "comment", users=("author",)),
        EventType.NEWS_NEW: Form(public.NewsEvent, public.News, "news"),
        EventType.OAUTH_REVOKE: Form(public.AccessRevoked, public.Revocation, "revocation"),
    }
)
_FAMILIES: Mapping[str, Form] = MappingProxyType(
    {
        "profile.update.": Form(ProfileUpdated, _Change),  # there are more than the documented ones (EV-03)
        "chat.": Form(public.ChatEvent, public.ChatMessage, "chat"),
    }
)
