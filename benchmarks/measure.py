"""Paired measurements: two ways to do one job, in turn, on the same machine, at the same time.

A ratio of two runs that stand beside each other holds on other machines and under other load; a time by itself does
not. So every figure is the median of ratios, and the order within a pair changes from pair to pair.
"""

import enum
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

__all__ = ["Bound", "Figure", "Pairs", "Scale", "at_least", "at_most", "cost_of", "paired"]


class Scale(enum.Enum):
    """How much is measured."""

    QUICK = "quick"
    """A smoke run: that everything works, not how fast."""
    NORMAL = "normal"
    FULL = "full"
    """As normal, with the ten million rows of the memory figure."""

    def pick(self, quick: int, normal: int, full: int | None = None) -> int:
        """Give the number of this scale."""
        sizes = {Scale.QUICK: quick, Scale.NORMAL: normal, Scale.FULL: normal if full is None else full}
        return sizes[self]


@attrs.frozen
class Bound:
    """What a figure should reach."""

    sign: str
    value: float

    def holds(self, value: float) -> bool:
        """Whether a value reaches it."""
        return value >= self.value if self.sign == "≥" else value <= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


def at_least(value: float) -> Bound:
    """Bound from below."""
    return Bound("≥", value)


def at_most(value: float) -> Bound:
    """Bound from above."""
    return Bound("≤", value)


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the table.

    Attributes:
        job: what is done.
        value: the figure.
        unit: of the value; `x` is a ratio to the floor.
        target: what it should reach, if it was set a target.
        floor: what it is compared with.
        spread: the lowest and highest ratio of the pairs.
        notes: what else the run told, by name.
    """

    job: str
    value: float
    unit: str = "x"
    target: Bound | None = None
    floor: str = ""
    spread: tuple[float, float] | None = None
    notes: Mapping[str, float | int | str] = attrs.field(factory=dict)

    @property
    def verdict(self) -> str:
        """Say whether the target is reached."""
        if self.target is None:
            return "-"
        return "reached" if self.target.holds(self.value) else "MISSED"


@attrs.frozen
class Pairs:
    """What both ways cost in each pair, in seconds."""

    ours: Sequence[float]
    floor: Sequence[float]

    @property
    def costs(self) -> Sequence[float]:
        """How many times the floor's time we take, pair by pair; less is better."""
        return [ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)]

    @property
    def speeds(self) -> Sequence[float]:
        """How many times the floor's speed we have, pair by pair; more is better."""
        return [floor / ours for ours, floor in zip(self.ours, self.floor, strict=True)]

    def cost(self, job: str, target: Bound | None, *, floor: str, **notes: float | str) -> Figure:
        """Give the figure of a cost."""
        return self._figure(self.costs, job, target, floor, notes)

    def speed(self, job: str, target: Bound | None, *, floor: str, **notes: float | str) -> Figure:
        """Give the figure of a speed."""
        return self._figure(self.speeds, job, target, floor, notes)

    def _figure(
        self,
        ratios: Sequence[float],
        job: str,
        target: Bound | None,
        floor: str,
        notes: Mapping[str, float | str],
    ) -> Figure:
        return Figure(
            job=job,
            value=statistics.median(ratios),
            target=target,
            floor=floor,
            spread=(min(ratios), max(ratios)),
            notes={"pairs": len(ratios), **notes},
        )


def cost_of(work: Callable[[], object]) -> float:
    """Measure the processor time of this process for some work, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def paired(ours: Callable[[], float], floor: Callable[[], float], pairs: int) -> Pairs:
    """Measure both in turn; each tells what it cost. A first pair warms up and does not count."""
    ours()
    floor()
    costs: tuple[list[float], list[float]] = ([], [])
    for index in range(pairs):
        for which in (0, 1) if index % 2 else (1, 0):
            costs[which].append((ours, floor)[which]())
    return Pairs(*costs)
