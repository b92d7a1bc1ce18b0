"""Shows how far a job is, phase by phase: bars on a terminal, a line every few seconds elsewhere, or nothing."""

import abc
import os
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import attrs
from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from svc_async.batch.report import JobPhase, Progress
from svc_async.cli.output.console import terminal
from svc_async.cli.output.wording import format_duration
from svc_async.clock import Clock
from svc_async.sources.source import ReplayableSource

__all__ = ["Bars", "Display", "Lines", "open_display"]

_PAUSE = 5.0
"""Seconds between two lines."""
_REST = 0.1
"""Seconds between two changes of a bar."""
_READING = frozenset({"checking", "reading"})
_MINUTE = 60.0


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

    def begin(self, phase: JobPhase) -> None:
        """Show a phase that announces no progress."""

    def show(self, progress: Progress) -> None:
        """Keep the latest progress, and show it if it is time."""
        self.last = progress


class _Timed(Display, abc.ABC):
    """Keeps a bar for each phase, and limits how often it is drawn."""

    pause: float

    def __init__(self, source: ReplayableSource, *, console: Console, clock: Clock, limit: float) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._clock = clock
        self._next = clock.monotonic() + self.pause
        self._waits = False
        self._furthest = 0.0
        self._bars = _PhaseBars(console, clock)
        self._latest = deque[tuple[float, Progress]]()

    def begin(self, phase: JobPhase) -> None:
        self._bars.move(phase, None)

    def show(self, progress: Progress) -> None:
        super().show(progress)
        now = self._clock.monotonic()
        waits = progress.resend_in is not None
        begins = self._bars.current != (progress.phase or "sending")
        if now >= self._next or begins or (waits and not self._waits):  # a wait is announced when it begins
            self._move(progress, now)
            if now >= self._next or waits:
                self._next = now + self.pause
                self.draw(progress)
        self._waits = waits

    @abc.abstractmethod
    def draw(self, progress: Progress) -> None:
        """Show it."""

    def _move(self, progress: Progress, now: float) -> None:
        phase = progress.phase or "sending"
        if phase == "sending":
            self._latest.append((now, progress))
            while self._latest[0][0] < now - _MINUTE:
                self._latest.popleft()
        self._bars.move(phase, self._find_share(phase, progress))
        self._bars.wait(progress.resend_in)

    def _find_share(self, phase: str, progress: Progress) -> float | None:
        """Return how much of a phase is done; None if that is not known."""
        if progress.phase_total:
            return progress.phase_done / progress.phase_total
        read = self._source.bytes_read / self._source.size if self._source.bytes_read else None
        if phase in _READING:
            self._furthest = max(self._furthest, (read or 0.0) if progress.read else 0.0)
            return read
        if phase != "sending":
            return None
        if not progress.read:
            return 0.0
        # The share of the file that is settled. A resumed job reads from the start again what it has read already.
        self._furthest = max(self._furthest, read or 0.0)
        return self._furthest * _count_settled(progress) / progress.read

    def describe_speed(self, progress: Progress) -> list[str]:
        """Return the rows a second and the requests of the last minute of this run, while it sends."""
        since, before = self._latest[0]
        seconds = self._clock.monotonic() - since
        rows = (_count_settled(progress) - _count_settled(before)) / seconds if seconds else 0.0
        requests = progress.requests - before.requests
        return [f"{rows:,.0f} rows/s", f"{requests:,} of {self._limit:,.0f} requests/min"]


class Lines(_Timed):
    """Prints a line every few seconds."""

    pause = _PAUSE

    def draw(self, progress: Progress) -> None:
        """Print a line."""
        parts = [self._bars.describe()]
        if self._latest:
            parts += [", ".join(f"{number:,} {name}" for name, number, _ in _numbers(progress))]
            parts += [", ".join(self.describe_speed(progress))]
        self._bars.console.print(" | ".join(parts))


class Bars(_Timed):
    """Draws a bar for each phase, with the numbers below them."""

    pause = _REST

    def __enter__(self) -> Self:
        self._bars.start()
        terminal.live = self._bars.console
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        terminal.live = None
        self._bars.stop()

    @property
    def console(self) -> Console:
        """Where they are drawn."""
        return self._bars.console

    @property
    def renderable(self) -> RenderableType:
        """What is drawn now."""
        return self._bars.get_renderable()

    def draw(self, progress: Progress) -> None:
        """Move the bars."""
        if self._latest:
            speed = [Text(each, "cyan") for each in self.describe_speed(progress)]
            told = attrs.evolve(progress, resend_in=None)  # a bar shows the wait
            numbers = [Text(f"{number:,} {name}", style) for name, number, style in _numbers(told)]
            self._bars.numbers = [_join(numbers), _join(speed)]


class _PhaseBars(rich_progress.Progress):
    """A bar for each phase; the numbers are below them.

    Attributes:
        current: the phase that is under way.
        numbers: what is printed below the bars.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self.current: str | None = None
        self.numbers: list[RenderableType] = []
        self._bars: dict[str, rich_progress.TaskID] = {}
        self._resend_at: float | None = None
        super().__init__(  # it renders already
            rich_progress.SpinnerColumn(finished_text=" "),
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=None),
            _ShareColumn(),
            _TimeColumn(),
            console=console,
            get_time=clock.monotonic,
            transient=True,
            expand=True,
            redirect_stdout=False,  # results are not messages
        )

    def move(self, phase: str, share: float | None) -> None:
        """Move the bar of a phase; it never goes back. That of the phase before is full then."""
        if phase != self.current:
            self._end()
            self.current = phase
            if phase not in self._bars:
                self._bars[phase] = self.add_task(phase, total=None)
        if share is not None:
            bar = self._bars[phase]
            self.update(bar, total=1.0, completed=max(self._tasks[bar].completed, min(share, 1.0)))

    def wait(self, seconds: float | None) -> None:
        """Show that what is in doubt is sent again in some seconds; None for no wait."""
        bar = self._bars.get("waiting")
        if seconds is None:
            self._resend_at = None  # first: another thread draws
            if bar is not None:
                self.remove_task(self._bars.pop("waiting"))
            return
        if bar is None:
            bar = self._bars["waiting"] = self.add_task("waiting", total=seconds)
        self._tasks[bar].total = max(seconds, self._tasks[bar].total or 0.0)
        self._resend_at = self.get_time() + seconds
        self._count_down()

    def describe(self) -> str:
        """Describe the phase that is under way, and how long it may still take."""
        task = self._tasks[self._bars[self.current or ""]]
        share = "" if task.total is None else f" {task.percentage:.0f}%"
        return f"{task.description}{share}{_describe_rest(task, ', ')}"

    def get_renderables(self) -> Iterable[RenderableType]:
        self._count_down()
        yield from super().get_renderables()
        yield from (Padding(each, (0, 0, 0, 2)) for each in self.numbers)

    def _count_down(self) -> None:
        bar, resend_at = self._bars.get("waiting"), self._resend_at
        if bar is not None and resend_at is not None:
            total = self._tasks[bar].total or 0.0
            self.update(bar, completed=max(0.0, total - max(0.0, resend_at - self.get_time())))

    def _end(self) -> None:
        if self.current is not None and self.current in self._bars:
            self.update(self._bars[self.current], total=1.0, completed=1.0)


class _ShareColumn(rich_progress.ProgressColumn):
    """How much of a phase is done."""

    def render(self, task: rich_progress.Task) -> Text:
        return Text("    " if task.total is None else f"{task.percentage:3.0f}%", "magenta")


class _TimeColumn(rich_progress.ProgressColumn):
    """How long a phase may still take, or has taken."""

    def render(self, task: rich_progress.Task) -> Text:
        if task.finished:
            return Text(format_duration(task.finished_time or 0.0), "dim")
        return Text(_describe_rest(task), "dim" if task.description != "waiting" else "yellow")


def open_display(source: ReplayableSource, *, console: Console, clock: Clock, limit: float, quiet: bool) -> Display:
    """Return the display for a console; it compares the requests with the service's limit a minute."""
    if quiet or terminal.quiet:
        return Display()
    draws = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("NO_COLOR")
    return (Bars if draws else Lines)(source, console=console, clock=clock, limit=limit)


def _count_settled(progress: Progress) -> int:
    return progress.accepted + progress.coalesced + progress.failed


def _describe_rest(task: rich_progress.Task, before: str = "") -> str:
    if task.description == "waiting":
        return f"{before}sent again in {format_duration((task.total or 0.0) - task.completed)}"
    return "" if task.time_remaining is None else f"{before}{format_duration(task.time_remaining)} left"


def _numbers(progress: Progress) -> list[tuple[str, int, str]]:
    return [
        ("accepted", progress.accepted, "green"),
        ("failed", progress.failed, "red" if progress.failed else ""),
        (_describe_doubt(progress), progress.in_doubt, "yellow" if progress.in_doubt else ""),
        ("requests", progress.requests, ""),
        *([("times 429", progress.rate_limited, "yellow")] if progress.rate_limited else []),
    ]


def _describe_doubt(progress: Progress) -> str:
    again = "" if progress.resend_in is None else f", sent again in {format_duration(progress.resend_in)}"
    return f"in doubt{again}"


def _join(parts: Iterable[Text]) -> Text:
    """Join parts of a line, which breaks only between them."""
    line = Text()
    for part in parts:
        part.plain = part.plain.replace(" ", "\N{NO-BREAK SPACE}")
        line.append_text(part).append("   ")
    return line
