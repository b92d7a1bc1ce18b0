"""The service under test: it keeps what it is sent, and fails in every way.

It knows nothing of the SDK. `Holdings` say what a request means; the service decides what becomes of it. What takes
effect late does so in the order of time, before anything that happens later is looked at.
"""

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import attrs

from tests.campaigns.crash.faults import CALM, Fate, Faults
from tests.campaigns.crash.server import Exchange
from tests.campaigns.crash.world import World

__all__ = ["Holdings", "Service"]


class Holdings(Protocol):
    """What a service keeps."""

    def find_refused(self, exchange: Exchange) -> Mapping[int, str]:
        """Return the operations that are refused, which refuse the whole request."""
        ...

    def apply(self, exchange: Exchange, *, partial: bool) -> bytes:
        """Do what a request asks for, or a part of it, and return the right answer to that."""
        ...


@attrs.define(eq=False)
class Service:
    """A service, and what happens to requests.

    Attributes:
        holdings: what it keeps.
        faults: what may happen to a request.
        latest: seconds after its sending by which a request has taken effect, if ever.
        restarts: the probability that a request is followed by a restart.
        jumps: the probability that the wall clock of the clients jumps at a request.
        jumps_between: the probability that it jumps between two lives.
        limit: requests in a minute that it takes; it refuses others.
        fates: how often what happened.
        late: requests that took effect late.
        crossed: those of them that did so after a later request had been received.
        requests: how many requests there were.
        over_limit: requests that were refused because there were too many.
        on_point: called when a request has taken effect or is going to, before it is answered.
    """

    world: World
    holdings: Holdings
    dice: random.Random
    faults: Faults = attrs.field(factory=lambda: CALM)
    latest: float = 115.0
    restarts: float = 0.0
    jumps: float = 0.0
    jumps_between: float = 0.0
    limit: int | None = None
    fates: Counter[str] = attrs.field(factory=Counter)
    late: int = 0
    crossed: int = 0
    requests: int = 0
    over_limit: int = 0
    on_point: Callable[[str], None] = lambda _: None
    _times: list[float] = attrs.field(factory=list)
    _effects: list[tuple[float, int, int, Callable[[], object]]] = attrs.field(factory=list)
    _numbers: "count[int]" = attrs.field(factory=count)

    def handle(self, exchange: Exchange) -> None:
        """Decide what becomes of a request."""
        self.take_late_effects(self.world.time)
        if self.world.time > exchange.sent_at + self.latest:  # the client was not waiting for it any more
            exchange.drop(reset=True)
            return
        self.requests += 1
        if self.jumps and self.dice.random() < self.jumps:
            self.world.jump = draw_jump(self.dice)
        if self._is_over_limit():
            self.over_limit += 1
            exchange.answer(429, b"", {"x-rate-limit-reset": str(int(self._now()) + 60)})
            return
        refused = self.holdings.find_refused(exchange)
        fate = Fate.draw(self.faults, self.dice)
        self.fates[f"{fate.name}, {fate.effect}"] += 1
        if refused:
            self._refuse(exchange, fate, refused)
        else:
            self._execute(exchange, fate)
        if self.dice.random() < self.restarts:
            exchange.server.restart(self.dice)

    def _now(self) -> float:
        return self.world.service_now().timestamp()

    def _is_over_limit(self) -> bool:
        now = self.world.time
        self._times = [moment for moment in self._times if moment > now - 60]
        if self.limit is not None and len(self._times) >= self.limit:
            return True
        self._times.append(now)
        return False

    def _refuse(self, exchange: Exchange, fate: Fate, refused: Mapping[int, str]) -> None:
        if fate.is_answered:
            exchange.answer(400, _write_refusal(refused))
        else:
            fate.answer(exchange, b'{"request":{},"data":{"success_count":0,"total_count":0}}', self.dice)

    def _execute(self, exchange: Exchange, fate: Fate) -> None:
        right = b'{"request":{},"data":{"success_count":1,"total_count":1}}'
        if fate.effect in {"now", "now and again"}:
            right = self.holdings.apply(exchange, partial=fate.partial)
        if fate.effect in {"late", "now and again"}:
            due = self.dice.uniform(self.world.time, exchange.sent_at + self.latest)
            effect = (due, next(self._numbers), self.requests, lambda: self.holdings.apply(exchange, partial=False))
            heapq.heappush(self._effects, effect)
            self.on_point("late")
        self.on_point("applied")
        fate.answer(exchange, right, self.dice)

    def take_late_effects(self, until: float) -> None:
        """Let what is due by then take effect."""
        while self._effects and self._effects[0][0] <= until:
            _, _, requests_before, effect = heapq.heappop(self._effects)
            effect()
            self.late += 1
            self.crossed += self.requests > requests_before


def draw_jump(dice: random.Random) -> float:
    """Return how far a wall clock that jumped is off."""
    far = dice.choice([5, 400, 400, 100_000])
    return dice.choice([0.0, dice.uniform(0, far), dice.uniform(0, far), dice.uniform(-far, 0)])


def _write_refusal(refused: Mapping[int, str]) -> bytes:
    last = max(refused)
    errors: Sequence[Any] = [
        [{"code": "INVALID_PARAMETER", "message": refused[index]}] if index in refused else []
        for index in range(last + 1)
    ]
    return json.dumps({"errors": [], "operation_errors": errors, "request": []}).encode()
