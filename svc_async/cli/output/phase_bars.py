"""Draws a bar for each phase of a job, with the time that it may still take."""

from collections.abc import Iterable

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from svc_async.cli.output.wording import format_duration
from svc_async.clock import Clock

__all__ = ["PhaseBars"]

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
            self._end()
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
