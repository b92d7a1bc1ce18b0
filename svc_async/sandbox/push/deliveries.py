"""Delivers events to webhooks: signed, retried if need be, recorded, and replayed.

Only HTTP 200 within 10 seconds acknowledges a delivery (WH-41, WH-42, ASM-03). A failed one is sent again after the
delays of `delivery_delays`. Nothing is sent to a webhook that is invalid or deleted, not as a retry either (ASM-40).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, overload

import attrs
import msgspec

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.kinds import check_bounds, check_kind
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.outbound import Attempt, Outbound, Signer, TargetRequest, Verdict
from svc_async.sandbox.push.public_events import PUBLIC_KINDS
from svc_async.sandbox.state.ring import Ring
from svc_async.sandbox.state.store import Ids, format_time

__all__ = ["Deliveries", "Delivery", "DeliveryFault", "DeliveryFaults", "ReplayJob", "ReplayWindow", "Replays", "State"]

_OK = 200
_DELAYS = (60.0, 300.0)  # Unspecified: seconds from a failed attempt to the next (ASM-02)
# Unspecified: how many hours a replay may reach back, and how many minutes ago it begins and ends at least (ASM-45).
_REACHES_BACK = 24
_BEGAN = 31
_ENDED = 10
_RULES: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.OK: "WH-41",
        Verdict.NOT_200: "ASM-03",
        Verdict.REDIRECT: "WH-41",
        Verdict.TLS: "WH-41",
        Verdict.CLIENT_ERROR: "WH-41",
        Verdict.SERVER_ERROR: "WH-41",
        Verdict.TIMEOUT: "WH-42",
        Verdict.CLOSED: "WH-41",
        Verdict.UNMAPPED: "WH-03",
    }
)


class State(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    EXHAUSTED = "exhausted"
    DROPPED = "dropped"


@attrs.frozen(kw_only=True)
class DeliveryFault:
    """A fault of one delivery.

    Attributes:
        duplicate: how many more times it is sent.
        reorder: whether it is sent after the webhook's next delivery.
        corrupt_signature: whether its signature belongs to another body.
        sign_with: the secret that signs it instead of the right one.
        delay: seconds before it is sent.

    Raises:
        ValueError: a field is of another type, or negative.
    """

    duplicate: int = 0
    reorder: bool = False
    corrupt_signature: bool = False
    sign_with: str | None = attrs.field(default=None, repr=False)
    delay: float = 0.0

    def __attrs_post_init__(self) -> None:
        check_bounds("duplicate", int, self.duplicate, meaning="how many more times it is sent")
        check_kind("reorder", bool, self.reorder)
        check_kind("corrupt_signature", bool, self.corrupt_signature)
        check_kind("sign_with", str | None, self.sign_with)
        check_bounds("delay", float, self.delay)


_NO_FAULT = DeliveryFault()


@attrs.define
class DeliveryFaults:
    """The faults of the next deliveries, one for each, in order."""

    armed: list[DeliveryFault] = attrs.field(factory=list[DeliveryFault])

    def next(
        self,
        *,
        duplicate: int = 0,
        reorder: bool = False,
        corrupt_signature: bool = False,
        sign_with: str | None = None,
        delay: float = 0.0,
    ) -> None:
        """Arm a fault for the next delivery; each further call, for the one after it.

        Args:
            duplicate: send it this many more times.
            reorder: send it after the delivery that follows it to the same webhook.
            corrupt_signature: sign another body.
            sign_with: sign with this secret.
            delay: send it after this many seconds on the clock.

        Raises:
            ValueError: an argument is of another type, or negative.
        """
        self.armed.append(
            DeliveryFault(
                duplicate=duplicate,
                reorder=reorder,
                corrupt_signature=corrupt_signature,
                sign_with=sign_with,
                delay=delay,
            )
        )

    def take(self) -> DeliveryFault:
        """Remove and return the fault of the next delivery."""
        return self.armed.pop(0) if self.armed else _NO_FAULT

    def clear(self) -> None:
        """Disarm all."""
        self.armed.clear()


@attrs.define(kw_only=True, eq=False)
class Delivery:
    """One event on its way to one webhook.

    Attributes:
        event_uuid: the event's id; None if it has none, such as the end of a replay.
        replay_job: the job that sends it again; None for a live one.
        repeated: whether it is a copy that a fault made.
        tried: set after the first attempt.
        done: set when nothing more will be sent.
    """

    id: str
    webhook: Webhook
    event_uuid: str | None
    event: Mapping[str, Any] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    created_at: datetime
    fault: DeliveryFault = _NO_FAULT
    replay_job: str | None = None
    repeated: bool = False
    state: State = State.PENDING
    attempts: list[Attempt] = attrs.field(factory=list[Attempt], repr=False)
    tried: asyncio.Event = attrs.field(factory=asyncio.Event, repr=False)
    done: asyncio.Event = attrs.field(factory=asyncio.Event, repr=False)

    @property
    def event_type(self) -> str | None:
        """The type of the event; None if it has none."""
        return _find_field(self.event, "event_type")

    @property
    def attempted(self) -> bool:
        """Whether it was ever sent; only then it can be replayed."""
        return bool(self.attempts)

    def end(self, state: State) -> None:
        """Set the final state."""
        self.state = state
        self.tried.set()
        self.done.set()


@attrs.define(kw_only=True, eq=False)
class Deliveries:
    """Sends to webhooks; as a collection, it holds the latest deliveries in the order of their start."""

    config: SandboxConfig
    background: BackgroundTasks
    outbound: Outbound
    signer: Signer
    next_id: Callable[[], str]
    faults: DeliveryFaults = attrs.field(factory=DeliveryFaults)
    _log: Ring[Delivery] = attrs.field(
        default=attrs.Factory(lambda deliveries: Ring(deliveries.config.events_kept), takes_self=True)
    )
    _waiting: list[Delivery] = attrs.field(factory=list[Delivery])
    """Deliveries that a fault reorders: they wait for the webhook's next one."""

    def __len__(self) -> int:
        return len(self._log)

    @property
    def total(self) -> int:
        """How many there were so far."""
        return self._log.total

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._log)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._log[index]

    def send(self, webhook: Webhook, event: Mapping[str, Any], *, replay_job: str | None = None) -> Delivery:
        """Start to deliver a JSON object; drop the delivery at once if the webhook takes none."""
        fault = self.faults.take()
        delivery = self._begin(webhook, event, fault, replay_job=replay_job)
        for _ in range(fault.duplicate):
            self._begin(webhook, event, fault, replay_job=replay_job, repeated=True)
        return delivery

    def _begin(
        self,
        webhook: Webhook,
        event: Mapping[str, Any],
        fault: DeliveryFault,
        *,
        replay_job: str | None = None,
        repeated: bool = False,
    ) -> Delivery:
        delivery = Delivery(
            id=self.next_id(),
            webhook=webhook,
            event_uuid=_find_field(event, "event_uuid"),
            event=event,
            body=self._write(event),
            created_at=self.background.clock.now(),
            fault=fault,
            replay_job=replay_job,
            repeated=repeated,
        )
        self._log.append(delivery)
        if fault.reorder and webhook.takes_deliveries:
            self._waiting.append(delivery)
        else:
            overtaken = [held for held in self._waiting if held.webhook is webhook]
            self._waiting = [held for held in self._waiting if held.webhook is not webhook]
            self.background.start(self._deliver_first(delivery, overtaken))
        return delivery

    def _write(self, event: Mapping[str, Any]) -> bytes:
        body = msgspec.json.encode(event)
        return body if self.config.dialect is None else self.config.dialect.write_json(body)

    async def _deliver_first(self, delivery: Delivery, overtaken: list[Delivery]) -> None:
        for held in overtaken:
            self.background.start(self._deliver_after(delivery, held))
        await self._deliver(delivery)

    async def _deliver_after(self, first: Delivery, held: Delivery) -> None:
        await first.tried.wait()
        await self._deliver(held)

    async def _deliver(self, delivery: Delivery) -> None:
        for number, delay in enumerate((0.0, *_DELAYS), 1):
            if pause := delay if number > 1 else delivery.fault.delay:
                await self.background.clock.sleep(pause)
            if not delivery.webhook.takes_deliveries:
                delivery.end(State.DROPPED)
                return
            attempt = await self._attempt(delivery, number)
            delivery.attempts.append(attempt)
            if attempt.ok:
                delivery.end(State.DELIVERED)
                return
            delivery.state = State.RETRYING
            delivery.tried.set()
        delivery.end(State.EXHAUSTED)

    async def _attempt(self, delivery: Delivery, number: int) -> Attempt:
        fault = delivery.fault
        signed = delivery.body + b"!" if fault.corrupt_signature else delivery.body
        headers = {
            "content-type": "application/json",
            **({"x-sandbox-basis": "public"} if delivery.event_type in PUBLIC_KINDS else {}),
            **self.signer.sign_headers(signed, secret=fault.sign_with),
        }
        return await self.outbound.send(
            TargetRequest(method="POST", url=delivery.webhook.url, headers=headers, body=delivery.body),
            occasion=f"attempt {number}",
            max_wait=self.config.ack_timeout,
            accept=lambda answer: Verdict.OK if answer.status == _OK else Verdict.NOT_200,
            rules=_RULES,
        )


def _find_field(event: Mapping[str, Any], name: str) -> str | None:
    """Return a field of the envelope of the first event."""
    data = event.get("data")
    first = data[0] if isinstance(data, list) and data else data
    value = first.get(name) if isinstance(first, dict) else None
    return value if isinstance(value, str) else None


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

    def check(self, now: datetime) -> None:
        """Check that the window can be replayed (ASM-45).

        Raises:
            ValueError: it is too old or too recent.
        """
        if now - self.first > timedelta(hours=_REACHES_BACK):
            raise ValueError(f"from_date is more than {_REACHES_BACK} hours ago")
        if now - self.first < timedelta(minutes=_BEGAN):
            raise ValueError(f"from_date is less than {_BEGAN} minutes ago")
        if now - self.last < timedelta(minutes=_ENDED):
            raise ValueError(f"to_date is less than {_ENDED} minutes ago")

    def contains(self, moment: datetime) -> bool:
        """Return whether a time is in the window."""
        # Unspecified: that the minute of `to_date` belongs to it (ASM-06).
        return self.first <= moment < self.last + timedelta(minutes=1)


def _parse_date(text: str, name: str) -> datetime:
    if len(text) != _DATE_LENGTH or not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be of the form yyyymmddhhmm, in UTC")
    try:
        return datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{name} is not a date") from None


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
            and window.contains(delivery.created_at)
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
        marked = [
            {**event, "meta": {**event.get("meta", {}), "replay": True}}
            for event in (each.event for each in job.chosen)
        ]
        sent = [self.deliveries.send(job.webhook, event, replay_job=job.id) for event in marked]
        await asyncio.gather(*(delivery.done.wait() for delivery in sent))
        job.running = False
        self.deliveries.send(job.webhook, _make_status_event(job), replay_job=job.id)


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
