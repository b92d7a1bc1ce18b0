"""Shows how far a job is, phase by phase: bars on a terminal, a line every few seconds elsewhere, or nothing."""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import inf
from types import TracebackType
from typing import Literal, Self

import attrs
from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from svc_async.batch.report import JobPhase, Progress, Wait
from svc_async.cli.output.console import count, format_duration, terminal
from svc_async.clock import Clock, Timer
from svc_async.governor.governor import BucketState, Governor
from svc_async.jobs.limits import JobLimit
from svc_async.sources.source import Source

__all__ = ["Display", "Form", "choose_form"]

Form = Literal["bars", "lines", "nothing"]

_LEAST_ELAPSED = 5.0
"""Seconds of a phase in which its speed says little: invalid rows have a result at once, others with an answer."""
_LONGEST_REST = 86_400.0
"""Seconds above which an estimate is not shown: it is one of the first rows after a wait, and means nothing."""


class PhaseBars(rich_progress.Progress):
    """A bar for each phase; the numbers are below them.

    Attributes:
        current: the phase that is under way.
        numbers: what is printed below the bars.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self.current: str | None = None
        self.numbers: list[RenderableType] = []
        self._bars: dict[str, rich_progress.TaskID] = {}
        self._goes_on_at: float | None = None
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
            if self.current is not None and self.current in self._bars:
                self.update(self._bars[self.current], total=1.0, completed=1.0)
            self.current = phase
            if phase not in self._bars:
                self._bars[phase] = self.add_task(phase, total=None)
        if share is not None:
            bar = self._bars[phase]
            self.update(bar, total=1.0, completed=max(self._tasks[bar].completed, min(share, 1.0)))

    def keep_least(self, seconds: float) -> None:
        """Show at least some seconds as the rest of the phase that is under way."""
        self.update(self._bars[self.current or ""], least=seconds)

    def wait(self, until: float | None, what: str) -> None:
        """Show what happens at a monotonic time; None for no wait."""
        self._goes_on_at = until  # first: another thread draws
        bar = self._bars.get("waiting")
        if until is not None:
            seconds = until - self.get_time()
            if bar is None:
                bar = self._bars["waiting"] = self.add_task("waiting", total=seconds)
            self.update(bar, total=max(seconds, self._tasks[bar].total or 0.0), what=what)
            self._count_down()
        elif bar is not None:
            self.remove_task(self._bars.pop("waiting"))

    def describe(self) -> str:
        """Describe the phase that is under way, and how long it may still take."""
        task = self._tasks[self._bars[self.current or ""]]
        share = "" if task.total is None else f" {task.percentage:.0f}%"
        rest = "" if task.description == "waiting" else _describe_rest(task)  # a wait is described by itself
        return f"{task.description}{share}{rest and f', {rest}'}"

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bars, and the numbers below them."""
        self._count_down()
        yield from super().get_renderables()
        yield from (Padding(each, (0, 0, 0, 2)) for each in self.numbers)

    def _count_down(self) -> None:
        bar, goes_on_at = self._bars.get("waiting"), self._goes_on_at
        if bar is not None and goes_on_at is not None:
            total = self._tasks[bar].total or 0.0
            self.update(bar, completed=max(0.0, total - max(0.0, goes_on_at - self.get_time())))


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


def _describe_rest(task: rich_progress.Task) -> str:
    if task.description == "waiting":
        what = task.fields.get("what", "continues in")
        return f"{what} {format_duration((task.total or 0.0) - task.completed)}"
    least, rest = task.fields.get("least", 0.0), task.time_remaining
    if rest is not None and (rest > _LONGEST_REST or (task.elapsed or 0.0) < _LEAST_ELAPSED):
        rest = None
    if rest is None and not least:
        return ""
    return f"{format_duration(max(rest or 0.0, least))} left"


_TICK = 1.0
"""Seconds between two looks at what changes without a progress, such as the time that is left."""
_PAUSES: Mapping[Form, tuple[float, float]] = {"bars": (0.1, _TICK), "lines": (5.0, 30.0), "nothing": (inf, inf)}
"""The least seconds between two drawings, and while nothing changes but the time."""
_READING = frozenset({"checking", "reading"})
_MINUTE = 60.0
_LEAST_WAIT = 2.0
"""Seconds; a shorter wait for a limit is its pace."""


@attrs.frozen
class _RateUse:
    """The use of a rate limit at one moment.

    Attributes:
        limit: the limit.
        used: how many requests the service counts.
        waiting: how many requests wait for the limit.
        wait: until when they do; None if nothing waits for longer than a moment.
    """

    limit: JobLimit
    used: int
    waiting: int = 0
    wait: Wait | None = None

    @classmethod
    def find(cls, buckets: Iterable[BucketState], limits: Iterable[JobLimit], clock: Clock) -> Self | None:
        """Return the use of that of some limits which holds a job longest, or is used most; None if none is known."""
        known, uses = {limit.name: limit for limit in limits}, list[Self]()
        for bucket in buckets:
            if (limit := known.get(bucket.name)) is not None:
                limit = limit if bucket.limit is None else attrs.evolve(limit, requests=bucket.limit)
                seconds = 0.0 if bucket.turn_at is None else (bucket.turn_at - clock.now()).total_seconds()
                wait = Wait(until=clock.monotonic() + seconds) if seconds >= _LEAST_WAIT else None
                uses.append(cls(limit, bucket.used, bucket.waiting, wait))
        return max(uses, key=lambda use: (use.wait.until if use.wait else 0.0, use.waiting, use.used), default=None)

    def find_least_seconds(self, requests: float, now: float) -> float:
        """Return how long some more requests take at least, by the monotonic time."""
        rest = 0.0 if self.wait is None else self.wait.until - now
        if self.limit.is_even or not requests:
            return rest
        free = max(0, self.limit.of_job - self.used) if self.wait is None else self.limit.of_job
        windows = max(0.0, -((free - requests) // self.limit.of_job))
        return rest + windows * self.limit.period

    def describe(self) -> str:
        """Describe how much of the limit is used."""
        limit, minutes = self.limit, self.limit.period / _MINUTE
        window = f"requests in {minutes:g} min" if minutes != 1 else "requests/min"
        return f"{self.used:,} of {limit.requests:,} {window}"


class Display:
    """Shows how far a job is, in one of three forms, and keeps the latest progress.

    Attributes:
        form: bars, lines or nothing.
        bars: a bar for each phase; lines say what the bar of the present phase would show.
        last: the latest progress.
    """

    def __init__(self, source: Source, *, form: Form, console: Console, clock: Clock, limit: JobLimit) -> None:
        self.form = form
        self.bars = PhaseBars(console, clock)
        self.last = Progress()
        self._pause, self._idle_pause = _PAUSES[form]
        self._source = source
        self._limit = limit
        self._limits: tuple[JobLimit, ...] = (limit,)
        self._governor: Governor | None = None
        self._clock = clock
        self._timer: Timer | None = None
        self._has_begun = False
        self._drawn_at = clock.monotonic()
        self._drawn: Progress | None = None
        self._waits = False
        self._furthest = 0.0
        self._latest = _Course(_MINUTE)
        self._window = _Course(limit.period)
        self._use = _RateUse(limit, 0)

    def __enter__(self) -> Self:
        if self.form != "nothing":
            self._timer = self._clock.call_later(_TICK, self._tick)
        if self.form == "bars":
            self.bars.start()
            terminal.live = self.bars.console
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.form == "bars":
            terminal.live = None
            self.bars.stop()

    def begin(self, phase: JobPhase) -> None:
        """Show a phase that announces no progress."""
        self.bars.move(phase, None)

    def follow(self, governor: Governor, limits: Iterable[JobLimit]) -> None:
        """Show also how much of some limits is used, and how long the job waits for them."""
        self._governor, self._limits = governor, tuple(limits)

    def show(self, progress: Progress) -> None:
        """Keep the latest progress, and show it if it is time."""
        self.last = progress
        if self.form == "nothing":
            return
        self._has_begun, now = True, self._clock.monotonic()
        is_due = now >= self._drawn_at + self._pause
        waits = progress.wait is not None and not self._waits  # a wait is announced when it begins
        if is_due or waits or self.bars.current != (progress.phase or "sending"):
            self._move(progress, now)
            if is_due or waits:
                self._drawn_at = now
                self._draw(progress)
        self._waits = self._is_waiting(progress)

    def _tick(self) -> None:
        """Show how time goes on, since a job that waits announces nothing."""
        self._timer = self._clock.call_later(_TICK, self._tick)
        if not self._has_begun:
            return
        now = self._clock.monotonic()
        progress = self.last.count_down(now)
        self._move(progress, now)
        waits, pause = self._is_waiting(progress), self._idle_pause if self.last is self._drawn else self._pause
        if waits != self._waits or now >= self._drawn_at + pause:
            if self.form == "lines":  # a bar may be drawn again at once, when there is progress
                self._drawn_at = now
            self._draw(progress)
        self._waits = waits

    def _draw(self, progress: Progress) -> None:
        """Print a line, or put the numbers below the bars."""
        self._drawn, is_sending = self.last, self._latest.first is not None
        numbers, waits = _numbers(progress) if is_sending else [], list(self._describe_waits(progress))
        speed = self._describe_speed(progress)
        if self.form == "lines":
            parts = [self.bars.describe()]
            parts += [f"{', '.join(wait)} (in {format_duration(seconds)})" for wait, seconds in waits]
            parts += [", ".join(f"{number:,} {name}" for name, number, _ in numbers), ", ".join(speed)]
            self.bars.console.print(" | ".join(filter(None, parts)))
        elif is_sending:
            lines = [[(f"{number:,} {name}", style) for name, number, style in numbers]]
            lines += [[(each, "cyan") for each in speed], *([(each, "yellow") for each in wait] for wait, _ in waits)]
            self.bars.numbers = [
                # A line breaks only between its parts.
                Text("   ").join(Text(part.replace(" ", "\N{NO-BREAK SPACE}"), style) for part, style in line)
                for line in lines
            ]

    def _is_waiting(self, progress: Progress) -> bool:
        return progress.wait is not None or self._use.wait is not None

    def _move(self, progress: Progress, now: float) -> None:
        phase = progress.phase or "sending"
        share = self._find_share(phase, progress)
        if phase == "sending":
            for course in (self._latest, self._window):
                course.add(now, progress, share or 0.0)
        self._use = self._find_use(progress)
        self.bars.move(phase, share)
        self.bars.keep_least(self._find_least(share) if phase == "sending" else 0.0)
        wait = progress.wait or self._use.wait
        self.bars.wait(None if wait is None else wait.until, f"{_name_next_step(wait)} in")

    def _find_use(self, progress: Progress) -> _RateUse:
        """Return the use that the governor knows, or else that of this run."""
        if self._governor is not None:
            use = _RateUse.find(self._governor.snapshot(), self._limits, self._clock)
            if use is not None:
                return use
        before = self._window.first
        return _RateUse(self._limit, 0 if before is None else progress.requests - before.progress.requests)

    def _find_least(self, share: float | None) -> float:
        """Return the seconds that the limit adds to the rest, if requests carry as many rows as those of this run."""
        first, last = self._window.begin, self._window.last
        if first is None or last is None or share is None or share <= first.share:
            return self._use.find_least_seconds(0.0, self._clock.monotonic())
        sent = last.progress.requests - first.progress.requests - self._use.waiting
        requests = max(0.0, sent / (share - first.share) * (1 - share))
        return self._use.find_least_seconds(requests, self._clock.monotonic())

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
        return self._furthest * progress.settled / progress.read

    def _describe_waits(self, progress: Progress) -> Iterable[tuple[list[str], float]]:
        """Yield what the job waits for and until when, in parts, and in how many seconds it continues."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if (wait := self._use.wait) is not None:
            rest = wait.until - monotonic
            yield ["waits for the rate limit", f"continues at {now + timedelta(seconds=rest):%H:%M} UTC"], rest
        if (wait := progress.wait) is not None:
            rest = wait.until - monotonic
            first = "the first " if wait.requests > 1 else ""
            at = f"{first}{_name_next_step(wait)} at {now + timedelta(seconds=rest):%H:%M:%S} UTC"
            # A quarantine holds all requests in doubt, of which only the first of each lane are counted.
            cause = "waits for the quarantine"
            if wait.after is not None:
                verb = "waits" if wait.requests == 1 else "wait"
                cause = f"{count(wait.requests, 'request')} {verb} after {wait.after} (attempt {wait.attempts})"
            yield [cause, at], rest

    def _describe_speed(self, progress: Progress) -> list[str]:
        """Return the rows a second of the last minute of this run, and the use of the limit, while it sends."""
        first = self._latest.first
        if first is None:
            return []
        seconds = self._clock.monotonic() - first.at
        rows = (progress.settled - first.progress.settled) / seconds if seconds else 0.0
        return [f"{rows:,.0f} rows/s", self._use.describe()]


@attrs.frozen
class _Mark:
    """The progress of a job at one moment, and the share of it that was done."""

    at: float
    progress: Progress
    share: float


class _Course:
    """The progress of the latest seconds of a job.

    Attributes:
        begin: where this run began.
    """

    def __init__(self, seconds: float) -> None:
        self.begin: _Mark | None = None
        self._seconds = seconds
        self._moments = deque[_Mark]()

    @property
    def first(self) -> _Mark | None:
        """The earliest moment that is kept."""
        return self._moments[0] if self._moments else None

    @property
    def last(self) -> _Mark | None:
        """The latest moment."""
        return self._moments[-1] if self._moments else None

    def add(self, at: float, progress: Progress, share: float) -> None:
        """Add a moment, and forget those of which the seconds are over."""
        self._moments.append(_Mark(at, progress, share))
        self.begin = self.begin or self._moments[0]
        while self._moments[0].at < at - self._seconds:
            self._moments.popleft()


def choose_form(console: Console, *, as_json: bool) -> Form:
    """Return the form in which a console shows progress.

    A command that prints JSON shows lines to people only: what a script keeps of its messages has no progress.
    """
    if terminal.quiet or (as_json and not console.is_terminal):
        return "nothing"
    draws = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("NO_COLOR") and not as_json
    return "bars" if draws else "lines"


def _name_next_step(wait: Wait | None) -> str:
    return "sent again" if wait and wait.requests else "continues"


def _numbers(progress: Progress) -> list[tuple[str, int, str]]:
    return [
        ("accepted", progress.accepted, "green"),
        ("failed", progress.failed, "red" if progress.failed else ""),
        ("in doubt", progress.in_doubt, "yellow" if progress.in_doubt else ""),
        ("requests", progress.requests, ""),
        *([("times 429", progress.rate_limited, "yellow")] if progress.rate_limited else []),
    ]
