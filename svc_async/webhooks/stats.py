"""Statistics and health of a receiver."""

from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from svc_async.webhooks.verification import RejectReason

__all__ = ["Counters", "Health", "Stats"]

_SAMPLES = 1024
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
        unhandled: those of them for which no handler was registered.
        failed: events whose handlers failed.
        abandoned: accepted events that were not handled when the receiver closed.
        restored: events that were found in the inbox at the start.
        waiting: accepted events that are not finished.
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
        running: whether deliveries are accepted.
        last_crc_ok: when a CRC check was last answered.
        last_event: when an event was last accepted.
        probably_valid: whether a CRC check was answered within the last 28 hours (contract WH-28). None before the
            first check, because the webhook may have been validated before this start.
    """

    running: bool
    last_crc_ok: datetime | None
    last_event: datetime | None
    probably_valid: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return the health as values that JSON can write; times are in ISO 8601."""
        return {
            "running": self.running,
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
    _acks: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=_SAMPLES))

    def reject(self, reason: RejectReason) -> None:
        """Count a rejected request."""
        self.rejected[reason.value] += 1

    def acknowledge(self, seconds: float) -> None:
        """Record how long an answer took."""
        self._acks.append(seconds)

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
        return Health(running=running, last_crc_ok=self.last_crc_ok, last_event=self.last_event, probably_valid=valid)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
