"""Events of the activity product that are public facts beyond the specification (contract `beyond/events.toml`).

    ActivityEvent
    ├── PostMentioned      post.mention.create, post.reply.create, post.quote.create, post.repost.create
    ├── PostLiked          like.create
    ├── UserEvent          follow.follow, follow.unfollow, mute.mute, mute.unmute, block.block, block.unblock
    ├── ChatEvent          chat.*
    ├── BroadcastEvent     broadcast.start, broadcast.end
    ├── BroadcastMessage   broadcast.chat
    ├── NewsEvent          news.new
    └── AccessRevoked      oauth.revoke

Of their records, only the ids without which they say nothing are required.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from svc_async.events.models import ActivityEvent, EventPost
from svc_async.open_enum import OpenEnum
from svc_async.wire.records import Record, Timestamp

__all__ = [
    "AccessRevoked",
    "Broadcast",
    "BroadcastComment",
    "BroadcastEvent",
    "BroadcastMessage",
    "BroadcastState",
    "ChatEvent",
    "ChatMessage",
    "EventUser",
    "Like",
    "News",
    "NewsEvent",
    "PostLiked",
    "PostMentioned",
    "Revocation",
    "UserEvent",
]


@attrs.frozen(kw_only=True)
class EventUser(Record):
    """A user in a payload; a public fact beyond the specification.

    Attributes:
        public_metrics: followers, posts and so on, by the service's names.
    """

    id: str
    name: str | None = attrs.field(default=None, repr=False)
    username: str | None = attrs.field(default=None, repr=False)
    created_at: Timestamp | None = None
    description: str | None = attrs.field(default=None, repr=False)
    location: str | None = attrs.field(default=None, repr=False)
    url: str | None = attrs.field(default=None, repr=False)
    protected: bool | None = None
    verified: bool | None = None
    verified_type: str | None = None
    is_identity_verified: bool | None = None
    profile_image_url: str | None = attrs.field(default=None, repr=False)
    profile_banner_url: str | None = attrs.field(default=None, repr=False)
    pinned_post_id: str | None = None
    most_recent_post_id: str | None = None
    public_metrics: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    affiliation: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)
    entities: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)
    profile_geo_enrichment: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)


@attrs.frozen(kw_only=True)
class Like(Record):
    """A like.

    Attributes:
        created_at: when the liked post was created, by the public table.
        timestamp_ms: milliseconds, as a string.
    """

    id: str
    liked_post_id: str
    liked_post_author_id: str | None = None
    created_at: Timestamp | None = None
    timestamp_ms: str | None = None


@attrs.frozen(kw_only=True)
class ChatMessage(Record):
    """A chat message or a change of a chat, encrypted: the encoded fields are passed on unchanged (contract EVT-17)."""

    id: str | None = None
    conversation_id: str | None = None
    conversation_token: str | None = attrs.field(default=None, repr=False)
    sender_id: str | None = None
    created_at_msec: str | None = None
    conversation_key_version: str | None = None
    encoded_event: str | None = attrs.field(default=None, repr=False)
    conversation_key_change_event: str | None = attrs.field(default=None, repr=False)
    message_event_signature: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)


class BroadcastState(OpenEnum):
    """Whether a broadcast goes on (contract EVT-14)."""

    RUNNING = "Running"
    ENDED = "Ended"


@attrs.frozen(kw_only=True)
class Broadcast(Record):
    """A live broadcast; times are milliseconds since 1970.

    Attributes:
        user: its host.
        duration_ms: once it has ended.
    """

    broadcast_id: str
    user: EventUser | None = None
    title: str | None = attrs.field(default=None, repr=False)
    language: str | None = None
    broadcast_state: BroadcastState | None = None
    thumbnail_url: str | None = attrs.field(default=None, repr=False)
    available_for_replay: bool | None = None
    event_timestamp_ms: int | None = None
    created_timestamp_ms: int | None = None
    updated_timestamp_ms: int | None = None
    duration_ms: int | None = None


@attrs.frozen(kw_only=True)
class BroadcastComment(Record):
    """A message in a broadcast."""

    broadcast_id: str
    message_id: str | None = None
    message: str | None = attrs.field(default=None, repr=False)
    author: EventUser | None = None


@attrs.frozen(kw_only=True)
class News(Record):
    """A piece of news.

    Attributes:
        name: the headline, in one description of the payload.
        headline: the headline, in the other.
        contexts: what it is about, by the service's names.
        cluster_posts_results: posts about it: mappings with `post_id`.
    """

    id: str | None = None
    name: str | None = None
    headline: str | None = None
    category: str | None = None
    hook: str | None = None
    summary: str | None = None
    contexts: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    cluster_posts_results: tuple[Mapping[str, Any], ...] | None = attrs.field(default=None, hash=False)
    updated_at: Timestamp | None = None
    disclaimer: str | None = None


@attrs.frozen(kw_only=True)
class Revocation(Record):
    """The end of a user's grant to the app."""

    user_id: str
    app_id: str | None = None
    date_time: Timestamp | None = None


@attrs.frozen(kw_only=True)
class PostMentioned(ActivityEvent):
    """Another user mentioned the user, or replied to, quoted or reposted their post (contracts EVT-07 to EVT-08b).

    Attributes:
        post: the other user's post.
    """

    post: EventPost


@attrs.frozen(kw_only=True)
class PostLiked(ActivityEvent):
    """A user liked a post, or a post of theirs was liked (contract EVT-10)."""

    like: Like


@attrs.frozen(kw_only=True)
class UserEvent(ActivityEvent):
    """A user followed, muted or blocked another, or no longer does (contract EVT-11).

    Attributes:
        source: the user who acts.
        target: the other.
    """

    source: EventUser
    target: EventUser


@attrs.frozen(kw_only=True)
class ChatEvent(ActivityEvent):
    """An encrypted chat message was received or sent, or a chat changed (contract EVT-17)."""

    chat: ChatMessage


@attrs.frozen(kw_only=True)
class BroadcastEvent(ActivityEvent):
    """A live broadcast started or ended (contract EVT-14)."""

    broadcast: Broadcast


@attrs.frozen(kw_only=True)
class BroadcastMessage(ActivityEvent):
    """Someone wrote in a broadcast of the user (contract EVT-14b)."""

    comment: BroadcastComment


@attrs.frozen(kw_only=True)
class NewsEvent(ActivityEvent):
    """News about a keyword (contract EVT-16)."""

    news: News


@attrs.frozen(kw_only=True)
class AccessRevoked(ActivityEvent):
    """A user withdrew the app's access (contract EVT-15)."""

    revocation: Revocation

    @property
    def user_id(self) -> str | None:
        """The user who withdrew it."""
        return self.revocation.user_id
