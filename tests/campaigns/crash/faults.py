"""What may become of a request: whether and when it takes effect, and how it is answered."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs

from tests.campaigns.crash.server import Exchange

__all__ = ["CALM", "WEIGHTS", "Fate", "Faults", "Right", "make_faults"]

Effect = Literal["now", "late", "never", "now and again"]
Right = bytes
"""The body of the right answer."""

_UNKNOWN: Sequence[Effect] = ("now", "late", "late", "never")
_NEVER: Sequence[Effect] = ("never",)
_NOW: Sequence[Effect] = ("now",)
_AGAIN: Sequence[Effect] = ("now and again",)

_PAGE = b"<html><body><h1>Sign in to the network</h1></body></html>"


@attrs.frozen
class _Fault:
    """A way to answer a request.

    Attributes:
        effects: what the request may have done when it is answered so.
        answer: answers an exchange, given the right answer.
        partial: only a part of the request takes effect.
    """

    effects: Sequence[Effect]
    answer: Callable[[Exchange, Right, random.Random], None]
    partial: bool = False


def _refuse(status: int, *, code: str = "FAILED", headers: Mapping[str, str] | None = None) -> Callable[..., None]:
    body = json.dumps({"errors": [{"code": code, "message": "no"}], "request": {"params": {}}}).encode()
    return lambda exchange, _, __: exchange.answer(status, body, headers)


def _fail_at_gateway(status: int) -> Callable[..., None]:
    """Answer as a gateway does: in the service's form, as a page, or with nothing."""

    def answer(exchange: Exchange, _: Right, dice: random.Random) -> None:
        form = dice.choice([b"", b"<html><h1>Bad gateway</h1></html>", b'{"errors":[{"code":"X","message":"no"}]}'])
        exchange.answer(status, form)

    return answer


def _limit(exchange: Exchange, _: Right, dice: random.Random) -> None:
    headers: dict[str, str] = {"x-rate-limit-limit": "1500", "x-rate-limit-remaining": "0"}
    reset = exchange.server.world.service_now().timestamp() + dice.choice([-5, 0, 1, 30, 60, 300])
    exchange.answer(429, b"", dice.choice([{}, headers | {"x-rate-limit-reset": str(int(reset))}]))


def _answer_foreign(exchange: Exchange, right: Right, dice: random.Random) -> None:
    """Answer with what was meant for another request."""
    others: list[Any] = [
        {"data": {"id": "8x7v00oow", "name": "campaign"}, "request": {"params": {}}},
        {"data": {"success_count": 977, "total_count": 977}, "request": {}},
        {"meta": {"result_count": 0}},
        [],
        None,
        json.loads(right)["request"] if b'"request"' in right else {},
    ]
    if exchange.method != "GET":  # whose answer it may well be
        others.append({"data": [], "request": {}, "next_cursor": None})
    exchange.answer(200, json.dumps(dice.choice(others)).encode())


def _answer_slowly(exchange: Exchange, right: Right, dice: random.Random) -> None:
    exchange.answer_in(dice.choice([1.0, 20.0, 59.0, 61.0, 300.0]), 200, right)


def _cut(exchange: Exchange, right: Right, dice: random.Random) -> None:
    exchange.cut(200, right, dice.random())


def _answer_garbage(exchange: Exchange, right: Right, _: random.Random) -> None:
    exchange.answer(200, right[: len(right) // 2])


def _drop(*, reset: bool) -> Callable[..., None]:
    return lambda exchange, _, __: exchange.drop(reset=reset)


def _hold(exchange: Exchange, _: Right, __: random.Random) -> None:
    exchange.hold()


def _answer(exchange: Exchange, right: Right, _: random.Random) -> None:
    exchange.answer(200, right)


def _answer_twice(exchange: Exchange, right: Right, _: random.Random) -> None:
    exchange.answer(200, right, copies=2)


def _answer_and_close(exchange: Exchange, right: Right, dice: random.Random) -> None:
    exchange.answer_and_close(200, right, dice.choice([0.0, 1.0, 10.0, 60.0]))


_RETRY = {"retry-after": "7"}

_ANSWERS: Mapping[str, _Fault] = {
    "fine": _Fault(_NOW, _answer),
    "slow": _Fault(_NOW, _answer_slowly),
    "answered twice": _Fault(_NOW, _answer_twice),
    "answered and closed": _Fault(_NOW, _answer_and_close),
    "500": _Fault(_UNKNOWN, _fail_at_gateway(500)),
    "502": _Fault(_UNKNOWN, _fail_at_gateway(502)),
    "504": _Fault(_UNKNOWN, _fail_at_gateway(504)),
    "408": _Fault(_UNKNOWN, _fail_at_gateway(408)),
    "503": _Fault(_UNKNOWN, _fail_at_gateway(503)),
    "503 with retry-after": _Fault(_NEVER, _refuse(503, headers=_RETRY)),
    "423": _Fault(_NEVER, _refuse(423)),
    "429": _Fault(_NEVER, _limit),
    "too many jobs": _Fault(_NEVER, _refuse(400, code="TOO_MANY_JOBS")),
    "reset": _Fault(_UNKNOWN, _drop(reset=True)),
    "closed": _Fault(_UNKNOWN, _drop(reset=False)),
    "no answer": _Fault(_UNKNOWN, _hold),
    "cut": _Fault(_UNKNOWN, _cut),
    "garbage": _Fault(_UNKNOWN, _answer_garbage),
    "page": _Fault(_UNKNOWN, lambda exchange, _, __: exchange.answer(200, _PAGE)),
    "empty": _Fault(_UNKNOWN, lambda exchange, _, __: exchange.answer(200, b"")),
    "foreign": _Fault(_UNKNOWN, _answer_foreign),
    "partial": _Fault(_NOW, _answer, partial=True),
    "fine and sent again": _Fault(_AGAIN, _answer),
}

Faults = Mapping[str, float]
"""What may happen to a request, with its weight."""

CALM: Faults = {"fine": 1.0}
WEIGHTS: Mapping[str, float] = {name: 1.0 for name in _ANSWERS if not name.startswith("fine")} | {
    "429": 0.4,
    "no answer": 0.5,
}
"""How often faults strike, compared to each other; without the one of which no job is safe."""


@attrs.frozen
class Fate:
    """What becomes of one request.

    Attributes:
        name: the kind of its answer.
        effect: when it takes effect.
    """

    name: str
    effect: Effect

    @classmethod
    def draw(cls, faults: Faults, dice: random.Random) -> "Fate":
        """Choose a fate."""
        (name,) = dice.choices([*faults], [*faults.values()])
        return cls(name, dice.choice(_ANSWERS[name].effects))

    @property
    def is_answered(self) -> bool:
        """Whether the client gets the right answer, sooner or later."""
        return self.name in {"fine", "slow", "answered twice", "answered and closed", "partial", "fine and sent again"}

    @property
    def partial(self) -> bool:
        """Whether only a part takes effect."""
        return _ANSWERS[self.name].partial

    def answer(self, exchange: Exchange, right: Right, dice: random.Random) -> None:
        """Answer a request, given the right answer."""
        _ANSWERS[self.name].answer(exchange, right, dice)


def make_faults(share: float, weights: Mapping[str, float] = WEIGHTS) -> Faults:
    """Return faults that strike this share of all requests."""
    whole = sum(weights.values())
    return {"fine": 1 - share} | {name: share * weight / whole for name, weight in weights.items()}
