"""What a fault does to the request that it strikes."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Literal, Protocol, get_args

import attrs
import msgspec

from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.refusal import Problem
from svc_async.sandbox.server.faults.calls import BATCHES_OF_PRODUCTS, BATCHES_OF_USERS, Calls
from svc_async.sandbox.server.rendering import Reply, render_json

__all__ = ["STAGES", "Fault", "FaultTarget", "Stage"]

Stage = Literal["before", "effect", "after"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class FaultTarget(Protocol):
    """What a fault may do to the request that it strikes."""

    @property
    def time(self) -> float:
        """The Unix time of the sandbox."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let time pass on the sandbox's clock."""

    async def send(self, reply: Reply, *, cut: int | None = None, pause: float = 0.0) -> None:
        """Send an answer in an unusual way: cut short after `cut` bytes, or with `pause` seconds between its pieces."""

    def drop(self, *, reset: bool) -> None:
        """Close the connection without an answer."""

    async def hang(self) -> None:
        """Stay silent until the client disconnects or the sandbox closes."""

    def take_effect_in(self, seconds: float) -> None:
        """Apply the request later, without answering it."""

    def refuse(self, status: int, problem: Problem, headers: Mapping[str, str]) -> Reply:
        """Return a refusal in the format of this part of the service."""
        ...

    def refuse_operations(self, by_operation: Mapping[int, Problem]) -> Reply | None:
        """Return the answer that refuses a group because of some of its operations; None if it is no group."""
        ...

    @property
    def refused_items(self) -> dict[int, Problem]:
        """The items that the request refuses, by their positions; it processes the others."""
        ...


Act = Callable[[FaultTarget, Reply | None], Awaitable[Reply | None]]
"""Acts on an exchange and the reply so far; returns the reply to continue with, or None if there is none (yet)."""


@attrs.frozen
class Fault:
    """A failure to inject.

    Attributes:
        name: its name in messages.
        ends: whether the request is over when the fault has acted, even without a reply.
        calls: the only calls that it can strike; None for all.
        stages: the stages at which it can strike.
    """

    name: str
    act: Act = attrs.field(repr=False)
    stage: Stage = "before"
    ends: bool = True
    calls: Calls | None = None
    stages: tuple[Stage, ...] = STAGES

    @classmethod
    def http(
        cls,
        status: int,
        *,
        code: str | None = None,
        message: str = "injected",
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> "Fault":
        """Answer with an error, in the format of this part of the service, or with a `body` and any status from 200.

        Raises:
            ValueError: an argument is of another type, or the status is not one of an error, or needs a `code`.
        """
        check_kind("retry_after", float | None, retry_after)
        check_kind("headers", Mapping[str, str] | None, headers)
        sent = dict(headers or {})
        if retry_after is not None:
            sent["retry-after"] = f"{retry_after:g}"
        _check_status(status)
        if body is None and status < HTTPStatus.BAD_REQUEST:
            raise ValueError("status must be one of an error, from 400 to 599; give body= for an answer of success")
        code = code or _CODES.get(status) or ("" if body is not None else _find_status(status).name)
        problem = Problem(code, message)

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply:
            del reply
            return exchange.refuse(status, problem, sent) if body is None else Reply(status, body, headers=sent)

        return cls(f"http({status})", act)

    @classmethod
    def rate_limited(cls, reset: float | None = None, *, headers: bool = True, limit: int = 1500) -> "Fault":
        """Answer 429.

        Args:
            reset: seconds from now, also negative, for `x-rate-limit-reset`; None leaves that header out.
            headers: False leaves all rate headers out.
            limit: the value of `x-rate-limit-limit`.
        """

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            del reply
            sent = {"x-rate-limit-limit": str(limit), "x-rate-limit-remaining": "0"} if headers else {}
            if headers and reset is not None:
                sent["x-rate-limit-reset"] = str(round(exchange.time + reset))
            return exchange.refuse(429, Problem("TOO_MANY_REQUESTS", "injected"), sent)

        return cls("rate_limited", act)

    @classmethod
    def latency(cls, seconds: float) -> "Fault":
        """Wait this long on the sandbox's clock, then continue."""
        check_kind("seconds", float, seconds)

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            await exchange.pause(seconds)
            return reply

        return cls(f"latency({seconds:g})", act, ends=False)

    @classmethod
    def hang(cls) -> "Fault":
        """Never answer, so that the client's timeout ends the wait; a clock that jumps moves to it."""

        async def act(exchange: FaultTarget, reply: Reply | None) -> None:
            del reply
            await exchange.hang()

        return cls("hang", act)

    @classmethod
    def drop_connection(cls) -> "Fault":
        """Close the connection without an answer."""
        return cls("drop_connection", _drop(reset=False))

    @classmethod
    def reset_connection(cls) -> "Fault":
        """Reset the connection (RST) without an answer."""
        return cls("reset_connection", _drop(reset=True))

    @classmethod
    def truncate(cls, size: int) -> "Fault":
        """Send only the first bytes of the answer's body, then close."""
        check_kind("size", int, size)

        async def act(exchange: FaultTarget, reply: Reply | None) -> None:
            await exchange.send(reply or Reply(200, b"{}"), cut=size)

        return cls(f"truncate({size})", act, stage="after")

    @classmethod
    def slow_body(cls, seconds: float) -> "Fault":
        """Send the answer's body in four pieces with this many seconds on the clock between them."""
        check_kind("seconds", float, seconds)

        async def act(exchange: FaultTarget, reply: Reply | None) -> None:
            await exchange.send(reply or Reply(200, b"{}"), pause=seconds)

        return cls(f"slow_body({seconds:g})", act, stage="after")

    @classmethod
    def malformed_json(cls) -> "Fault":
        """Answer with a body that begins like the answer and is not JSON."""

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply:
            del exchange
            whole = reply or Reply(200, b"{}")
            return attrs.evolve(whole, body=whole.body[: len(whole.body) // 2] + b"\x00}{")

        return cls("malformed_json", act, stage="after")

    @classmethod
    def empty(cls, status: int = 200) -> "Fault":
        """Answer without a body.

        Raises:
            ValueError: there is no such status.
        """
        _check_status(status)
        return cls("empty", _reply_with(Reply(status)), stage="after")

    @classmethod
    def html(cls, status: int = 502) -> "Fault":
        """Answer with an HTML page.

        Raises:
            ValueError: there is no such status, or HTTP has no name for it.
        """
        _check_status(status)
        page = f"<html><body><h1>{status} {_find_status(status).phrase}</h1></body></html>".encode()
        return cls(f"html({status})", _reply_with(Reply(status, page, "text/html; charset=utf-8")))

    @classmethod
    def partial_counts(cls, *, success: int, total: int | None = None) -> "Fault":
        """Apply a batch of users and answer with these counts; without `total`, with the right one."""

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            del exchange
            if reply is None or reply.status >= HTTPStatus.BAD_REQUEST:
                return reply
            answer: dict[str, Any] = msgspec.json.decode(reply.body)
            for counts in answer["data"] if isinstance(answer["data"], list) else [answer["data"]]:
                counts.update(success_count=success, total_count=counts["total_count"] if total is None else total)
            return attrs.evolve(reply, body=render_json(answer))

        return cls("partial_counts", act, stage="after", calls=BATCHES_OF_USERS, stages=("after",))

    @classmethod
    def operation_errors(cls, messages: Mapping[int, str], *, code: str = "INVALID_PARAMETER") -> "Fault":
        """Refuse a batch of users because of the operations at these positions.

        Raises:
            ValueError: the messages are no strings by positions.
        """
        problems = _make_problems(messages, code)

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            return exchange.refuse_operations(problems) or reply

        return cls("operation_errors", act, ends=False, calls=BATCHES_OF_USERS)

    @classmethod
    def product_errors(cls, messages: Mapping[int, str], *, code: str = "INVALID_PARAMETER") -> "Fault":
        """Refuse the products at these positions of an upsert, or keys of a deletion, and process the others.

        Raises:
            ValueError: the messages are no strings by positions.
        """
        problems = _make_problems(messages, code)

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            exchange.refused_items.update(problems)
            return reply

        stages: tuple[Stage, ...] = ("before", "effect")
        return cls("product_errors", act, ends=False, calls=BATCHES_OF_PRODUCTS, stages=stages)

    @classmethod
    def late(cls, seconds: float, then: "Fault | None" = None) -> "Fault":
        """Apply the request some seconds later on the clock; at first do `then`, by default drop the connection."""
        check_kind("seconds", float, seconds)
        check_kind("then", Fault | None, then)
        meanwhile = then or cls.drop_connection()

        async def act(exchange: FaultTarget, reply: Reply | None) -> Reply | None:
            exchange.take_effect_in(seconds)
            return await meanwhile.act(exchange, reply)

        return cls(f"late({seconds:g})", act, stage="effect", calls=meanwhile.calls)


_STATUSES = range(200, 600)
_CODES = {
    401: "UNAUTHORIZED_ACCESS",
    408: "CANCELLED_REQUEST",
    423: "LOCK_ACQUISITION_TIMEOUT",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_ERROR",
    503: "OVER_CAPACITY",
}


def _make_problems(messages: Any, code: str) -> Mapping[int, Problem]:
    if not isinstance(messages, Mapping) or not messages or not all(map(_is_message, messages.items())):
        raise ValueError('messages must be a mapping of positions from 0 to strings, such as {0: "a message"}')
    return {position: Problem(code, message) for position, message in messages.items()}


def _is_message(item: tuple[object, object]) -> bool:
    position, message = item
    return isinstance(position, int) and not isinstance(position, bool) and position >= 0 and isinstance(message, str)


def _check_status(status: int) -> None:
    check_kind("status", int, status)
    if status not in _STATUSES:
        raise ValueError("status must be from 200 to 599")


def _find_status(status: int) -> HTTPStatus:
    try:
        return HTTPStatus(status)
    except ValueError:
        raise ValueError("status must be one that HTTP has a name for, such as 503, unless code= is given") from None


def _drop(*, reset: bool) -> Act:
    async def act(exchange: FaultTarget, reply: Reply | None) -> None:
        del reply
        exchange.drop(reset=reset)

    return act


def _reply_with(reply: Reply) -> Act:
    async def act(exchange: FaultTarget, before: Reply | None) -> Reply:
        del exchange, before
        return reply

    return act
