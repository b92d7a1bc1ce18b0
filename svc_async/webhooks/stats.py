"""What a receiver has seen."""

from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime, timedelta

import attrs

from svc_async.webhooks.verification import Reason

__all__ = ["Health", "Stats", "Tally"]

_SAMPLES = 1024
_VALID_FOR = timedelta(hours=28)  # after its last validation a webhook is given up (contract WH-28)


@attrs.frozen(kw_only=True)
class Stats:
    """Counts since the receiver was made.

    Attributes:
        received: requests.
        crc_answered: CRC checks that were answered.
        verified: deliveries by the `key_id` of the key that had signed them.
        rejected: requests by the reason why they were refused.
        duplicates: events that were being handled or were handled already.
        handled: events that were handled.
        unheard: those of them that no handler was registered for.
        failed: events whose handlers failed.
        abandoned: events that were accepted and not handled when the receiver closed.
        restored: events that were found in the inbox at the start.
        waiting: events that were accepted and are not finished.
        lag: seconds since the oldest of them came.
        ack_p50: seconds until a delivery was answered, the middle of the last 1,024.
        ack_p99: the same, exceeded by one in a hundred.
    """

    received: int
    crc_answered: int
    verified: Mapping[str, int]
    rejected: Mapping[str, int]
    duplicates: int
    handled: int
    unheard: int
    failed: int
    abandoned: int
    restored: int
    waiting: int
    lag: float
    ack_p50: float
    ack_p99: float


@attrs.frozen(kw_only=True)
class Health:
    """How the receiver stands with the service.

    Attributes:
        running: whether deliveries are accepted.
        last_crc_ok: when a CRC check was answered last.
        last_event: when an event was accepted last.
        valid_guess: whether the service should hold the webhook valid: a CRC check was answered within 28 hours
            (contract WH-28). None before the first check, because it may have been validated before this start.
    """

    running: bool
    last_crc_ok: datetime | None
    last_event: datetime | None
    valid_guess: bool | None


@attrs.define(kw_only=True)
class Tally:
    """Counts what happens."""

    received: int = 0
    crc_answered: int = 0
    verified: Counter[str] = attrs.field(factory=Counter[str])
    rejected: Counter[str] = attrs.field(factory=Counter[str])
    duplicates: int = 0
    handled: int = 0
    unheard: int = 0
    failed: int = 0
    abandoned: int = 0
    restored: int = 0
    last_crc_ok: datetime | None = None
    last_event: datetime | None = None
    _acks: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=_SAMPLES))

    def reject(self, reason: Reason) -> None:
        """Count a refused request."""
        self.rejected[reason.value] += 1

    def acknowledge(self, seconds: float) -> None:
        """Remember how long an answer took."""
        self._acks.append(seconds)

    def stats(self, *, waiting: int, lag: float) -> Stats:
        """Give the counts of now."""
        acks = sorted(self._acks)
        return Stats(
            received=self.received,
            crc_answered=self.crc_answered,
            verified=dict(self.verified),
            rejected=dict(self.rejected),
            duplicates=self.duplicates,
            handled=self.handled,
            unheard=self.unheard,
            failed=self.failed,
            abandoned=self.abandoned,
            restored=self.restored,
            waiting=waiting,
            lag=lag,
            ack_p50=_quantile(acks, 0.5),
            ack_p99=_quantile(acks, 0.99),
        )

    def health(self, *, running: bool, now: datetime) -> Health:
        """Judge how the receiver stands."""
        valid = None if self.last_crc_ok is None else now - self.last_crc_ok <= _VALID_FOR
        return Health(running=running, last_crc_ok=self.last_crc_ok, last_event=self.last_event, valid_guess=valid)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0
