"""What happens on the platform, as frozen records.

    Event                     .key dedupes, .event_type routes, .raw is all that came
    ├── ActivityEvent         the envelope of the activity product
    │   ├── PostCreated       post.create
    │   ├── PostDeleted       post.delete
    │   ├── DirectMessage     dm.received, dm.sent, dm.read, dm.indicate_typing
    │   ├── SpaceEvent        spaces.start, spaces.end
    │   └── ProfileUpdated    profile.update.*
    ├── MatchedPost           filtered_stream.post: a post that matches a rule of the filtered stream
    ├── AccountActivity       account_activity: the older account-activity product
    ├── ReplayJobStatus       replay_job_status: a replay has ended
    └── UnknownEvent          everything else

Envelope and payloads are not shown by the specification. What does not fit the known ones is an UnknownEvent, so a
handler of `post.create` is given PostCreated and nothing else. What people wrote never shows in a repr.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from svc_async.open_enum import OpenEnum
from svc_async.wire.records import Record, Timestamp

__all__ = [
    "OLD_EVENT_NAMES",
    "AccountActivity",
    "ActivityEvent",
    "DeletedPost",
    "DirectMessage",
    "Event",
    "EventDirection",
    "EventFilter",
    "EventType",
    "MatchedPost",
    "MatchingRule",
    "Post",
    "PostCreated",
    "PostDeleted",
    "ProfileUpdated",
    "ReplayJobState",
    "ReplayJobStatus",
    "SpaceEvent",
    "UnknownEvent",
]


class EventType(OpenEnum):
    """The event types of the activity product (contract EV-01); new ones appear at any time."""

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


# Unspecified: how the PascalCase names were spelled (EV-02), and the new names of the older profile events (EV-03).
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
"""Deprecated names of event types (contract EV-02) and what they are called now."""


class EventDirection(OpenEnum):
    """Which way a direct message went, seen from the user of the filter (contract ACT-03)."""

    SENT = "sent"
    RECEIVED = "received"


@attrs.frozen(kw_only=True)
class EventFilter(Record):
    """The subscription's filter that an event matched."""

    user_id: str | None = None
    keyword: str | None = None
    direction: EventDirection | None = None


@attrs.frozen(kw_only=True)
class Post(Record):
    """A post; `raw` of its event holds all fields, its edit history too.

    Attributes:
        id: the post.
        text: what it says.
        author_id: who wrote it.
        created_at: when.
    """

    id: str
    text: str | None = attrs.field(default=None, repr=False)
    author_id: str | None = None
    created_at: Timestamp | None = None


@attrs.frozen(kw_only=True)
class DeletedPost(Record):
    """What is left of a post."""

    id: str
    author_id: str | None = None


@attrs.frozen(kw_only=True)
class MatchingRule(Record):
    """A rule of the filtered stream that a post matches."""

    id: str
    tag: str | None = None


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        key: what a repeated delivery of this event has in common with the first: the `event_uuid`, an opaque string,
            else the SHA-256 of the body it came in.
        event_type: what handlers are registered for, in the names of today.
        raw: the event as it came.
        replayed: whether a replay job sent it.
    """

    key: str
    event_type: str
    raw: Mapping[str, Any] = attrs.field(repr=False)
    replayed: bool = False

    @property
    def user_id(self) -> str | None:
        """Whom it concerns, if that is known; the receiver keeps the order of events of one user."""
        return None


@attrs.frozen(kw_only=True)
class ActivityEvent(Event):
    """An event of the activity product (contract EV-01).

    Attributes:
        event_uuid: the service's name for the event.
        filter: the filter of the subscription that it matched.
        tag: the subscription's tag.
        includes: what the service sent along, as it came.
    """

    event_uuid: str | None = None
    filter: EventFilter = attrs.field(factory=EventFilter)
    tag: str | None = None
    includes: Mapping[str, Any] | None = attrs.field(default=None, repr=False)

    @property
    def user_id(self) -> str | None:
        """The user of the subscription's filter."""
        return self.filter.user_id


@attrs.frozen(kw_only=True)
class PostCreated(ActivityEvent):
    """A user created a post (contract EV-04)."""

    post: Post


@attrs.frozen(kw_only=True)
class PostDeleted(ActivityEvent):
    """A user deleted a post (contract EV-04)."""

    post: DeletedPost


@attrs.frozen(kw_only=True)
class DirectMessage(ActivityEvent):
    """Direct messages were received, sent or read, or somebody is typing one.

    Attributes:
        direct_message_events: what happened, in the service's form.
        users: the users that are named, by id, in the service's form.
    """

    direct_message_events: Sequence[Mapping[str, Any]] = attrs.field(repr=False)
    users: Mapping[str, Any] = attrs.field(factory=dict[str, Any], repr=False)


@attrs.frozen(kw_only=True)
class SpaceEvent(ActivityEvent):
    """An audio room started or ended.

    Attributes:
        broadcast_id: the room.
        user: its host, in the service's form.
    """

    broadcast_id: str
    user: Mapping[str, Any] | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ProfileUpdated(ActivityEvent):
    """A part of a profile changed; the last part of `event_type` says which (contracts EV-01, EV-03).

    Attributes:
        before: what it was, in the service's form.
        after: what it is.
    """

    before: Any = attrs.field(default=None, repr=False)
    after: Any = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class MatchedPost(Event):
    """A post that matches rules of the filtered stream (contracts FS-01, FS-04).

    Attributes:
        post: the post; `raw["data"]` is all of it, with the edit history.
        matching_rules: the rules it matches.
    """

    post: Post
    matching_rules: Sequence[MatchingRule]

    @property
    def user_id(self) -> str | None:
        """The author."""
        return self.post.author_id


@attrs.frozen(kw_only=True)
class AccountActivity(Event):
    """Events of the older account-activity product (contract WH-60).

    Attributes:
        for_user_id: the subscribed user.
        events: lists of events in the service's form, by names that end in `_events`.
    """

    for_user_id: str
    events: Mapping[str, Any] = attrs.field(repr=False)

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
    """A replay job ended; it may overtake the last events of the job."""

    job_id: str
    webhook_id: str | None = None
    job_state: ReplayJobState | None = None
    job_state_description: str | None = None


@attrs.frozen(kw_only=True)
class UnknownEvent(Event):
    """An event of a type to come, or in a form that is not known.

    Attributes:
        problem: what did not fit, where the type is known; `event_type` is then `unknown`.
    """

    problem: str | None = None
