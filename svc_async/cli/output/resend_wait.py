"""How long a job waits to send requests again, or for a quarantine."""

from datetime import datetime, timedelta
from typing import Self

import attrs

from svc_async.batch.report import Progress
from svc_async.cli.output.wording import count

__all__ = ["ResendWait"]


@attrs.frozen
class ResendWait:
    """A wait that is under way.

    Attributes:
        requests: how many requests are sent again.
        seconds: until the first of them is, or until the job continues if there is none.
        at: the time of day of that.
        after: its failure; None if it waits for the quarantine of an earlier run.
        attempts: how many attempts failed.
    """

    requests: int
    seconds: float
    at: datetime
    after: str | None = None
    attempts: int = 0

    @classmethod
    def find(cls, progress: Progress, now: datetime) -> Self | None:
        """Return the wait of a progress; None if there is none."""
        if progress.resend_in is None:
            return None
        at = now + timedelta(seconds=progress.resend_in)
        return cls(progress.waiting, progress.resend_in, at, progress.resend_after, progress.attempts)

    @property
    def next_step(self) -> str:
        """What comes after it."""
        return "sent again" if self.requests else "continues"

    def describe(self) -> list[str]:
        """Describe what is waited for and until when, in parts."""
        # A quarantine holds all requests in doubt, of which only the first of each lane are counted here.
        who = f"{count(self.requests, 'request')} " if self.requests and self.after is not None else ""
        verb = "wait" if who and self.requests > 1 else "waits"
        why = "for the quarantine" if self.after is None else f"after {self.after} (attempt {self.attempts})"
        first = "the first " if self.requests > 1 else ""
        return [f"{who}{verb} {why}", f"{first}{self.next_step} at {self.at:%H:%M:%S} UTC"]
