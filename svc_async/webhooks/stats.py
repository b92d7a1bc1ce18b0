"""Statistics and health of a receiver."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any

import attrs

from svc_async.clock import Clock, SystemClock
from svc_async.events.models import Event
from svc_async.monitoring import DeliveryEvent, HandlingEndedEvent, HandlingStartedEvent, Subscribers
from svc_async.webhooks.log_lines import name_type
from svc_async.webhooks.verification import RejectReason

__all__ = ["Counters", "Health", "Stats"]

EndHandling = Callable[[int, BaseException | None, str | None], None]
"""Reports that handlers have returned: how many, or which error ended them, and the name of the one that raised it."""

_SAMPLES = 1024
_FAILS_FOR = timedelta(minutes=1)
_VALID_FOR = timedelta(hours=28)  # after its last validation a webhook becomes invalid (contract WH-28)


@attrs.frozen(kw_only=True)
class Stats:
    """Counts since the receiver was created.

    Attributes:
        received: requests.
        crc_answered: answered CRC checks.
        verified: deliveries by the `key_id` of the key that signed them.
        rejected: rejected requests by reason.
        duplicates: events that were accepted before.
        handled: handled events.
        unhandled: handled events for which no handler was registered.
        failed: events whose handlers failed.
        abandoned: accepted events that were not handled when the receiver closed.
        restored: events that were found in the inbox at the start.
        waiting: accepted events that are not finished: their handlers have not returned, or a store that fails keeps
            them from being handled, or from being recorded as handled. Without what only the inbox holds: events whose
            handlers failed, those that there was no room for yet, and all of them before the start and after closing.
        lag: seconds since the oldest of them was received.
        ack_p50: the median time until a delivery was answered, in seconds, over the last 1,024.
        ack_p99: the 99th percentile of the same.
    """

    received: int
    crc_answered: int
    verified: Mapping[str, int]
    rejected: Mapping[str, int]
    duplicates: int
    handled: int
    unhandled: int
    failed: int
    abandoned: int
    restored: int
    waiting: int
    lag: float
    ack_p50: float
    ack_p99: float

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as values that JSON can write."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Health:
    """Whether the receiver runs and the service should hold its webhook valid.

    Attributes:
        running: whether the receiver was started, and has not closed.
        accepting: whether it runs and no store has failed to record a delivery within the last minute, or an event was
            accepted since. A probe that takes a receiver out of service should not use it: without deliveries it is
            True again after a minute.
        last_crc_ok: when a CRC check was last answered.
        last_event: when an event was last accepted.
        probably_valid: whether a CRC check was answered within the last 28 hours (contract WH-28). None before the
            first check, because the webhook may have been validated before this start. A check reaches one of several
            receivers: the webhook is in danger only if it is False in all of them.
    """

    running: bool
    accepting: bool
    last_crc_ok: datetime | None
    last_event: datetime | None
    probably_valid: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return the health as values that JSON can write; times are in ISO 8601."""
        return {
            "running": self.running,
            "accepting": self.accepting,
            "last_crc_ok": self.last_crc_ok and self.last_crc_ok.isoformat(),
            "last_event": self.last_event and self.last_event.isoformat(),
            "probably_valid": self.probably_valid,
        }


@attrs.define(kw_only=True)
class Counters:
    """The running counts of a receiver."""

    received: int = 0
    crc_answered: int = 0
    verified: Counter[str] = attrs.field(factory=Counter[str])
    rejected: Counter[str] = attrs.field(factory=Counter[str])
    duplicates: int = 0
    handled: int = 0
    unhandled: int = 0
    failed: int = 0
    abandoned: int = 0
    restored: int = 0
    last_crc_ok: datetime | None = None
    last_event: datetime | None = None
    last_failure: datetime | None = None
    subscribers: Subscribers = attrs.field(factory=Subscribers)
    clock: Clock = attrs.field(factory=SystemClock)
    _acks: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=_SAMPLES))

    def reject(self, reason: RejectReason, seconds: float = 0.0, *, size: int = 0) -> None:
        """Count and report a rejected request.

        Args:
            reason: why it is rejected.
            seconds: how long its answer took.
            size: the bytes of its body that were read.
        """
        self.rejected[reason.value] += 1
        if reason is RejectReason.ACCEPT_FAILED:
            self.last_failure = self.clock.now()
        self._report_answer(reason.value, seconds, 0, size)

    def acknowledge(self, seconds: float, *, events: int = 1, size: int = 0) -> None:
        """Record how long the answer to a delivery took, and report it.

        Args:
            seconds: how long.
            events: how many events it contains.
            size: the bytes of its body.
        """
        self._acks.append(seconds)
        self._report_answer(None, seconds, events, size)

    def _report_answer(self, reason: str | None, seconds: float, events: int, size: int) -> None:
        if self.subscribers.functions:
            started = self.clock.now() - timedelta(seconds=seconds)
            self.subscribers.notify(
                DeliveryEvent(reason=reason, started=started, seconds=seconds, events=events, bytes_received=size)
            )

    def start_handling(self, event: Event, received_in: Context | None) -> EndHandling:
        """Report that the handlers of an event are called; return what reports that they have returned."""
        if not self.subscribers.functions:
            return lambda _handlers, _error, _handler: None
        event_type = name_type(event)
        began, started = self.clock.monotonic(), self.clock.now()
        self.subscribers.notify(HandlingStartedEvent(event_type=event_type, context=received_in))

        def end(handlers: int, error: BaseException | None, handler: str | None) -> None:
            ended = HandlingEndedEvent(
                event_type=event_type,
                started=started,
                seconds=self.clock.monotonic() - began,
                handlers=handlers,
                error_type=None if error is None else type(error).__name__,
                handler=handler,
            )
            self.subscribers.notify(ended)

        return end

    def stats(self, *, waiting: int, lag: float) -> Stats:
        """Return the current counts."""
        acks = sorted(self._acks)
        return Stats(
            received=self.received,
            crc_answered=self.crc_answered,
            verified=dict(self.verified),
            rejected=dict(self.rejected),
            duplicates=self.duplicates,
            handled=self.handled,
            unhandled=self.unhandled,
            failed=self.failed,
            abandoned=self.abandoned,
            restored=self.restored,
            waiting=waiting,
            lag=lag,
            ack_p50=_quantile(acks, 0.5),
            ack_p99=_quantile(acks, 0.99),
        )

    def health(self, *, running: bool, now: datetime) -> Health:
        """Return the current health."""
        valid = None if self.last_crc_ok is None else now - self.last_crc_ok <= _VALID_FOR
        failed, accepted = self.last_failure, self.last_event
        fails = failed is not None and now - failed <= _FAILS_FOR and (accepted is None or accepted < failed)
        return Health(
            running=running,
            accepting=running and not fails,
            last_crc_ok=self.last_crc_ok,
            last_event=self.last_event,
            probably_valid=valid,
        )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
