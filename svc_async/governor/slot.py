"""A slot: permission to send one request."""

import asyncio
import enum
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import attrs

from svc_async.governor.buckets import RequestKind
from svc_async.governor.ticks import SECOND

__all__ = ["Priority", "Slot", "Stage"]


class Priority(enum.Enum):
    """The class of a request."""

    INTERACTIVE = "interactive"
    """Somebody waits for it: goes first, and a part of small limits is kept for it."""
    BULK = "bulk"
    """One of many: takes what is left, and at least one turn in ten."""


class Stage(enum.Enum):
    """How far a slot has come."""

    NEW = enum.auto()
    WAITING = enum.auto()
    GRANTED = enum.auto()
    SENT = enum.auto()
    OVER = enum.auto()


class SlotOwner(Protocol):
    """What a slot needs from the scheduler."""

    def enter(self, slot: "Slot") -> "asyncio.Future[None] | None":
        """Grant at once, or return what to await."""

    def leave(self, slot: "Slot") -> None:
        """Take the slot back, whatever became of it."""

    def learn(self, slot: "Slot", status: int, headers: Mapping[str, str]) -> None:
        """Settle the slot with an answer."""

    def settle_lost(self, slot: "Slot") -> None:
        """Settle the slot without an answer."""


@attrs.define(eq=False)
class Slot:
    """Permission to send one request; an async context manager, to be used once.

    Attributes:
        was_sent: whether the request was about to be written.
    """

    _owner: SlotOwner
    kind: "RequestKind[Slot]"
    is_bulk: bool
    max_wait: float | None
    stage: Stage = attrs.field(default=Stage.NEW, init=False)
    queued_at: int = attrs.field(default=0, init=False)
    granted_at: int = attrs.field(default=0, init=False)
    turn: "asyncio.Future[None] | None" = attrs.field(default=None, init=False)
    was_sent: bool = attrs.field(default=False, init=False)

    @property
    def waited(self) -> float:
        """How many seconds it waited for its turn, once it is granted."""
        return 0.0 if self.turn is None else (self.granted_at - self.queued_at) / SECOND

    @property
    def limit(self) -> str:
        """The name of the limit of its endpoint."""
        return self.kind.buckets[0].name

    @property
    def is_in_flight(self) -> bool:
        """Whether an answer may still come."""
        return self.stage is Stage.GRANTED or self.stage is Stage.SENT

    @property
    def is_cancelled(self) -> bool:
        """Whether the request has stopped waiting for its turn."""
        return self.turn is not None and self.turn.done()

    async def __aenter__(self) -> Self:
        turn = self._owner.enter(self)
        if turn is not None:
            try:
                await turn
            except BaseException:
                self._owner.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.leave(self)

    def mark_sent(self) -> None:
        """Note that the request is about to be written; until then, leaving refunds the grant."""
        if self.stage is Stage.GRANTED:
            self.stage = Stage.SENT
            self.was_sent = True

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        """Report the answer, whatever its status.

        Args:
            status: the HTTP status.
            headers: the headers, with names in lower case (or looked up without regard to case).
        """
        self._owner.learn(self, status, headers)

    def mark_lost(self) -> None:
        """Report that no answer came: a timeout or a reset connection."""
        self._owner.settle_lost(self)
