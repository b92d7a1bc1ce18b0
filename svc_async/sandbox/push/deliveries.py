"""Delivers events to webhooks: signed, once again if need be, and all of it written down.

Only HTTP 200 within 10 seconds acknowledges a delivery (WH-41, WH-42, ASM-03). What fails is sent again after the
pauses of `delivery_delays`. Nothing is sent to a webhook that is invalid or deleted, neither first nor again (ASM-40).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, overload

import attrs
import msgspec

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.push.crc_checks import Webhook
from svc_async.sandbox.push.delivery_targets import TargetAnswer, TargetRequest
from svc_async.sandbox.push.outbound import Attempt, Outbound, Verdict
from svc_async.sandbox.push.signing import Signer

__all__ = ["Deliveries", "Delivery", "DeliveryFault", "DeliveryFaults", "State"]

_OK = 200
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
    """How far a delivery has come."""

    PENDING = "pending"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    EXHAUSTED = "exhausted"
    DROPPED = "dropped"


@attrs.frozen(kw_only=True)
class DeliveryFault:
    """What goes wrong with one delivery.

    Attributes:
        duplicate: so many more times it is sent.
        reorder: whether it waits for the webhook's next delivery and goes out after it.
        corrupt_signature: whether its signature is that of something else.
        sign_with: the secret that signs it in the place of the right one.
        delay: seconds that it is held back.
    """

    duplicate: int = 0
    reorder: bool = False
    corrupt_signature: bool = False
    sign_with: str | None = attrs.field(default=None, repr=False)
    delay: float = 0.0


_NO_FAULT = DeliveryFault()


@attrs.define
class DeliveryFaults:
    """Faults that wait for the deliveries to come, one for each, in order."""

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
        """Let something go wrong with the next delivery; another call speaks of the one after it.

        Args:
            duplicate: send it so many more times.
            reorder: send it after the delivery that follows it to the same webhook.
            corrupt_signature: sign something else.
            sign_with: sign with this secret.
            delay: hold it back for so many seconds on the clock.
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
        """Give the fault of the delivery that begins."""
        return self.armed.pop(0) if self.armed else _NO_FAULT

    def clear(self) -> None:
        """Disarm all."""
        self.armed.clear()


@attrs.define(kw_only=True, eq=False)
class Delivery:
    """One event on its way to one webhook.

    Attributes:
        event_uuid: the event's id; None for what has none, such as the end of a replay.
        replay_job: the job that sends it again; None for a live one.
        repeated: whether a fault made it, as a copy of another.
        done: is set when nothing will be sent any more.
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
    def attempted(self) -> bool:
        """Whether it ever went out; only what did can be replayed."""
        return bool(self.attempts)

    def end(self, state: State) -> None:
        """Come to an end."""
        self.state = state
        self.tried.set()
        self.done.set()


@attrs.define(kw_only=True, eq=False)
class Deliveries:
    """Sends to webhooks; what it sent is its content, in the order in which it began."""

    config: SandboxConfig
    background: BackgroundTasks
    outbound: Outbound
    signer: Signer
    next_id: Callable[[], str]
    faults: DeliveryFaults = attrs.field(factory=DeliveryFaults)
    _log: list[Delivery] = attrs.field(factory=list[Delivery])
    _waiting: list[Delivery] = attrs.field(factory=list[Delivery])
    """Those that wait for the next one to go first."""

    def __len__(self) -> int:
        return len(self._log)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(list(self._log))

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._log[index]

    def send(self, webhook: Webhook, event: Mapping[str, Any], *, replay_job: str | None = None) -> Delivery:
        """Begin to deliver a JSON object, unless the webhook takes nothing: then the delivery is dropped at once."""
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
            event_uuid=_event_uuid(event),
            event=event,
            body=msgspec.json.encode(event),
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

    async def _deliver_first(self, delivery: Delivery, overtaken: list[Delivery]) -> None:
        for held in overtaken:
            self.background.start(self._deliver_after(delivery, held))
        await self._deliver(delivery)

    async def _deliver_after(self, first: Delivery, held: Delivery) -> None:
        await first.tried.wait()
        await self._deliver(held)

    async def _deliver(self, delivery: Delivery) -> None:
        for number, delay in enumerate((0.0, *self.config.delivery_delays), 1):
            await self._pause(delay if number > 1 else delivery.fault.delay)
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

    async def _pause(self, seconds: float) -> None:
        if seconds:
            await self.background.clock.sleep(seconds)

    async def _attempt(self, delivery: Delivery, number: int) -> Attempt:
        fault = delivery.fault
        signed = delivery.body + b"!" if fault.corrupt_signature else delivery.body
        headers = {
            "content-type": "application/json",
            **self.signer.headers(signed, secret=fault.sign_with),
        }
        return await self.outbound.send(
            TargetRequest(method="POST", url=delivery.webhook.url, headers=headers, body=delivery.body),
            occasion=f"attempt {number}",
            patience=self.config.ack_timeout,
            accept=_verdict,
            rules=_RULES,
        )


def _verdict(answer: TargetAnswer) -> Verdict:
    return Verdict.OK if answer.status == _OK else Verdict.NOT_200


def _event_uuid(event: Mapping[str, Any]) -> str | None:
    data = event.get("data")
    first = data[0] if isinstance(data, list) and data else data
    return first.get("event_uuid") if isinstance(first, dict) else None
