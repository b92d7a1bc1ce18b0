"""The filtered stream: rules, and the posts that match them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.streams.buffer import Overflow
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import Gap
from svc_async.streams.states import Checkpoint, MalformedLine, StateChange
from svc_async.streams.stream import EventStream, Recover, StreamSettings
from svc_async.wire.checks import each, first_problem, length, not_empty, required
from svc_async.wire.envelope import parse_detail
from svc_async.wire.fields import fields_of
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Reply, Route, Surface

__all__ = [
    "AddedRules",
    "DeletedRules",
    "FilteredStream",
    "RefusedRule",
    "Rule",
    "RuleSummary",
    "Rules",
    "StreamRule",
]


@attrs.frozen
class Rule:
    """A rule to be added.

    Attributes:
        value: what posts must match, at most 2,048 characters (contract FS-02).
        tag: a name of your own that matching posts come with.
    """

    value: str
    tag: str | None = None


# Unspecified: requests and answers of the family (contract UNS-stream-rule-protocol).
@attrs.frozen(kw_only=True)
class StreamRule(Record):
    """A rule of the stream."""

    id: str
    value: str
    tag: str | None = None


@attrs.frozen(kw_only=True)
class RuleSummary(Record):
    """How many rules became what."""

    created: int = 0
    not_created: int = 0
    valid: int = 0
    invalid: int = 0
    deleted: int = 0
    not_deleted: int = 0


@attrs.frozen(kw_only=True)
class RefusedRule:
    """A rule that was not created, or not deleted.

    Attributes:
        position: where it stood in the call, from 0.
        code: the service's name for the reason, such as `DuplicateRule`; empty if it gave none.
        message: the service's words.
    """

    position: int
    code: str = ""
    message: str = ""


@attrs.frozen(kw_only=True)
class AddedRules:
    """What became of rules that were to be added.

    Attributes:
        created: those that are there now; with `dry_run`, those that would be.
        not_created: the others.
        sent: when the service answered.
    """

    created: Sequence[StreamRule]
    not_created: Sequence[RefusedRule]
    summary: RuleSummary
    sent: Timestamp | None = None


@attrs.frozen(kw_only=True)
class DeletedRules:
    """What became of rules that were to be deleted.

    Attributes:
        not_deleted: those that the service names as still there or unknown.
        sent: when the service answered.
    """

    not_deleted: Sequence[RefusedRule]
    summary: RuleSummary
    sent: Timestamp | None = None


@attrs.frozen(kw_only=True)
class _Meta:
    sent: Timestamp | None = None
    summary: RuleSummary = RuleSummary()


@attrs.frozen(kw_only=True)
class _Changed:
    data: Sequence[StreamRule] = ()
    meta: _Meta = _Meta()
    errors: Sequence[Mapping[str, Any]] = ()


_ALL = "/2/tweets/search/stream/rules"

_CHANGE = Route("POST", _ALL, _Changed, surface=Surface.BASE, json=True, reply=Reply.BODY)
_ADD_CHECKS = (not_empty("rules"), each("rules", required("value"), length("value", 2_048, least=1)))
_DELETE_CHECKS = (not_empty("ids"),)
_LIST = Listing(_ALL, StreamRule, surface=Surface.BASE, reply=Reply.META_PAGE)


@attrs.frozen
class Rules:
    """The rules of the stream, which belong to the app."""

    _pipeline: Pipeline

    async def add(self, rules: Sequence[Rule | str | Mapping[str, str]], *, dry_run: bool | None = None) -> AddedRules:
        """Add rules. Some may be refused while others are created: see `not_created`.

        Args:
            rules: rules, or just their values.
            dry_run: only tell what would become of them.

        Raises:
            BadRequest: the service refused all of them at once.

        Contract: FS-01, FS-02, `stream_rules.manage`.
        """
        if isinstance(rules, str):
            raise InvalidArgument("rules", "must be a sequence of rules")
        wanted = [Rule(rule) if isinstance(rule, str) else rule for rule in rules]
        request = _CHANGE(add=wanted).with_params(dry_run=dry_run)
        changed = await self._pipeline.send(request.with_problem(first_problem(_ADD_CHECKS, {"rules": wanted})))
        return AddedRules(
            created=changed.data,
            not_created=_not_created([(fields_of(rule) or {}).get("value") for rule in wanted], changed),
            summary=changed.meta.summary,
            sent=changed.meta.sent,
        )

    def list(self) -> Pager[StreamRule]:
        """List them.

        Contract: FS-01.
        """
        return Pager(self._pipeline, _LIST())

    async def delete(self, ids: Sequence[str], *, dry_run: bool | None = None) -> DeletedRules:
        """Delete rules.

        Args:
            ids: the ids of the rules.
            dry_run: only tell what would become of them.

        Contract: FS-01, `stream_rules.manage`.
        """
        if isinstance(ids, str):
            raise InvalidArgument("ids", "must be a sequence of ids")
        request = _CHANGE(delete={"ids": [*ids]}).with_params(dry_run=dry_run)
        changed = await self._pipeline.send(request.with_problem(first_problem(_DELETE_CHECKS, {"ids": [*ids]})))
        return DeletedRules(
            not_deleted=[
                _refused(position, error)
                for position, given in enumerate(ids)
                for error in changed.errors
                if given in _about(error)
            ],
            summary=changed.meta.summary,
            sent=changed.meta.sent,
        )


_STREAM: Route[Any] = Route("GET", "/2/tweets/search/stream", None, surface=Surface.BASE, reply=Reply.BODY)
_MAX_CONNECTIONS = 1  # Unspecified: how many may be open at once (contract UNS-stream-protocol).


@attrs.frozen
class FilteredStream:
    """The posts that match rules."""

    _pipeline: Pipeline

    @property
    def rules(self) -> Rules:
        """The rules of the stream."""
        return Rules(self._pipeline)

    def stream(
        self,
        *,
        recover: Recover = "auto",
        since: Checkpoint | None = None,
        dedupe: bool = True,
        queue_size: int = 10_000,
        overflow: Overflow = "block",
        stall_timeout: float = 25.0,
        max_line_bytes: int = 8 * 2**20,
        reconnects: Reconnects | None = None,
        on_state: Callable[[StateChange], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        on_malformed: Callable[[MalformedLine], object] | None = None,
    ) -> EventStream:
        """Follow the posts that match the rules as they are written, through drops, stalls and refusals.

        Without a rule the service refuses: `Conflict`.

        Use it as an async context manager and iterate it inside; nothing is sent before it is entered.

        Args:
            recover: `auto` asks the service for what was missed while no connection was open; a service that refuses
                that is asked once, and `on_gap` is told.
            since: where an earlier stream was left: its `checkpoint`.
            dedupe: hide events that came before, as far as the last 100,000 events reach.
            queue_size: events that may wait to be taken.
            overflow: what becomes of an event that finds the queue full: `block` stops reading, `drop_oldest` lets
                the oldest one go and counts it, `error` ends the stream.
            stall_timeout: seconds of silence after which a connection counts as dead; heartbeats come every 20.
            max_line_bytes: the longest line that is read; a longer one goes to `on_malformed`.
            reconnects: how the stream comes back.
            on_state: told of every step of the stream's life, and why.
            on_gap: told of every time without a connection, and whether what was missed is made good.
            on_malformed: given every line that is no event; without it, the log is told.

        Raises:
            InvalidArgument: a setting makes no sense.

        Contract: STR-02.
        """
        settings = StreamSettings(
            recover=recover,
            since=since,
            dedupe=dedupe,
            queue_size=queue_size,
            overflow=overflow,
            stall_timeout=stall_timeout,
            max_line_bytes=max_line_bytes,
            reconnects=reconnects or Reconnects(),
            on_state=on_state,
            on_gap=on_gap,
            on_malformed=on_malformed,
        )
        return EventStream.from_route(self._pipeline, _STREAM, max_connections=_MAX_CONNECTIONS, settings=settings)


def _not_created(values: Sequence[Any], changed: _Changed) -> Sequence[RefusedRule]:
    created = Counter(rule.value for rule in changed.data)
    refused: list[RefusedRule] = []
    for position, value in enumerate(values):
        created[value] -= 1
        if created[value] < 0:
            refused.append(_refused(position, next((e for e in changed.errors if value in _about(e)), {})))
    return refused


def _about(error: Mapping[str, Any]) -> Sequence[Any]:
    """Give the values and ids that a complaint is about."""
    parameters = error.get("parameters")
    named = parameters.values() if isinstance(parameters, Mapping) else ()
    listed = [each for value in named for each in (value if isinstance(value, list) else [value])]
    return [error.get("value"), error.get("id"), *listed]


def _refused(position: int, error: Mapping[str, Any]) -> RefusedRule:
    detail = parse_detail(error)
    return RefusedRule(position=position, code=str(detail.code), message=detail.message)
