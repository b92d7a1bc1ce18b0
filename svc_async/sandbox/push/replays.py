"""Replay jobs: send the deliveries that were attempted in a window again, and an event when that is done."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.deliveries import Deliveries, Delivery
from svc_async.sandbox.state.store import Ids, format_time

__all__ = ["ReplayJob", "ReplayWindow", "Replays"]

_DATE = "%Y%m%d%H%M"
_DATE_LENGTH = 12


@attrs.frozen
class ReplayWindow:
    """A span of time in whole minutes, from its two dates."""

    first: datetime
    last: datetime

    @classmethod
    def parse(cls, from_date: str, to_date: str) -> "ReplayWindow":
        """Parse two dates of the form yyyymmddhhmm in UTC.

        Raises:
            ValueError: one is malformed, or they are in the wrong order.
        """
        first, last = _parse_date(from_date, "from_date"), _parse_date(to_date, "to_date")
        if first >= last:
            raise ValueError("from_date must be before to_date")
        return cls(first, last)

    def check(self, now: datetime, config: SandboxConfig) -> None:
        """Check that the window can be replayed (ASM-45).

        Raises:
            ValueError: it is too old or too recent.
        """
        if now - self.first > timedelta(hours=config.replay_max_age_hours):
            raise ValueError(f"from_date is more than {config.replay_max_age_hours} hours ago")
        if now - self.first < timedelta(minutes=config.replay_from_min_age_minutes):
            raise ValueError(f"from_date is less than {config.replay_from_min_age_minutes} minutes ago")
        if now - self.last < timedelta(minutes=config.replay_to_min_age_minutes):
            raise ValueError(f"to_date is less than {config.replay_to_min_age_minutes} minutes ago")

    def contains(self, moment: datetime, *, inclusive: bool) -> bool:
        """Return whether a time is in the window, which includes the minute of `to_date` or not."""
        return self.first <= moment < self.last + timedelta(minutes=inclusive)


def _parse_date(text: str, name: str) -> datetime:
    if len(text) != _DATE_LENGTH or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be of the form yyyymmddhhmm, in UTC")
    try:
        return datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{name} is no date") from None


@attrs.define(kw_only=True, eq=False)
class ReplayJob:
    """A job that replays deliveries of one webhook."""

    id: str
    webhook: Webhook
    created_at: datetime
    chosen: list[Delivery] = attrs.field(repr=False)
    running: bool = True

    @property
    def public_fields(self) -> dict[str, str]:
        """The job as the service shows it (ASM-44)."""
        return {"job_id": self.id, "created_at": format_time(self.created_at)}


@attrs.define(kw_only=True, eq=False)
class Replays:
    """The replay jobs, one at a time."""

    config: SandboxConfig
    background: BackgroundTasks
    deliveries: Deliveries
    ids: Ids
    _made: list[ReplayJob] = attrs.field(factory=list[ReplayJob])

    @property
    def running(self) -> ReplayJob | None:
        """The running job."""
        return next((job for job in self._made if job.running), None)

    def start(self, webhook: Webhook, window: ReplayWindow) -> ReplayJob:
        """Start a job; the window and the webhook have been checked."""
        chosen = [
            delivery
            for delivery in self.deliveries
            if delivery.webhook is webhook
            and delivery.attempted
            and not (delivery.repeated or delivery.replay_job)
            and window.contains(delivery.created_at, inclusive=self.config.replay_to_date_inclusive)
        ]
        job = ReplayJob(
            id=str(int(self.ids.next("replay_job", 12), 36)),
            webhook=webhook,
            created_at=self.background.clock.now(),
            chosen=chosen,
        )
        self._made.append(job)
        self.background.start(self._run(job))
        return job

    async def _run(self, job: ReplayJob) -> None:
        if self.config.replay_delay:
            await self.background.clock.sleep(self.config.replay_delay)
        sent = [
            self.deliveries.send(job.webhook, _mark_replayed(delivery.event), replay_job=job.id)
            for delivery in job.chosen
        ]
        await asyncio.gather(*(delivery.done.wait() for delivery in sent))
        job.running = False
        self.deliveries.send(job.webhook, _make_status_event(job), replay_job=job.id)


def _mark_replayed(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**event, "meta": {**event.get("meta", {}), "replay": True}}


def _make_status_event(job: ReplayJob) -> dict[str, Any]:
    """Return the event that ends a job (ASM-46)."""
    # Unspecified: when a job is Incomplete, and the description; here if the webhook became invalid meanwhile.
    complete = job.webhook.takes_deliveries
    return {
        "replay_job_status": {
            "webhook_id": job.webhook.id,
            "job_state": "Complete" if complete else "Incomplete",
            "job_state_description": "Job completed successfully" if complete else "The webhook became invalid",
            "job_id": job.id,
        }
    }
