"""Finds the answer behind the value of a call, whatever awaitable makes the call."""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Final, TypeVar

import attrs

from svc_async.errors import InvalidArgument, Sent, WrongState
from svc_async.wire.envelope import CallAnswer

__all__ = ["AnswerCollector", "await_with_answer", "current_collector"]

T = TypeVar("T")

_UNANSWERED: Final = "no call of this session was answered within the awaitable"
_NEXT_STEP: Final = "check what it has done before you repeat it"
_CALL_OF_ANOTHER: Final = f"but one of another session was: await with_answer() of that one; {_NEXT_STEP}"
_NO_CALL: Final = f"as when a job has nothing to send: await it without with_answer(); {_NEXT_STEP}"


@attrs.define(eq=False)
class AnswerCollector:
    """Receives the answers of the calls that a block makes in one session.

    Attributes:
        session: what all calls of that session have in common.
        outer: what receives the answers for the surrounding block.
        last: the last answer.
        has_others: whether calls of another session were answered.
    """

    session: object
    outer: "AnswerCollector | None"
    last: CallAnswer | None = None
    has_others: bool = False

    def receive(self, session: object, answer: CallAnswer) -> None:
        """Note an answer; it counts for the surrounding blocks as well."""
        if self.session is session:
            self.last = answer
        else:
            self.has_others = True
        if self.outer is not None:
            self.outer.receive(session, answer)


current_collector: ContextVar[AnswerCollector | None] = ContextVar("svc_async_answers", default=None)
"""What receives the answers of the calls made in this context."""


async def await_with_answer(awaitable: Awaitable[T], session: object) -> tuple[T, CallAnswer]:
    """Return the value of an awaitable, and the last answer that the session received meanwhile on its behalf.

    Raises:
        InvalidArgument: the awaitable is a task, which may have begun.
        WrongState: the session received no answer; what the awaitable did instead is not known.
    """
    if asyncio.isfuture(awaitable) or not isinstance(awaitable, Awaitable):
        rule = "must be a call that has not begun, such as session.accounts.get(id): neither a function nor a task"
        raise InvalidArgument("awaitable", rule)
    collector = AnswerCollector(session, current_collector.get())
    token = current_collector.set(collector)
    try:
        value = await awaitable
    finally:
        current_collector.reset(token)
    if collector.last is None:
        raise _describe_unanswered(collector)
    return value, collector.last


def _describe_unanswered(collector: AnswerCollector) -> WrongState:
    error = WrongState(f"{_UNANSWERED}, {_CALL_OF_ANOTHER if collector.has_others else _NO_CALL}")
    error.sent = Sent.MAYBE  # whatever the awaitable did, it has done it
    return error
