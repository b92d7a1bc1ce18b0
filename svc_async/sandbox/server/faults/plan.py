"""Which requests a fault strikes, and how often it did."""

import itertools
import random
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import attrs

from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.server.faults.fault import Fault, Stage

__all__ = ["METHODS", "Faults", "Injection", "Plan"]

METHODS = ("*", "GET", "POST", "PUT", "DELETE")


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
        """Whether it struck less often than planned."""
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
        _check_whole(number, "nth")
        return attrs.evolve(self, when=f"only request {number}", chooser=lambda seen, _: seen == number)

    def once(self) -> "Plan":
        """Strike once: the first of the matching requests that no fault armed before strikes at the same stage."""
        return self.times(1)

    def times(self, number: int) -> "Plan":
        """Strike the first `number` of the matching requests that no fault armed before strikes at the same stage.

        Raises:
            ValueError: the number is not a whole number from 1.
        """
        _check_whole(number, "times")
        when = "the first request" if number == 1 else f"the first {number} requests"
        return attrs.evolve(self, expected=number, when=when, chooser=lambda _, struck: struck < number)

    def probability(self, share: float, *, seed: int) -> "Plan":
        """Strike a random share of them, from 0 to 1, drawn from a seed.

        Raises:
            ValueError: the share is not a number from 0 to 1.
        """
        if not _is_share(share):
            raise ValueError("probability must be a number from 0 to 1")
        draw = random.Random(seed)  # noqa: S311 seeded, for tests
        return attrs.evolve(
            self, expected=0, when=f"{share:.0%} of the requests", chooser=lambda _, __: draw.random() < share
        )

    def do(self, fault: Fault, *, stage: Stage | None = None) -> Injection:
        """Arm the fault.

        Args:
            fault: such as `Fault.http(503)`.
            stage: when it strikes a request; by default, that of the fault.

        Raises:
            TypeError: it is no fault.
            ValueError: there is no such stage, or the fault can never strike there, or what the plan selects.
        """
        if not isinstance(fault, Fault):
            raise TypeError("fault must be a Fault, such as Fault.http(503)")
        if stage is not None:
            check_kind("stage", Stage, stage)
        if (stage or fault.stage) not in fault.stages:
            raise ValueError(f"stage must be {' or '.join(fault.stages)} for {fault.name}")
        if fault.calls is not None and not fault.calls.may_match(self.method, self.path):
            raise ValueError(
                f"method and path must select {fault.calls.name} for {fault.name}, such as {fault.calls.example}"
            )
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
            ValueError: no request has such a method, or the pattern is no string.
        """
        if str(method).upper() not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}")
        if not isinstance(path, str):
            raise ValueError("path must be a pattern, such as */users")  # noqa: TRY004 - wrong settings raise one kind of error
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


def _check_whole(number: object, name: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} must be a whole number from 1")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
