"""The filtered stream: rules, and the posts that match them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.streams.ingest import Overflow
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import Gap
from svc_async.streams.states import Checkpoint, MalformedLine, StateChange
from svc_async.streams.stream import QUEUE_BYTES, EventStream, Recover, StreamSettings
from svc_async.value_rules import SEVERAL
from svc_async.wire.checks import each, length, not_empty, required
from svc_async.wire.params import find_wrong_text, first_problem
from svc_async.wire.reasons import parse_detail
from svc_async.wire.records import EXACT, Record, Timestamp, fields_of
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
    """A rule to add.

    Attributes:
        value: the condition for posts, at most 2,048 characters (contract FS-02).
        tag: a label of your own that matching posts carry.
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
    """How many rules have each result; None where the service does not say."""

    created: int | None = None
    not_created: int | None = None
    valid: int | None = None
    invalid: int | None = None
    deleted: int | None = None
    not_deleted: int | None = None


@attrs.frozen(kw_only=True)
class RefusedRule:
    """A rule that was not created, or not deleted.

    Attributes:
        position: its position in the call, from 0.
        code: the service's code for the reason, such as `DuplicateRule`; empty if there is none.
        message: the service's message.
    """

    position: int
    code: str = ""
    message: str = ""


@attrs.frozen(kw_only=True)
class AddedRules:
    """The result of adding rules.

    Attributes:
        created: the rules that were created; with `dry_run`, those that would be.
        not_created: the other rules.
        sent: when the service answered.
    """

    created: tuple[StreamRule, ...]
    not_created: tuple[RefusedRule, ...]
    summary: RuleSummary
    sent: Timestamp | None = None


@attrs.frozen(kw_only=True)
class DeletedRules:
    """The result of deleting rules.

    Attributes:
        not_deleted: the rules that the service reports as not deleted or unknown.
        sent: when the service answered.
    """

    not_deleted: tuple[RefusedRule, ...]
    summary: RuleSummary
    sent: Timestamp | None = None


@attrs.frozen(kw_only=True)
class _ChangeMeta(Record):
    sent: Timestamp | None = None
    summary: RuleSummary = RuleSummary()


@attrs.frozen(kw_only=True)
class _RuleChanges(Record):
    data: tuple[StreamRule, ...] = attrs.field(default=(), metadata=EXACT)
    meta: _ChangeMeta = _ChangeMeta()
    errors: Sequence[Mapping[str, Any]] = ()


_ALL = "/2/tweets/search/stream/rules"

_CHANGE = Route("POST", _ALL, _RuleChanges, surface=Surface.BASE, json=True, reply=Reply.BODY)
_ADD_CHECKS = (
    find_wrong_text,
    not_empty("rules"),
    each("rules", find_wrong_text, required("value"), length("value", 2_048, least=1)),
)
_DELETE_CHECKS = (find_wrong_text, not_empty("ids"))
_LIST = Listing(_ALL, StreamRule, surface=Surface.BASE, reply=Reply.META_PAGE)


@attrs.frozen(eq=False)
class Rules:
    """The rules of the stream, which belong to the app."""

    _pipeline: Pipeline = attrs.field(repr=False)

    async def add(self, rules: Sequence[Rule | str | Mapping[str, str]], *, dry_run: bool | None = None) -> AddedRules:
        """Add rules. Some may be refused while others are created: see `not_created`.

        Args:
            rules: rules, or only their values.
            dry_run: only validate, without creating them.

        Raises:
            BadRequest: the service refused all of them at once.

        Contract: FS-01, FS-02, `stream_rules.manage`.
        """
        SEVERAL.check("rules", rules)
        added = [Rule(rule) if isinstance(rule, str) else rule for rule in rules]
        request = _CHANGE(add=added).with_params(dry_run=dry_run)
        problem = first_problem(_ADD_CHECKS, {"rules": added, "dry_run": dry_run})
        changed = await self._pipeline.send(request.with_problem(problem))
        return AddedRules(
            created=changed.data,
            not_created=_find_not_created([(fields_of(rule) or {}).get("value") for rule in added], changed),
            summary=changed.meta.summary,
            sent=changed.meta.sent,
        )

    def list(self) -> Pager[StreamRule]:
        """List the rules.

        Contract: FS-01.
        """
        return Pager(self._pipeline, _LIST())

    async def delete(self, ids: Sequence[str], *, dry_run: bool | None = None) -> DeletedRules:
        """Delete rules.

        Args:
            ids: the ids of the rules.
            dry_run: only validate, without deleting them.

        Contract: FS-01, `stream_rules.manage`.
        """
        SEVERAL.check("ids", ids)
        request = _CHANGE(delete={"ids": [*ids]}).with_params(dry_run=dry_run)
        problem = first_problem(_DELETE_CHECKS, {"ids": [*ids], "dry_run": dry_run})
        changed = await self._pipeline.send(request.with_problem(problem))
        found = _find_errors(ids, changed.errors)
        return DeletedRules(
            not_deleted=tuple(
                _parse_refusal(position, error) for position, rule_id in enumerate(ids) for error in found[rule_id]
            ),
            summary=changed.meta.summary,
            sent=changed.meta.sent,
        )


_STREAM: Route[Any] = Route("GET", "/2/tweets/search/stream", None, surface=Surface.BASE, reply=Reply.BODY)
_MAX_CONNECTIONS = 1  # Unspecified: how many may be open at once (contract UNS-stream-protocol).


@attrs.frozen(eq=False)
class FilteredStream:
    """The posts that match rules."""

    _pipeline: Pipeline = attrs.field(repr=False)

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
        queue_bytes: int = QUEUE_BYTES,
        overflow: Overflow = "block",
        stall_timeout: float = 25.0,
        max_line_bytes: int = 8 * 2**20,
        reconnects: Reconnects | None = None,
        on_state: Callable[[StateChange], object] | None = None,
        on_gap: Callable[[Gap], object] | None = None,
        on_malformed: Callable[[MalformedLine], object] | None = None,
    ) -> EventStream:
        """Stream the posts that match the rules, across dropped, stalled and refused connections.

        Without a rule the service refuses the connection with `Conflict`.

        Use it as an async context manager and iterate it inside; nothing is sent before it is entered.

        Args:
            recover: `auto` requests the events that were missed while no connection was open; a service that refuses
                this is asked only once, and `on_gap` is called.
            since: the `checkpoint` of an earlier stream to resume from.
            dedupe: suppress events that arrived before, among the last 100,000.
            queue_size: the maximum number of events that wait to be taken.
            queue_bytes: the maximum of the memory that they take, estimated from their lines; by default 64 MiB. A
                larger event waits alone.
            overflow: what happens to an event that arrives while the queue is full: `block` stops reading,
                `drop_oldest` discards the oldest event and counts it, `error` ends the stream.
            stall_timeout: seconds without data after which a connection is considered dead; heartbeats come every 20.
            max_line_bytes: the longest line that is read; a longer one goes to `on_malformed`.
            reconnects: when the stream reconnects.
            on_state: called on every state change, with its reason.
            on_gap: called for every period without a connection, with how the missed events were recovered.
            on_malformed: called with every line that is not an event; by default such lines are logged.

        Raises:
            InvalidArgument: a setting is invalid.

        Contract: STR-02.
        """
        settings = StreamSettings(
            recover=recover,
            since=since,
            dedupe=dedupe,
            queue_size=queue_size,
            queue_bytes=queue_bytes,
            overflow=overflow,
            stall_timeout=stall_timeout,
            max_line_bytes=max_line_bytes,
            reconnects=reconnects or Reconnects(),
            on_state=on_state,
            on_gap=on_gap,
            on_malformed=on_malformed,
        )
        return EventStream.from_route(self._pipeline, _STREAM, max_connections=_MAX_CONNECTIONS, settings=settings)


def _find_not_created(values: Sequence[Any], changed: _RuleChanges) -> tuple[RefusedRule, ...]:
    created, found = Counter(rule.value for rule in changed.data), _find_errors(values, changed.errors)
    refused: list[RefusedRule] = []
    for position, value in enumerate(values):
        created[value] -= 1
        if created[value] < 0:
            refused.append(_parse_refusal(position, next(iter(found[value]), {})))
    return tuple(refused)


_MOST_ERRORS = 100
"""Errors about one rule; others are dropped."""


def _find_errors(
    subjects: Sequence[Any], errors: Sequence[Mapping[str, Any]]
) -> Mapping[Any, Sequence[Mapping[str, Any]]]:
    """Return the errors about each value or id, in one pass over them."""
    found: dict[Any, list[Mapping[str, Any]]] = {subject: [] for subject in subjects}
    for error in errors:
        for subject in dict.fromkeys(_find_subjects(error)):
            if subject in found and len(found[subject]) < _MOST_ERRORS:
                found[subject].append(error)
    return found


def _find_subjects(error: Mapping[str, Any]) -> Iterable[str]:
    """Return the values and ids that an error is about."""
    parameters = error.get("parameters")
    values = parameters.values() if isinstance(parameters, Mapping) else ()
    listed = (each for value in values for each in (value if isinstance(value, list) else [value]))
    return (each for each in (error.get("value"), error.get("id"), *listed) if isinstance(each, str))


def _parse_refusal(position: int, error: Mapping[str, Any]) -> RefusedRule:
    detail = parse_detail(error)
    return RefusedRule(position=position, code=str(detail.code), message=detail.message)
