"""Parse bytes into events, which are distinguished by their shape."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from svc_async.errors import InvalidArgument
from svc_async.events import payloads
from svc_async.events.models import (
    OLD_EVENT_NAMES,
    AccountActivity,
    ActivityEvent,
    Event,
    EventFilter,
    EventPost,
    MatchedPost,
    MatchingRule,
    ReplayJobState,
    ReplayJobStatus,
    UnknownEvent,
)
from svc_async.printable import clean
from svc_async.value_rules import instance_of
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import parse_object
from svc_async.wire.records import EXACT, Record, fields_of
from svc_async.wire.tolerant import MOST_VALUES, Builder, Misfit, has_too_many_values

__all__ = ["EventParser", "estimate_memory"]

T = TypeVar("T")

_Object = Mapping[str, Any]
_Fields = dict[str, Any]

_log = logging.getLogger("svc_async")


@attrs.frozen(kw_only=True)
class EventParser:
    """Parses webhook deliveries and lines of streams.

    Attributes:
        old_names: deprecated names of event types and the current ones.
        dialect: the words of the service, if they are not those of the contract.
    """

    old_names: Mapping[str, str] = OLD_EVENT_NAMES
    dialect: Dialect | None = None

    def parse(self, body: bytes) -> tuple[Event, ...]:
        """Return the events of one body, at least one; what does not fit is logged, by its place and rule.

        Raises:
            InvalidArgument: the body is not bytes or not a JSON object, or has more than 10,000 events or 1,000,000
                values.
        """
        _BODY.check("body", body)
        read = body if self.dialect is None else self.dialect.read_json(body)
        events = self._parse_object(_decode_object(read), hashlib.sha256(body).hexdigest())
        odd = [event for event in events if event.problem or event.misfits]
        if odd:
            more = f" (and {len(odd) - 1:,} more events)" if len(odd) > 1 else ""
            problems = "; ".join(filter(None, [odd[0].problem, *odd[0].misfits[:3]]))
            _log.warning(
                "an event of the type %s does not fit: %s%s", clean(odd[0].event_type[:_SHOWN]), problems, more
            )
        return events

    def _parse_object(self, value: _Object, digest: str) -> tuple[Event, ...]:
        # Unspecified: that an event may come without `data` around it (UNS-event-payloads).
        data: Any = value if _has_type(value) else value.get("data")
        if not any(map(_has_type, data if isinstance(data, list) else [data])):
            return (_parse_other(value, digest),)
        if isinstance(data, Mapping):
            return (self._parse_activity(data, value, digest),)
        if len(data) > _MAX_EVENTS:
            raise InvalidArgument("events", f"must be at most {_MAX_EVENTS:,} in one body")
        return tuple(
            self._parse_activity(item, value, key)
            if isinstance(item, Mapping)
            else UnknownEvent(key=key, event_type="unknown", raw={"data": item}, problem="must be an object")
            for item, key in ((item, f"{digest}:{position}") for position, item in enumerate(data))
        )

    def _parse_activity(self, item: _Object, whole: _Object, digest: str) -> ActivityEvent:
        envelope, misfits = _build(_ActivityEnvelope, item)
        event_type = "unknown" if envelope.event_type is None else envelope.event_type
        uuid = envelope.event_uuid
        if uuid is not None and len(uuid) > _LONGEST_ID:
            # Stores hold many keys, so that one whose length is not that of an id is represented by its digest.
            uuid = hashlib.sha256(uuid.encode()).hexdigest()
        common: _Fields = {
            "key": uuid or digest,
            "event_type": payloads.name_type(self.old_names.get(event_type, event_type)),
            "raw": item,
            "replayed": _is_replayed(whole, item),
            "event_uuid": envelope.event_uuid,
            "filter": envelope.filter,
            "tag": envelope.tag,
            "payload": item.get("payload"),
            "includes": envelope.includes,
        }
        form = payloads.find_form(common["event_type"])
        if envelope.event_type is None or form is None:
            return UnknownEvent(**common, misfits=misfits, problem=_find_type_problem(item))
        try:
            fields, more = form.read(item.get("payload"))
        except Misfit as error:
            return UnknownEvent(**common, misfits=misfits, problem=str(error))
        return form.event(**common, **fields, misfits=(*misfits, *more))


def estimate_memory(body: bytes) -> int:
    """Return about how many bytes the events of a body take: its text, and every value in it."""
    return len(body) + _VALUE_BYTES * sum(map(body.count, _SEPARATORS))


_BODY = instance_of(bytes, "the bytes that were received")
_MAX_EVENTS = 10_000
_SHOWN = 100  # characters of a type of event
_SEPARATORS = (b",", b":", b"[", b"{")
_VALUE_BYTES = 64
"""What a small value takes in memory beside its text."""
_BUILDER = Builder()


# Unspecified: the envelope and all its fields (UNS-event-payloads).
@attrs.frozen(kw_only=True)
class _ActivityEnvelope(Record):
    event_type: str | None = None
    event_uuid: str | None = None
    filter: EventFilter = attrs.field(factory=EventFilter)
    tag: str | None = None
    includes: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True)
class _JobStatus(Record):
    job_id: str
    webhook_id: str | None = None
    job_state: ReplayJobState | None = None
    job_state_description: str | None = None


@attrs.frozen(kw_only=True)
class _Subscriber(Record):
    for_user_id: str


@attrs.frozen(kw_only=True)
class _Match(Record):
    data: EventPost
    matching_rules: tuple[MatchingRule, ...] = attrs.field(metadata=EXACT)


def _decode_object(body: bytes) -> _Object:
    if has_too_many_values(body):
        raise InvalidArgument("body", f"must have at most {MOST_VALUES:,} values")
    value = parse_object(body)
    if value is None:
        raise InvalidArgument("body", "must be a JSON object")
    return value


def _build(model: type[T], value: object) -> tuple[T, tuple[str, ...]]:
    """Return the model of a value, and what is left out of it."""
    built: tuple[T, tuple[str, ...]] = _BUILDER.build(model, value)
    return built


def _has_type(item: object) -> bool:
    return isinstance(item, Mapping) and "event_type" in item


def _find_type_problem(item: _Object) -> str | None:
    if "event_type" not in item:
        return "event_type is missing"
    return None if isinstance(item["event_type"], str) else "event_type must be a string"


def _parse_other(value: _Object, digest: str) -> Event:
    """Parse a body that is one event without the activity product's envelope."""
    common: _Fields = {"key": digest, "raw": value, "replayed": _is_replayed(value)}
    shape = next((shape for shape in _SHAPES if shape.matches(value)), None)
    if shape is None:
        return UnknownEvent(event_type="unknown", **common)
    common["event_type"] = shape.event_type
    try:
        return shape.parse(value, common)
    except Misfit as error:
        return UnknownEvent(**common, problem=str(error))


def _parse_replay_job_status(value: _Object, common: _Fields) -> Event:
    status, misfits = _build(_JobStatus, value["replay_job_status"])
    return ReplayJobStatus(**common, **(fields_of(status) or {}), misfits=misfits)


def _parse_account_activity(value: _Object, common: _Fields) -> Event:
    subscriber, misfits = _build(_Subscriber, value)
    events = {name: events for name, events in value.items() if name.endswith(_EVENTS)}
    return AccountActivity(**common, for_user_id=subscriber.for_user_id, events=events, misfits=misfits)


def _parse_matched_post(value: _Object, common: _Fields) -> Event:
    match, misfits = _build(_Match, value)
    return MatchedPost(**common, post=match.data, matching_rules=tuple(match.matching_rules), misfits=misfits)


@attrs.frozen
class _Shape:
    """The shape of events of one product, which have a type that this SDK gives them."""

    event_type: str
    matches: Callable[[_Object], bool]
    parse: Callable[[_Object, _Fields], Event]


_EVENTS = ("_events", "_event")
_SHAPES = (
    _Shape("replay_job_status", lambda value: "replay_job_status" in value, _parse_replay_job_status),
    _Shape(
        "account_activity",
        lambda value: "for_user_id" in value and any(name.endswith(_EVENTS) for name in value),
        _parse_account_activity,
    ),
    _Shape("filtered_stream.post", lambda value: "data" in value and "matching_rules" in value, _parse_matched_post),
)


_LONGEST_ID = 256


def _is_replayed(*places: _Object) -> bool:
    # Unspecified: the place of `meta.replay` (UNS-replay-job); both beside `data` and inside it count.
    metas = [place.get("meta") for place in places]
    return any(isinstance(meta, Mapping) and meta.get("replay") is True for meta in metas)
