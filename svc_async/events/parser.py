"""Parse bytes into events, which are distinguished by their shape."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import msgspec

from svc_async.errors import InvalidArgument, UnexpectedAnswer
from svc_async.events.models import (
    OLD_EVENT_NAMES,
    AccountActivity,
    ActivityEvent,
    DeletedPost,
    DirectMessage,
    Event,
    EventFilter,
    EventPost,
    EventType,
    MatchedPost,
    MatchingRule,
    PostCreated,
    PostDeleted,
    ProfileUpdated,
    ReplayJobState,
    ReplayJobStatus,
    SpaceEvent,
    UnknownEvent,
)
from svc_async.wire.envelope import NOT_JSON
from svc_async.wire.reading import read_as

__all__ = ["EventParser", "parse_events"]

T = TypeVar("T")

_Object = Mapping[str, Any]
_Fields = dict[str, Any]


@attrs.frozen(kw_only=True)
class EventParser:
    """Parses webhook deliveries and lines of streams.

    Attributes:
        old_names: deprecated names of event types and the current ones.
    """

    old_names: Mapping[str, str] = OLD_EVENT_NAMES

    def parse(self, body: bytes) -> tuple[Event, ...]:
        """Return the events of one body, at least one.

        Raises:
            InvalidArgument: the body is not a JSON object. Every object is an event.
        """
        value = _decode_object(body)
        digest = hashlib.sha256(body).hexdigest()
        data: Any = value.get("data")
        if not _contains_activity(data):
            return (_parse_other(value, digest),)
        if isinstance(data, Mapping):
            return (self._parse_activity(data, value, digest),)
        return tuple(self._parse_activity(item, value, f"{digest}:{position}") for position, item in enumerate(data))

    def _parse_activity(self, item: _Object, whole: _Object, digest: str) -> Event:
        common: _Fields = {"key": _find_uuid(item) or digest, "raw": item, "replayed": _is_replayed(whole, item)}
        try:
            return self._build_activity(_read(_ActivityEnvelope, item), item.get("payload"), common)
        except UnexpectedAnswer as error:
            return _build_unknown(error, common)

    def _build_activity(self, envelope: "_ActivityEnvelope", payload: object, common: _Fields) -> Event:
        event_type = EventType(self.old_names.get(envelope.event_type, envelope.event_type))
        form = _FORMS.get(event_type) or (_PROFILE if event_type.startswith(_PROFILE_UPDATE) else None)
        if form is None:
            return UnknownEvent(event_type=event_type, **common)
        model, parse_fields = form
        return model(
            **common,
            **parse_fields(payload),
            event_type=event_type,
            event_uuid=envelope.event_uuid,
            filter=_read(EventFilter, envelope.filter or {}),
            tag=envelope.tag,
            includes=envelope.includes,
        )


def parse_events(body: bytes) -> tuple[Event, ...]:
    """Return the events of one body; see `EventParser.parse`."""
    return _DEFAULT.parse(body)


_DEFAULT = EventParser()


# Unspecified: the envelope and all its fields (UNS-event-payloads).
@attrs.frozen(kw_only=True)
class _ActivityEnvelope:
    event_type: str
    event_uuid: str | None = None
    filter: Any = None  # a model without required fields would accept any text
    tag: str | None = None
    includes: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True)
class _MessagePayload:
    direct_message_events: list[Mapping[str, Any]]
    users: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(kw_only=True)
class _SpacePayload:
    broadcast_id: str
    user: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True)
class _ProfilePayload:
    before: Any = None
    after: Any = None


@attrs.frozen(kw_only=True)
class _JobStatus:
    job_id: str
    webhook_id: str | None = None
    job_state: ReplayJobState | None = None
    job_state_description: str | None = None


@attrs.frozen(kw_only=True)
class _Subscriber:
    for_user_id: str


@attrs.frozen(kw_only=True)
class _Match:
    data: EventPost
    matching_rules: list[MatchingRule]


def _decode_object(body: bytes) -> _Object:
    try:
        value = msgspec.json.decode(body)
    except NOT_JSON:
        value = None
    if not isinstance(value, dict):
        raise InvalidArgument("body", "must be a JSON object")
    return value


def _read(model: type[T], value: object) -> T:
    if not isinstance(value, Mapping):
        raise UnexpectedAnswer("the value does not fit: an object was expected", status=200)
    return read_as(model, value)


def _fields_parser(model: type[Any]) -> Callable[[object], _Fields]:
    return lambda value: attrs.asdict(_read(model, value), recurse=False)


_Form = tuple[type[ActivityEvent], Callable[[object], _Fields]]

_MESSAGE: _Form = (DirectMessage, _fields_parser(_MessagePayload))
_SPACE: _Form = (SpaceEvent, _fields_parser(_SpacePayload))
_PROFILE: _Form = (ProfileUpdated, _fields_parser(_ProfilePayload))
_PROFILE_UPDATE = "profile.update."  # there are more than the documented ones (EV-03)
_FORMS: Mapping[str, _Form] = MappingProxyType(
    {
        EventType.POST_CREATE: (PostCreated, lambda value: {"post": _read(EventPost, value)}),
        EventType.POST_DELETE: (PostDeleted, lambda value: {"post": _read(DeletedPost, value)}),
        EventType.DM_RECEIVED: _MESSAGE,
        EventType.DM_SENT: _MESSAGE,
        EventType.DM_READ: _MESSAGE,
        EventType.DM_INDICATE_TYPING: _MESSAGE,
        EventType.SPACES_START: _SPACE,
        EventType.SPACES_END: _SPACE,
    }
)


def _contains_activity(data: Any) -> bool:
    items = data if isinstance(data, list) else [data]
    return bool(items) and all(isinstance(item, Mapping) and "event_type" in item for item in items)


def _parse_other(value: _Object, digest: str) -> Event:
    """Parse a body that is one event without the activity product's envelope."""
    common: _Fields = {"key": digest, "raw": value, "replayed": _is_replayed(value)}
    parse = next((parse for matches, parse in _SHAPES if matches(value)), None)
    if parse is None:
        return UnknownEvent(event_type="unknown", **common)
    try:
        return parse(value, common)
    except UnexpectedAnswer as error:
        return _build_unknown(error, common)


def _parse_replay_job_status(value: _Object, common: _Fields) -> Event:
    fields = _fields_parser(_JobStatus)(value["replay_job_status"])
    return ReplayJobStatus(event_type="replay_job_status", **common, **fields)


def _parse_account_activity(value: _Object, common: _Fields) -> Event:
    return AccountActivity(
        event_type="account_activity",
        for_user_id=_read(_Subscriber, value).for_user_id,
        events={name: events for name, events in value.items() if name.endswith("_events")},
        **common,
    )


def _parse_matched_post(value: _Object, common: _Fields) -> Event:
    match = _read(_Match, value)
    return MatchedPost(
        event_type="filtered_stream.post", post=match.data, matching_rules=tuple(match.matching_rules), **common
    )


_SHAPES: Sequence[tuple[Callable[[_Object], bool], Callable[[_Object, _Fields], Event]]] = (
    (lambda value: "replay_job_status" in value, _parse_replay_job_status),
    (lambda value: "for_user_id" in value and any(name.endswith("_events") for name in value), _parse_account_activity),
    (lambda value: "data" in value and "matching_rules" in value, _parse_matched_post),
)


def _find_uuid(item: _Object) -> str | None:
    uuid = item.get("event_uuid")
    return str(uuid) if isinstance(uuid, str | int) and not isinstance(uuid, bool) and uuid != "" else None


def _build_unknown(error: UnexpectedAnswer, common: _Fields) -> UnknownEvent:
    return UnknownEvent(event_type="unknown", problem=str(error).removesuffix(f" (HTTP {error.status})"), **common)


def _is_replayed(*places: _Object) -> bool:
    # Unspecified: the place of `meta.replay` (UNS-replay-job); both beside `data` and inside it count.
    metas = [place.get("meta") for place in places]
    return any(isinstance(meta, Mapping) and meta.get("replay") is True for meta in metas)
