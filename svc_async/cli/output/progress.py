"""Shows how far a job is: a bar on a terminal, a line every few seconds elsewhere, or nothing."""

import abc
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Self

import attrs
from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.text import Text

from svc_async.batch.report import Progress
from svc_async.cli.output.wording import format_duration
from svc_async.clock import Clock
from svc_async.sources.source import ReplayableSource

__all__ = ["Bar", "Display", "Lines", "open_display"]

_PAUSE = 5.0
"""Seconds between two lines."""
_REST = 0.1
"""Seconds between two changes of the bar."""


class Display:
    """Shows nothing, and keeps the latest progress.

    Attributes:
        last: the latest progress.
    """

    def __init__(self) -> None:
        self.last = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing it."""

    def show(self, progress: Progress) -> None:
        """Keep the latest progress, and show it if it is time."""
        self.last = progress


class _Timed(Display, abc.ABC):
    """Limits how often a progress is shown."""

    pause: float

    def __init__(self, source: ReplayableSource, *, console: Console, clock: Clock, limit: float) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._console = console
        self._clock = clock
        self._next = clock.monotonic() + self.pause
        self._waits = False
        self._shown = 0.0

    def show(self, progress: Progress) -> None:
        super().show(progress)
        now = self._clock.monotonic()
        waits = progress.resend_in is not None
        if now >= self._next or (waits and not self._waits):  # a wait is announced when it begins
            self._next = now + self.pause
            self.draw(progress)
        self._waits = waits

    def find_share(self, progress: Progress) -> float:
        """Return the share of the file that is settled; it never goes back, also while a resume reads it again."""
        self._shown = max(self._shown, _done(progress, self._source))
        return self._shown

    @abc.abstractmethod
    def draw(self, progress: Progress) -> None:
        """Show it."""


class Lines(_Timed):
    """Prints a line every few seconds."""

    pause = _PAUSE

    def draw(self, progress: Progress) -> None:
        """Print a line."""
        done = self.find_share(progress)
        speed, left = _speed(progress, self._limit), _describe_remaining(progress, done)
        self._console.print(f"{done:4.0%} | {_counts(progress)} | {speed} | {left} left")


class Bar(_Timed):
    """Draws a bar with the numbers below it."""

    pause = _REST

    def __init__(self, source: ReplayableSource, *, console: Console, clock: Clock, limit: float) -> None:
        super().__init__(source, console=console, clock=clock, limit=limit)
        self._drawing = _Drawing(
            rich_progress.SpinnerColumn(),
            rich_progress.BarColumn(bar_width=40),
            rich_progress.TaskProgressColumn(),
            rich_progress.TextColumn("{task.fields[speed]}", style="cyan"),
            rich_progress.TextColumn("{task.fields[left]}", style="dim"),
            console=console,
            transient=True,
        )
        self._task = self._drawing.add_task("", total=1.0, speed="", left="")

    def __enter__(self) -> Self:
        self._drawing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drawing.stop()

    def draw(self, progress: Progress) -> None:
        """Move the bar."""
        done = self.find_share(progress)
        self._drawing.counts = partial(_colour_since, progress, self._clock, self._clock.monotonic())
        speed, left = _speed(progress, self._limit), f"{_describe_remaining(progress, done)} left"
        self._drawing.update(self._task, completed=done, speed=speed, left=left)


class _Drawing(rich_progress.Progress):
    """A bar and a line of numbers."""

    counts: Callable[[], Text] = Text

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield self.counts()


def open_display(source: ReplayableSource, *, console: Console, clock: Clock, limit: float, quiet: bool) -> Display:
    """Return the display for a console; it compares the requests with the service's limit a minute."""
    if quiet:
        return Display()
    return (Bar if console.is_terminal else Lines)(source, console=console, clock=clock, limit=limit)


def _done(progress: Progress, source: ReplayableSource) -> float:
    """Estimate the share of the file that is settled, by the bytes that are read."""
    settled = progress.accepted + progress.coalesced + progress.failed
    return source.bytes_read / source.size * settled / progress.read if progress.read else 0.0


def _describe_remaining(progress: Progress, done: float) -> str:
    return format_duration(progress.seconds * (1 - done) / done) if done else "?"


def _speed(progress: Progress, limit: float) -> str:
    minutes = max(progress.seconds / 60, 1)  # in the first minute, the count is the rate
    return f"{progress.rows_per_second:,.0f} rows/s, {progress.requests / minutes:,.0f} of {limit:,.0f} requests/min"


def _describe_doubt(progress: Progress) -> str:
    again = "" if progress.resend_in is None else f", sent again in {format_duration(progress.resend_in)}"
    return f"in doubt{again}"


def _numbers(progress: Progress) -> list[tuple[str, int, str]]:
    return [
        ("accepted", progress.accepted, "green"),
        ("failed", progress.failed, "red" if progress.failed else ""),
        (_describe_doubt(progress), progress.in_doubt, "yellow" if progress.in_doubt else ""),
        ("requests", progress.requests, ""),
        *([("times 429", progress.rate_limited, "yellow")] if progress.rate_limited else []),
    ]


def _counts(progress: Progress) -> str:
    phase = f"{progress.phase}: " if progress.phase else ""
    return phase + ", ".join(f"{number:,} {name}" for name, number, _ in _numbers(progress))


def _colour_since(progress: Progress, clock: Clock, since: float) -> Text:
    """Return the numbers, with the rest of a wait as of now."""
    if progress.resend_in is None:
        return _colour(progress)
    return _colour(attrs.evolve(progress, resend_in=max(0.0, progress.resend_in - (clock.monotonic() - since))))


def _colour(progress: Progress) -> Text:
    line = Text("  " if progress.phase is None else f"  {progress.phase}   ")
    for name, number, style in _numbers(progress):
        line.append(f"{number:,} {name}", style).append("   ")
    return line
