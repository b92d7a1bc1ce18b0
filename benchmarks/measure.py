"""Paired measurements: two ways to do one job, in turn, on the same machine, at the same time.

A ratio of two runs side by side holds on other machines and under other load; a time by itself does not. So every
figure is the median of ratios, and the order within a pair changes from pair to pair.
"""

import enum
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

__all__ = ["Bound", "Figure", "Pairs", "Scale", "at_least", "at_most", "measure_cost", "measure_pairs"]


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


@attrs.frozen
class Bound:
    """The value that a figure should reach."""

    sign: str
    value: float

    def holds(self, value: float) -> bool:
        """Return whether a value reaches it."""
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
        notes: further results of the run, by name.
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
        """Whether the target is reached, in a word."""
        if self.target is None:
            return "-"
        return "reached" if self.target.holds(self.value) else "MISSED"


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

    def report_cost(self, job: str, target: Bound | None, *, floor: str, **notes: float | str) -> Figure:
        """Return the figure of a cost."""
        return self._make_figure(self.costs, job, target, floor, notes)

    def report_speed(self, job: str, target: Bound | None, *, floor: str, **notes: float | str) -> Figure:
        """Return the figure of a speed."""
        return self._make_figure(self.speeds, job, target, floor, notes)

    def _make_figure(
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


def measure_cost(work: Callable[[], object]) -> float:
    """Measure the processor time of this process for some work, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure_pairs(ours: Callable[[], float], floor: Callable[[], float], pairs: int) -> Pairs:
    """Measure both in turn; each returns its cost. A first pair warms up and does not count."""
    ours()
    floor()
    costs: tuple[list[float], list[float]] = ([], [])
    for index in range(pairs):
        for which in (0, 1) if index % 2 else (1, 0):
            costs[which].append((ours, floor)[which]())
    return Pairs(*costs)
