"""Events of the platform as frozen records.

    Event                     .key deduplicates, .event_type routes, .raw is the event as received
    ├── ActivityEvent         the envelope of the activity product
    │   ├── PostCreated       post.create
    │   ├── PostDeleted       post.delete
    │   ├── DirectMessage     dm.received, dm.sent, dm.read, dm.indicate_typing
    │   ├── SpaceEvent        spaces.start, spaces.end
    │   ├── ProfileUpdated    profile.update.*
    │   ├── …                 `events/public.py`: types that are public facts beyond the specification
    │   └── UnknownEvent      every other type, and whatever does not fit its type
    ├── MatchedPost           filtered_stream.post: a post that matches a rule of the filtered stream
    ├── AccountActivity       account_activity: the older account-activity product
    └── ReplayJobStatus       replay_job_status: a replay job has ended

The specification shows neither envelope nor payloads. An event that lacks what its type requires is an UnknownEvent of
that type, with the reason in `problem`; the router passes it to the handlers of `misfit`, if there are any. A repr
never contains what people wrote, nor does its table in a notebook.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import attrs

from svc_async.open_enum import OpenEnum
from svc_async.wire.records import Record, Timestamp, list_shown_fields

__all__ = [
    "OLD_EVENT_NAMES",
    "AccountActivity",
    "ActivityEvent",
    "DeletedPost",
    "DirectMessage",
    "Event",
    "EventDirection",
    "EventFilter",
    "EventPost",
    "EventType",
    "MatchedPost",
    "MatchingRule",
    "PostCreated",
    "PostDeleted",
    "ProfileUpdated",
    "ReplayJobState",
    "ReplayJobStatus",
    "SpaceEvent",
    "UnknownEvent",
]


class EventType(OpenEnum):
    """The event types of the activity product (contract EV-01, EVT-04); new ones may appear at any time."""

    POST_CREATE = "post.create"
    POST_DELETE = "post.delete"
    DM_RECEIVED = "dm.received"
    DM_SENT = "dm.sent"
    DM_READ = "dm.read"
    DM_INDICATE_TYPING = "dm.indicate_typing"
    SPACES_START = "spaces.start"
    SPACES_END = "spaces.end"
    PROFILE_UPDATE_BIO = "profile.update.bio"
    PROFILE_UPDATE_VERIFIED = "profile.update.verified"
    PROFILE_UPDATE_AFFILIATE = "profile.update.affiliate"
    PROFILE_UPDATE_SCREENNAME = "profile.update.screenname"
    # Public facts beyond the specification.
    POST_MENTION_CREATE = "post.mention.create"
    POST_REPLY_CREATE = "post.reply.create"
    POST_QUOTE_CREATE = "post.quote.create"
    POST_REPOST_CREATE = "post.repost.create"
    LIKE_CREATE = "like.create"
    FOLLOW_FOLLOW = "follow.follow"
    FOLLOW_UNFOLLOW = "follow.unfollow"
    PROFILE_UPDATE_PROFILE_PICTURE = "profile.update.profile_picture"
    PROFILE_UPDATE_BANNER_PICTURE = "profile.update.banner_picture"
    PROFILE_UPDATE_HANDLE = "profile.update.handle"
    PROFILE_UPDATE_GEO = "profile.update.geo"
    PROFILE_UPDATE_URL = "profile.update.url"
    PROFILE_UPDATE_VERIFIED_BADGE = "profile.update.verified_badge"
    PROFILE_UPDATE_AFFILIATE_BADGE = "profile.update.affiliate_badge"
    CHAT_RECEIVED = "chat.received"
    CHAT_SENT = "chat.sent"
    CHAT_CONVERSATION_JOIN = "chat.conversation.join"
    CHAT_CONVERSATION_MEMBER_ADDED = "chat.conversation.member_added"
    CHAT_CONVERSATION_MEMBER_REMOVED = "chat.conversation.member_removed"
    CHAT_CONVERSATION_ADMIN_ADDED = "chat.conversation.admin_added"
    CHAT_CONVERSATION_ADMIN_REMOVED = "chat.conversation.admin_removed"
    CHAT_UPDATE_GROUP_NAME = "chat.update.group_name"
    CHAT_UPDATE_RESTRICTIONS = "chat.update.restrictions"
    NEWS_NEW = "news.new"
    MUTE_MUTE = "mute.mute"
    MUTE_UNMUTE = "mute.unmute"
    BLOCK_BLOCK = "block.block"
    BLOCK_UNBLOCK = "block.unblock"
    BROADCAST_START = "broadcast.start"
    BROADCAST_END = "broadcast.end"
    BROADCAST_CHAT = "broadcast.chat"
    OAUTH_REVOKE = "oauth.revoke"


# Unspecified: the spelling of the PascalCase names (EV-02), and the new names of the older profile events (EV-03).
OLD_EVENT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "PostCreate": "post.create",
        "PostDelete": "post.delete",
        "DmReceived": "dm.received",
        "DmSent": "dm.sent",
        "DmRead": "dm.read",
        "DmIndicateTyping": "dm.indicate_typing",
        "SpacesStart": "spaces.start",
        "SpacesEnd": "spaces.end",
        "ProfileBioUpdate": "profile.update.bio",
        "ProfileVerifiedUpdate": "profile.update.verified",
        "ProfileAffiliateUpdate": "profile.update.affiliate",
        "ProfileScreennameUpdate": "profile.update.screenname",
        "ProfilePictureUpdate": "profile.update.picture",
        "ProfileBannerUpdate": "profile.update.banner",
        "ProfileGeoUpdate": "profile.update.geo",
        "ProfileUrlUpdate": "profile.update.url",
        "ProfileUpdateBio": "profile.update.bio",
        "ProfileUpdateVerified": "profile.update.verified",
        "ProfileUpdateAffiliate": "profile.update.affiliate",
        "ProfileUpdateScreenname": "profile.update.screenname",
        "ProfileUpdatePicture": "profile.update.picture",
        "ProfileUpdateBanner": "profile.update.banner",
        "ProfileUpdateGeo": "profile.update.geo",
        "ProfileUpdateUrl": "profile.update.url",
    }
)
"""Deprecated names of event types (contract EV-02) and the current ones."""


class EventDirection(OpenEnum):
    """Whether the user of the filter sent or received a direct message (contract ACT-03)."""

    SENT = "sent"
    RECEIVED = "received"


@attrs.frozen(kw_only=True)
class EventFilter(Record):
    """The filter of the subscription that an event matched."""

    user_id: str | None = None
    keyword: str | None = None
    direction: EventDirection | None = None


@attrs.frozen(kw_only=True)
class EventPost(Record):
    """A post in an event; what is in none of these fields is in `extra`.

    The fields after `created_at` are public facts beyond the specification (contract EVT-05).

    Attributes:
        id: its id.
        text: its text.
        author_id: the user who wrote it.
        created_at: when it was written.
        public_metrics: how often it was liked, replied to and so on, by the service's names.
        referenced_posts: what it replies to, quotes or reposts: mappings with `type` and `id`.
    """

    keeps_unknown: ClassVar[bool] = True

    id: str
    text: str | None = attrs.field(default=None, repr=False)
    author_id: str | None = None
    created_at: Timestamp | None = None
    conversation_id: str | None = None
    lang: str | None = None
    reply_settings: str | None = None
    possibly_sensitive: bool | None = None
    paid_partnership: bool | None = None
    display_text_range: tuple[int, ...] | None = None
    edit_history_post_ids: tuple[str, ...] | None = None
    edit_controls: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    public_metrics: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    entities: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)
    in_reply_to_post_id: str | None = None
    in_reply_to_user_id: str | None = None
    referenced_posts: tuple[Mapping[str, Any], ...] | None = attrs.field(default=None, hash=False)


@attrs.frozen(kw_only=True)
class DeletedPost(Record):
    """The remaining fields of a deleted post."""

    id: str
    author_id: str | None = None


@attrs.frozen(kw_only=True)
class MatchingRule(Record):
    """A rule of the filtered stream that a post matches."""

    id: str
    tag: str | None = None


@attrs.frozen(kw_only=True)
class Event:
    """An event.

    Attributes:
        key: identifies repeated deliveries of the same event: the `event_uuid`, an opaque string (of one that is
            longer than 256 characters, the SHA-256), else the SHA-256 of the body that contained it.
        event_type: its type, in the current names; handlers are registered for it.
        raw: the event as received.
        replayed: whether a replay job sent it.
        problem: what it lacks of that which its type requires; it is an `UnknownEvent` then.
        misfits: what is left out of its fields because it does not fit; `raw` has it.
    """

    key: str
    event_type: str
    raw: Mapping[str, Any] = attrs.field(hash=False, repr=False)
    replayed: bool = False
    problem: str | None = None
    misfits: tuple[str, ...] = ()

    @property
    def user_id(self) -> str | None:
        """The user it concerns, if known; the receiver keeps the order of events of one user."""
        return None

    def _repr_html_(self) -> str:
        """Return a table of the fields that a repr shows, for notebooks."""
        from svc_async.notebook import render_fields  # noqa: PLC0415 - only notebooks need it

        return render_fields(type(self).__name__, list_shown_fields(self))


@attrs.frozen(kw_only=True)
class ActivityEvent(Event):
    """An event of the activity product (contract EV-01).

    Attributes:
        event_uuid: the id that the service assigned to the event.
        filter: the filter of the subscription that it matched.
        tag: the subscription's tag.
        payload: what happened, as received.
        includes: related objects that the service sent along, as received.
    """

    event_uuid: str | None = None
    filter: EventFilter = attrs.field(factory=EventFilter)
    tag: str | None = None
    payload: Any = attrs.field(default=None, hash=False, repr=False)
    includes: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)

    @property
    def user_id(self) -> str | None:
        """The user of the subscription's filter."""
        return self.filter.user_id


@attrs.frozen(kw_only=True)
class PostCreated(ActivityEvent):
    """A user created a post (contract EV-04)."""

    post: EventPost


@attrs.frozen(kw_only=True)
class PostDeleted(ActivityEvent):
    """A user deleted a post (contract EV-04)."""

    post: DeletedPost


@attrs.frozen(kw_only=True)
class DirectMessage(ActivityEvent):
    """Direct messages were received, sent or read, or someone is typing one.

    Attributes:
        direct_message_events: the messages, in the service's form; possibly none in `dm.read` and `dm.indicate_typing`.
        users: the users they mention, by id, in the service's form.
    """

    direct_message_events: tuple[Mapping[str, Any], ...] = attrs.field(hash=False, repr=False)
    users: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False, repr=False)


@attrs.frozen(kw_only=True)
class SpaceEvent(ActivityEvent):
    """An audio room started or ended.

    Attributes:
        broadcast_id: the room.
        user: its host, in the service's form.
    """

    broadcast_id: str
    user: Mapping[str, Any] | None = attrs.field(default=None, hash=False, repr=False)


@attrs.frozen(kw_only=True)
class ProfileUpdated(ActivityEvent):
    """A part of a profile changed; the last part of `event_type` says which (contracts EV-01, EV-03).

    Attributes:
        before: its previous value, in the service's form.
        after: its new value.
    """

    before: Any = attrs.field(default=None, hash=False, repr=False)
    after: Any = attrs.field(default=None, hash=False, repr=False)


@attrs.frozen(kw_only=True)
class MatchedPost(Event):
    """A post that matches rules of the filtered stream (contracts FS-01, FS-04).

    Attributes:
        post: the post; `raw["data"]` has all its fields, with the edit history.
        matching_rules: the rules it matches.
    """

    post: EventPost
    matching_rules: tuple[MatchingRule, ...]

    @property
    def user_id(self) -> str | None:
        """The author."""
        return self.post.author_id


@attrs.frozen(kw_only=True)
class AccountActivity(Event):
    """Events of the older account-activity product (contract WH-60).

    Attributes:
        for_user_id: the subscribed user.
        events: events in the service's form: lists by names that end in `_events`, single ones by names such as
            `replay_event`.
    """

    for_user_id: str
    events: Mapping[str, Any] = attrs.field(hash=False, repr=False)

    @property
    def user_id(self) -> str | None:
        """The subscribed user."""
        return self.for_user_id


class ReplayJobState(OpenEnum):
    """How a replay job ended."""

    COMPLETE = "Complete"
    INCOMPLETE = "Incomplete"


@attrs.frozen(kw_only=True)
class ReplayJobStatus(Event):
    """A replay job ended; this may arrive before the last events of the job."""

    job_id: str
    webhook_id: str | None = None
    job_state: ReplayJobState | None = None
    job_state_description: str | None = None


@attrs.frozen(kw_only=True)
class UnknownEvent(ActivityEvent):
    """An event of an unknown type, or one that does not fit its type: then `problem` says why.

    It has all fields of the envelope that came; a body of another form has the type `unknown` and none of them.
    """
