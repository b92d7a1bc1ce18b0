"""Paired measurements: two ways to do one job, in turn, on the same machine, at the same time.

A ratio of two runs side by side holds on other machines and under other load; a time by itself does not. So every
figure is the median of ratios, of at least seven pairs, and the order within a pair changes from pair to pair. A figure
within 3 % of its target has reached it: machines do not repeat themselves more exactly than that.
"""

import enum
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from svc_async.users.identifiers import HASH_LIBRARY

__all__ = [
    "HAS_FAST_HASH",
    "USERS_PER_OPERATION",
    "Bound",
    "Figure",
    "Pairs",
    "Scale",
    "at_least",
    "at_most",
    "describe_settings",
    "measure_cost",
    "measure_pairs",
]

USERS_PER_OPERATION = 25
"""The default."""
_DEFAULTS = "defaults"
"""The settings of a job that names none."""
HAS_FAST_HASH = HASH_LIBRARY != "hashlib"
"""Whether the extra `fast` is installed, and so in use."""
_TOLERANCE = 0.03


class Scale(enum.Enum):
    """The size of a run."""

    QUICK = "quick"
    """A smoke run: checks that everything works, not how fast."""
    NORMAL = "normal"
    FULL = "full"
    """As normal, with ten million rows for the memory figures."""

    def pick(self, quick: int, normal: int, full: int | None = None) -> int:
        """Return the number of this scale."""
        sizes = {Scale.QUICK: quick, Scale.NORMAL: normal, Scale.FULL: normal if full is None else full}
        return sizes[self]

    @property
    def pairs(self) -> int:
        """How many pairs are measured."""
        return self.pick(1, 7)


@attrs.frozen
class Bound:
    """The value that a figure should reach."""

    sign: str
    value: float

    def holds(self, value: float) -> bool:
        """Return whether a value reaches it, or comes within 3 % of it."""
        if self.sign == "≥":
            return value >= self.value * (1 - _TOLERANCE)
        return value <= self.value * (1 + _TOLERANCE)

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


def at_least(value: float) -> Bound:
    """Return a bound from below."""
    return Bound("≥", value)


def at_most(value: float) -> Bound:
    """Return a bound from above."""
    return Bound("≤", value)


def describe_settings(users_per_operation: int) -> str:
    """Return the settings of a job with this number of users an operation."""
    return _DEFAULTS if users_per_operation == USERS_PER_OPERATION else f"{users_per_operation} an operation"


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the table.

    Attributes:
        job: what is done.
        value: the figure.
        unit: of the value; `x` is a ratio to the floor.
        target: what it should reach, if it was set a target.
        fast_target: the same with the extra `fast`, if that is another.
        settings: those of the job that are not the defaults.
        floor: what it is compared with.
        spread: the lowest and highest ratio of the pairs.
        notes: further results of the run, by name.
    """

    job: str
    value: float
    unit: str = "x"
    target: Bound | None = None
    fast_target: Bound | None = None
    settings: str = _DEFAULTS
    floor: str = ""
    spread: tuple[float, float] | None = None
    notes: Mapping[str, float | int | str] = attrs.field(factory=dict)

    @property
    def verdict(self) -> str:
        """Whether the target of this environment is reached, in a word."""
        target = (HAS_FAST_HASH and self.fast_target) or self.target
        if target is None:
            return "-"
        return "reached" if target.holds(self.value) else "MISSED"


@attrs.frozen
class Pairs:
    """The cost of both ways in each pair, in seconds."""

    ours: Sequence[float]
    floor: Sequence[float]

    @property
    def costs(self) -> Sequence[float]:
        """Our time as a multiple of the floor's, pair by pair; less is better."""
        return [ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)]

    @property
    def speeds(self) -> Sequence[float]:
        """Our speed as a multiple of the floor's, pair by pair; more is better."""
        return [floor / ours for ours, floor in zip(self.ours, self.floor, strict=True)]

    def report_cost(self, job: str, target: Bound | None = None, **about: Any) -> Figure:
        """Return the figure of a cost; `about` are attributes of the figure."""
        return _make_figure(self.costs, job, target, about)

    def report_speed(self, job: str, target: Bound | None = None, **about: Any) -> Figure:
        """Return the figure of a speed; `about` are attributes of the figure."""
        return _make_figure(self.speeds, job, target, about)


def _make_figure(ratios: Sequence[float], job: str, target: Bound | None, about: Mapping[str, Any]) -> Figure:
    notes = {"pairs": len(ratios), **about.get("notes", {})}
    spread = min(ratios), max(ratios)
    return Figure(job=job, value=statistics.median(ratios), target=target, spread=spread, **{**about, "notes": notes})


def measure_cost(work: Callable[[], object]) -> float:
    """Measure the processor time of this process for some work, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure_pairs(ours: Callable[[], float], floor: Callable[[], float], scale: Scale) -> Pairs:
    """Measure both in turn; each returns its cost. A first pair warms up and does not count."""
    costs: tuple[list[float], list[float]] = ([], [])
    for index in range(scale.pairs + 1):
        for which in (0, 1) if index % 2 else (1, 0):
            costs[which].append((ours, floor)[which]())
    return Pairs(costs[0][1:], costs[1][1:])
