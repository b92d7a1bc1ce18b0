"""The report of a job as one HTML page, which loads nothing from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_markup

import attrs

from svc_async.batch.report import Report
from svc_async.batch.timeline import Sample
from svc_async.printable import clean

__all__ = ["JobRecord", "report_page"]

_WIDTH, _HEIGHT, _MARGIN = 760, 220, 48
_TICKS = 4
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --rows: #2a7; --requests: #36c; --limit: #c33 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse }
td, th { padding: .25rem .9rem; border-bottom: 1px solid var(--line); text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
.rows { stroke: var(--rows) } .requests { stroke: var(--requests) }
.limit { stroke: var(--limit); stroke-dasharray: 6 4 }
.axis { stroke: var(--line) } polyline { fill: none; stroke-width: 2 } .note { opacity: .75 }
"""


@attrs.frozen(kw_only=True)
class JobRecord:
    """What a report says about a job.

    Attributes:
        title: what was done, and with which file.
        report: what became of its rows.
        seconds: how long it took.
        samples: how it proceeded over time.
        reasons: how many rows failed for each reason.
        requests_per_minute: the limit of the service on these requests.
        ended_early: why it was not finished, if it was not.
        more: further numbers, by what they count.
    """

    title: str
    report: Report
    seconds: float
    samples: Sequence[Sample] = ()
    reasons: Mapping[str, int] = attrs.field(factory=dict)
    requests_per_minute: float | None = None
    ended_early: str | None = None
    more: Mapping[str, int] = attrs.field(factory=dict)


def report_page(record: JobRecord) -> str:
    """Return the page."""
    parts = [
        f"<h1>{_escape(record.title)}</h1>",
        f'<p class="note">{_format_duration(record.seconds)}</p>',
        f"<p><strong>Not finished:</strong> {_escape(record.ended_early)}</p>" if record.ended_early else "",
        _table(("", "Rows"), _totals(record.report)),
        _section("Compared with the last time", ("", "Rows"), record.more),
        _section("Failures by reason", ("Reason", "Rows"), record.reasons),
        "<h2>Over time</h2>",
        _plot("Accepted rows", "rows", [(each.seconds, each.accepted) for each in record.samples], None),
        _plot(
            "Requests",
            "requests",
            [(each.seconds, each.requests) for each in record.samples],
            record.requests_per_minute,
        ),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escape(record.title)}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(filter(None, parts)) + "\n</body>\n</html>\n"
    )


def _escape(text: str) -> str:
    return escape_markup(clean(text))


def _totals(report: Report) -> Mapping[str, int]:
    return {
        "read": report.read,
        "accepted": report.accepted,
        "coalesced: an equal row is in the same request": report.coalesced,
        "failed": report.failed,
        "pending: read, without a result": report.pending,
        "of these in doubt: sent, and possibly applied": report.in_doubt,
        "requests": report.requests,
    }


def _section(title: str, header: tuple[str, str], numbers: Mapping[str, int]) -> str:
    return f"<h2>{_escape(title)}</h2>\n{_table(header, numbers)}" if numbers else ""


def _table(header: tuple[str, str], numbers: Mapping[str, int]) -> str:
    rows = (f'<tr><td>{_escape(name)}</td><td class="n">{number:,}</td></tr>' for name, number in numbers.items())
    return f'<table>\n<tr><th>{header[0]}</th><th class="n">{header[1]}</th></tr>\n' + "\n".join(rows) + "\n</table>"


def _plot(title: str, kind: str, points: Sequence[tuple[float, int]], per_minute: float | None) -> str:
    """Draw a running total, and how it would grow at the limit."""
    if len(points) < 2 or not points[-1][0]:  # noqa: PLR2004 - a line has two ends
        return f'<p class="note">{title}: too short to draw.</p>'
    seconds, total = points[-1][0], max(1, *(value for _, value in points))
    scale = _Scale(seconds, total)
    lines = [
        f"<figure><figcaption>{title}{_legend(per_minute)}</figcaption>",
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title} over time">',
        *scale.axes(),
        f'<polyline class="{kind}" points="{scale.line(points)}"/>',
    ]
    if per_minute is not None:
        reached = min(seconds, total * 60 / per_minute)
        limit = scale.line([(0.0, 0.0), (reached, reached * per_minute / 60)])
        lines.append(f'<polyline class="limit" points="{limit}"/>')
    return "\n".join([*lines, "</svg></figure>"])


def _legend(per_minute: float | None) -> str:
    return "" if per_minute is None else f"; dashed: the limit, {per_minute:,.0f} a minute"


@attrs.frozen
class _Scale:
    """Converts moments and counts to coordinates."""

    seconds: float
    total: float

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self._x(seconds):.1f},{self._y(value):.1f}" for seconds, value in points)

    def axes(self) -> Iterable[str]:
        for tick in range(_TICKS + 1):
            x, y = self._x(self.seconds * tick / _TICKS), self._y(self.total * tick / _TICKS)
            yield f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="0" y="{y + 4:.1f}">{_abbreviate(self.total * tick / _TICKS)}</text>'
            anchor = "end" if tick == _TICKS else "middle"
            moment = _format_duration(self.seconds * tick / _TICKS)
            yield f'<text x="{x:.1f}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{moment}</text>'

    def _x(self, seconds: float) -> float:
        return _MARGIN + (_WIDTH - _MARGIN) * seconds / self.seconds

    def _y(self, value: float) -> float:
        return (_HEIGHT - 24) - (_HEIGHT - 34) * value / self.total


def _abbreviate(number: float) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _format_duration(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
