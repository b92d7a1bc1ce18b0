"""Charts of running totals over time, as SVG with a table behind each."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, count

import attrs

__all__ = ["Chart", "choose_ticks", "choose_times", "format_duration", "format_times", "render_chart"]

Point = tuple[float, float]

_MOST_TICKS = 5
_MOST_ROWS = 12
_TIMES = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
)
"""Seconds between two ticks of a time axis; then whole days."""
_MINUTE = 60
_UNITS = ((86_400, "d"), (3_600, "h"), (_MINUTE, "min"), (1, "s"))
_ROUNDING = 1e-9
_LETTER = 0.62
"""Width of a digit, in its height."""


@attrs.frozen(kw_only=True)
class Chart:
    """A running total.

    Attributes:
        title: what it shows.
        kind: what its line is called in the style: rows or requests.
        points: seconds and totals, in order of time.
        seconds: the whole time.
        per_minute: how much the service allows a minute, if that is known.
    """

    title: str
    kind: str
    points: Sequence[Point]
    seconds: float
    per_minute: float | None = None

    @property
    def total(self) -> float:
        """The highest total."""
        return max(value for _, value in self.points)

    @property
    def values(self) -> Sequence[float]:
        """The ticks of its vertical axis."""
        return choose_ticks(max(1, self.total))

    @property
    def limit(self) -> Sequence[Point]:
        """How the total would grow at the limit, as far as the chart reaches."""
        if self.per_minute is None:
            return ()
        top = self.values[-1]
        reached = min(self.seconds, top * 60 / self.per_minute)
        return [(0.0, 0.0), (reached, reached * self.per_minute / 60)]


@attrs.frozen
class _Size:
    """How large a drawing is, and its letters."""

    name: str
    width: int
    height: int
    letter: int
    ticks: int


_SIZES = (_Size("wide", 760, 250, 13, 7), _Size("narrow", 360, 230, 12, 5))


def render_chart(chart: Chart) -> str:
    """Return the chart as a figure: drawn for wide and for narrow windows, and as a table."""
    drawings = "\n".join(_draw(chart, size) for size in _SIZES)
    return f"""<figure>
<figcaption>{escape(chart.title)}{_describe_lines(chart)}</figcaption>
{drawings}
<details id="{chart.kind}-table"><summary>{escape(chart.title)}: the numbers</summary>
{_tabulate(chart)}
</details>
</figure>"""


def choose_ticks(highest: float, most: int = _MOST_TICKS) -> Sequence[float]:
    """Return round numbers at equal distances, from 0 to the first one that is not below the highest."""
    size = 1.0
    while size * 10 * most < highest:
        size *= 10
    steps = (size * factor for factor in (1, 2, 5, 10, 20, 50))
    return _count_up(next(step for step in steps if step * (most - 1) >= highest), highest)


def choose_times(seconds: float, most: int) -> Sequence[float]:
    """Return round times at equal distances within some seconds."""
    step = next(each for each in chain(_TIMES, count(172_800.0, 86_400.0)) if seconds / each + _ROUNDING < most)
    return [time for time in _count_up(step, seconds) if time <= seconds]


def _count_up(step: float, highest: float) -> Sequence[float]:
    ticks = [0.0]
    while ticks[-1] < highest:
        ticks.append(step * len(ticks))
    return ticks


def format_times(times: Sequence[float]) -> Sequence[str]:
    """Format the times of an axis in the largest unit that divides all of them."""
    unit, name = next((each for each in _UNITS if times[-1] and not any(time % each[0] for time in times)), _UNITS[-1])
    return [f"{time / unit:g} {name}" for time in times]


def format_duration(seconds: float) -> str:
    """Format how long something took, in its two largest units."""
    if round(seconds) < _MINUTE:
        return f"{seconds:.3g} s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, name in _UNITS:
        number, rest = divmod(rest, unit)
        parts += [f"{number:,} {name}"] if number or parts else []
    return " ".join(each for each in parts[:2] if not each.startswith("0 "))


def _describe_lines(chart: Chart) -> str:
    if chart.per_minute is None:
        return ""
    return (
        ' <span class="legend"><svg class="key" aria-hidden="true" viewBox="0 0 24 8"><path class="limit" d="M0 4H24"/>'
        f"</svg> the limit of the service: {chart.per_minute:,.0f} a minute</span>"
    )


def _draw(chart: Chart, size: _Size) -> str:
    values = chart.values
    labels = [_abbreviate(value) for value in values]
    scale = _Scale(chart.seconds, values[-1], size, left=round(max(map(len, labels)) * size.letter * _LETTER) + 10)
    label = f"{escape(chart.title)}: {chart.total:,.0f} after {format_duration(chart.seconds)}"
    lines = [
        f'<svg class="{size.name}" viewBox="0 0 {size.width} {size.height}" role="img" aria-label="{label}">',
        *scale.draw_values(values, labels),
        *scale.draw_times(choose_times(chart.seconds, size.ticks)),
        f'<polyline class="{chart.kind}" points="{scale.place(chart.points)}"/>',
    ]
    if chart.limit:
        lines.append(f'<polyline class="limit" points="{scale.place(chart.limit)}"/>')
    return "\n".join([*lines, "</svg>"])


def _tabulate(chart: Chart) -> str:
    times = [*choose_times(chart.seconds, _MOST_ROWS)]
    if times[-1] < chart.seconds:
        times.append(chart.seconds)
    rows = "\n".join(
        f'<tr><th scope="row">{format_duration(time)}</th><td class="n">{value:,.0f}</td></tr>'
        for time, value in zip(times, _read_at(chart.points, times), strict=True)
    )
    return (
        f'<div class="scroll"><table><caption>{escape(chart.title)} over time</caption>\n'
        f'<thead><tr><th scope="col">Time</th><th scope="col" class="n">{escape(chart.title)}</th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _read_at(points: Sequence[Point], times: Iterable[float]) -> Iterator[float]:
    """Yield the total at each time: that of the last point before it."""
    position, value = 0, 0.0
    for time in times:
        while position < len(points) and points[position][0] <= time:
            value = points[position][1]
            position += 1
        yield value


@attrs.frozen
class _Scale:
    """Converts moments and counts to coordinates."""

    seconds: float
    top: float
    size: _Size
    left: int = attrs.field(kw_only=True)

    def place(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self._x(seconds):.1f},{self._y(value):.1f}" for seconds, value in points)

    def draw_values(self, values: Sequence[float], labels: Sequence[str]) -> Iterator[str]:
        for value, label in zip(values, labels, strict=True):
            y, kind = self._y(value), "grid" if value else "axis"
            yield f'<path class="{kind}" d="M{self.left} {y:.1f}H{self.size.width}"/>'
            yield f'<text x="{self.left - 8}" y="{y + self.size.letter / 3:.1f}" text-anchor="end">{label}</text>'

    def draw_times(self, times: Sequence[float]) -> Iterator[str]:
        bottom = self._y(0)
        for time, label in zip(times, format_times(times), strict=True):
            x = self._x(time)
            half = len(label) * self.size.letter * _LETTER / 2
            anchor = "end" if x + half > self.size.width else "middle"
            yield f'<path class="axis" d="M{x:.1f} {bottom:.1f}v5"/>'
            yield f'<text x="{x:.1f}" y="{self.size.height - 6}" text-anchor="{anchor}">{label}</text>'

    def _x(self, seconds: float) -> float:
        return self.left + (self.size.width - self.left - 4) * seconds / (self.seconds or 1)

    def _y(self, value: float) -> float:
        bottom = self.size.height - self.size.letter - 18
        return bottom - (bottom - 12) * value / self.top


def _abbreviate(number: float) -> str:
    for size, unit in ((1_000_000_000, "bn"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.3g}"
