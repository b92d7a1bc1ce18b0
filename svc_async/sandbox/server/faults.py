"""Faults, injected on purpose: when they strike, and what they do.

    sandbox.faults.on("POST", "*/custom_audiences/*/users").nth(2).do(Fault.http(503))
    sandbox.faults.on("PUT").once().do(Fault.drop_connection(), stage="after")

A fault strikes `before` the request is processed, instead of its `effect`, or `after` it took effect. Every armed fault
counts every request that matches it. Of several that would strike a request at the same stage, the one that was armed
first does.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, get_args

import attrs
import msgspec

from svc_async.sandbox.kinds import WrongArgument, check_bounds, check_kind
from svc_async.sandbox.refusal import Problem
from svc_async.sandbox.server.exchange import Act, Exchange, Stage
from svc_async.sandbox.server.rendering import Reply, render_json

__all__ = ["METHODS", "STAGES", "Fault", "Faults", "Injection", "Plan", "Stage"]

METHODS = ("*", "GET", "POST", "PUT", "DELETE")
STAGES: tuple[Stage, ...] = get_args(Stage)

_PREFIXES = ("/ads", "/ads-sandbox")
_ID = re.compile(r"{\w+}")
_SET = re.compile(r"\[!?\]?[^\]]*\]")
_ID_PLACE = "\0"
"""Stands for an id in the path of a call."""


@attrs.frozen
class Calls:
    """Calls of the advertising API.

    Attributes:
        name: what they are, in messages.
        example: a method and a pattern that select them.
        methods: their methods.
        paths: their paths, with the names of ids in braces.
    """

    name: str
    example: str
    methods: tuple[str, ...]
    paths: tuple[str, ...]

    def include(self, method: str, path: str) -> bool:
        """Return whether a request is one of them."""
        if method not in self.methods:
            return False
        known = "|".join(_ID.sub("[^/]+", each) for each in self.paths)
        return re.fullmatch(f"(?:{'|'.join(_PREFIXES)})(?:{known})", path) is not None

    def may_match(self, method: str, pattern: str) -> bool:
        """Return whether a method, or `*`, and a pattern of the path can select one of them."""
        paths = (f"{prefix}{path}" for prefix in _PREFIXES for path in self.paths)
        return method in ("*", *self.methods) and any(_may_match_path(pattern, path) for path in paths)


def _may_match_path(pattern: str, path: str) -> bool:
    """Return whether a pattern of `fnmatch` matches the path with any ids; a set such as `[ab]` is any character."""
    known = _ID.sub(_ID_PLACE, path)
    places = {0}  # how far in the path the pattern so far may reach
    for wanted in _SET.sub("?", pattern):
        if not places:
            return False
        if wanted == "*":
            places = set(range(min(places), len(known) + 1))
        else:
            places = {after for place in places for after in _list_next(known, place, wanted)}
    return len(known) in places


def _list_next(known: str, place: int, wanted: str) -> Sequence[int]:
    """Return the places behind one more character; an id has one or more, none of them a slash."""
    each = known[place : place + 1]
    if each == _ID_PLACE and wanted != "/":
        return place, place + 1
    return (place + 1,) if each and wanted in ("?", each) else ()


BATCHES_OF_USERS = Calls(
    "a batch of users",
    "POST */users",
    ("POST",),
    (
        "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users",
        "/12/batch/accounts/{account_id}/do_not_reach_lists/{do_not_reach_list_id}/users",
    ),
)
BATCHES_OF_PRODUCTS = Calls(
    "an upsert or a deletion of products",
    "PUT */products",
    ("PUT", "DELETE"),
    ("/12/product_catalogs/{product_catalog_id}/products",),
)


@attrs.frozen
class Fault:
    """A failure to inject.

    Attributes:
        name: its name in messages.
        calls: the only calls that it can strike; None for all.
        stages: the stages at which it can strike.
    """

    name: str
    act: Act = attrs.field(repr=False)
    stage: Stage = "before"
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
            raise WrongArgument("status", "must be an error, from 400 to 599; give body= for an answer of success")
        code = code or _CODES.get(status) or ("" if body is not None else _find_status(status).name)
        problem = Problem(code, message)

        async def act(exchange: Exchange, reply: Reply | None) -> Reply:
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

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
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

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
            await exchange.pause(seconds)
            return reply

        return cls(f"latency({seconds:g})", act)

    @classmethod
    def hang(cls) -> "Fault":
        """Never answer, so that the client's timeout ends the wait; a clock that jumps moves to it."""

        async def act(exchange: Exchange, reply: Reply | None) -> None:
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

        async def act(exchange: Exchange, reply: Reply | None) -> None:
            await exchange.send(reply or Reply(200, b"{}"), cut=size)

        return cls(f"truncate({size})", act, stage="after")

    @classmethod
    def slow_body(cls, seconds: float) -> "Fault":
        """Send the answer's body in four pieces with this many seconds on the clock between them."""
        check_kind("seconds", float, seconds)

        async def act(exchange: Exchange, reply: Reply | None) -> None:
            await exchange.send(reply or Reply(200, b"{}"), pause=seconds)

        return cls(f"slow_body({seconds:g})", act, stage="after")

    @classmethod
    def malformed_json(cls) -> "Fault":
        """Answer with a body that begins like the answer and is not JSON."""

        async def act(exchange: Exchange, reply: Reply | None) -> Reply:
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

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
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
            ValueError: the messages are not a mapping of positions to strings.
        """
        problems = _make_problems(messages, code)

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
            return exchange.refuse_operations(problems) or reply

        return cls("operation_errors", act, calls=BATCHES_OF_USERS)

    @classmethod
    def product_errors(cls, messages: Mapping[int, str], *, code: str = "INVALID_PARAMETER") -> "Fault":
        """Refuse the products at these positions of an upsert, or keys of a deletion, and process the others.

        Raises:
            ValueError: the messages are not a mapping of positions to strings.
        """
        problems = _make_problems(messages, code)

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
            exchange.refused_items.update(problems)
            return reply

        stages: tuple[Stage, ...] = ("before", "effect")
        return cls("product_errors", act, calls=BATCHES_OF_PRODUCTS, stages=stages)

    @classmethod
    def late(cls, seconds: float, then: "Fault | None" = None) -> "Fault":
        """Apply the request some seconds later on the clock; at first do `then`, by default drop the connection."""
        check_kind("seconds", float, seconds)
        check_kind("then", Fault | None, then)
        meanwhile = then or cls.drop_connection()

        async def act(exchange: Exchange, reply: Reply | None) -> Reply | None:
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
    if not (
        isinstance(messages, Mapping)
        and messages
        and all(type(each) is int and each >= 0 for each in messages)
        and all(isinstance(message, str) for message in messages.values())
    ):
        raise WrongArgument("messages", 'must be a mapping of positions from 0 to strings, such as {0: "a message"}')
    return {position: Problem(code, message) for position, message in messages.items()}


def _check_status(status: int) -> None:
    check_kind("status", int, status)
    if status not in _STATUSES:
        raise WrongArgument("status", "must be from 200 to 599")


def _find_status(status: int) -> HTTPStatus:
    try:
        return HTTPStatus(status)
    except ValueError:
        raise WrongArgument("status", "must have a name in HTTP, such as 503, unless code= is given") from None


def _drop(*, reset: bool) -> Act:
    async def act(exchange: Exchange, reply: Reply | None) -> None:
        del reply
        exchange.drop(reset=reset)

    return act


def _reply_with(reply: Reply) -> Act:
    async def act(exchange: Exchange, before: Reply | None) -> Reply:
        del exchange, before
        return reply

    return act


@attrs.define
class Injection:
    """A fault that is armed for matching requests.

    Attributes:
        number: tells it from the others, counted from 1.
        seen: matching requests so far, whichever fault struck them.
        struck: how often it struck.
        preempted: how often another, armed before, struck in its place.
    """

    plan: "Plan"
    fault: Fault
    stage: Stage
    number: int
    seen: int = 0
    struck: int = 0
    preempted: int = 0

    def applies_to(self, method: str, path: str, *, is_taken: bool) -> bool:
        """Count a request and return whether the fault strikes it; not if another `is_taken` for its stage."""
        calls = self.fault.calls
        if not self.plan.matches(method, path) or not (calls is None or calls.include(method, path)):
            return False
        self.seen += 1
        if not self.plan.selects(self.seen, self.struck):
            return False
        self.preempted += is_taken
        self.struck += not is_taken
        return not is_taken

    @property
    def unused(self) -> bool:
        """True if the fault struck less often than planned."""
        return self.struck < self.plan.expected

    def __str__(self) -> str:
        return f"{self.fault.name} on {self.plan.method} {self.plan.path}, {self.stage}: struck {self.struck} times"


@attrs.define
class Plan:
    """The requests that a fault strikes: all that match, until it is narrowed.

    Attributes:
        expected: how often it should strike at least.
        when: which of the matching requests it strikes, in words.
    """

    faults: "Faults" = attrs.field(repr=False)
    method: str
    path: str
    expected: int = 1
    when: str = "every request"
    _chooser: Callable[[int, int], bool] = attrs.field(default=lambda _, __: True, repr=False)

    def nth(self, number: int) -> "Plan":
        """Strike only the nth of the matching requests, counted from 1, whichever faults struck those before it.

        It does not strike at all if a fault that was armed before strikes this request at the same stage.

        Raises:
            ValueError: the number is not a whole number from 1.
        """
        check_bounds("nth", int, number, least=1)
        return attrs.evolve(self, when=f"only request {number}", chooser=lambda seen, _: seen == number)

    def once(self) -> "Plan":
        """Strike once: the first of the matching requests that no fault armed before strikes at the same stage."""
        return self.times(1)

    def times(self, number: int) -> "Plan":
        """Strike the first `number` of the matching requests that no fault armed before strikes at the same stage.

        Raises:
            ValueError: the number is not a whole number from 1.
        """
        check_bounds("times", int, number, least=1)
        when = "the first request" if number == 1 else f"the first {number} requests"
        return attrs.evolve(self, expected=number, when=when, chooser=lambda _, struck: struck < number)

    def probability(self, share: float, *, seed: int) -> "Plan":
        """Strike a random share of them, from 0 to 1, drawn from a seed.

        Raises:
            ValueError: the share is not a number from 0 to 1.
        """
        check_kind("probability", float, share)
        if not 0 <= share <= 1:
            raise WrongArgument("probability", "must be a number from 0 to 1")
        draw = random.Random(seed)  # noqa: S311 seeded, for tests
        return attrs.evolve(
            self, expected=0, when=f"{share:.0%} of the requests", chooser=lambda _, __: draw.random() < share
        )

    def do(self, fault: Fault, *, stage: Stage | None = None) -> Injection:
        """Arm the fault.

        Args:
            fault: such as `Fault.http(503)`.
            stage: when it strikes a request; by default, the stage of the fault.

        Raises:
            WrongArgument: it is not a fault, there is no such stage, or the fault can never strike there, or what the
                plan selects.
        """
        check_kind("fault", Fault, fault)
        if stage is not None:
            check_kind("stage", Stage, stage)
        if (stage or fault.stage) not in fault.stages:
            raise WrongArgument("stage", f"must be {' or '.join(fault.stages)} for {fault.name}")
        if fault.calls is not None and not fault.calls.may_match(self.method, self.path):
            rule = f"and path must select {fault.calls.name} for {fault.name}, such as {fault.calls.example}"
            raise WrongArgument("method", rule)
        injection = Injection(self, fault, stage or fault.stage, next(self.faults.numbers))
        self.faults.armed.append(injection)
        return injection

    def matches(self, method: str, path: str) -> bool:
        """Return whether the method and the path match."""
        return self.method in ("*", method) and fnmatchcase(path, self.path)

    def selects(self, seen: int, struck: int) -> bool:
        """Return whether a fault that has struck this often would strike the matching request with this number."""
        return self._chooser(seen, struck)


@attrs.define
class Faults:
    """The faults of one sandbox."""

    armed: list[Injection] = attrs.field(factory=list[Injection])
    numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), repr=False)

    def on(self, method: str = "*", path: str = "*") -> Plan:
        """Select requests by method and by a pattern of the path.

        Raises:
            ValueError: no request has such a method, or the pattern is not a string.
        """
        if str(method).upper() not in METHODS:
            raise WrongArgument("method", f"must be one of {', '.join(METHODS)}")
        check_kind("path", str, path)
        return Plan(self, method.upper(), path)

    def match(self, method: str, path: str) -> dict[Stage, Fault]:
        """Return the faults that strike a request, at most one a stage: the first that was armed."""
        struck: dict[Stage, Fault] = {}
        for injection in self.armed:
            if injection.applies_to(method, path, is_taken=injection.stage in struck):
                struck[injection.stage] = injection.fault
        return struck

    def unused(self) -> list[Injection]:
        """Return those that struck less often than planned."""
        return [injection for injection in self.armed if injection.unused]

    def disarm(self, number: int) -> bool:
        """Disarm one by its number; return whether it was armed."""
        before = len(self.armed)
        self.armed = [injection for injection in self.armed if injection.number != number]
        return len(self.armed) < before

    def clear(self) -> None:
        """Disarm all."""
        self.armed.clear()
