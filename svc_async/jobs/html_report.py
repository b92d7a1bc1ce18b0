"""The report of a job as one HTML page, which loads nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape as escape_markup
from importlib.resources import files
from typing import Literal

import attrs

from svc_async.batch.journal.record import Moment
from svc_async.batch.report import Progress, Report
from svc_async.jobs.charts import Chart, format_duration, render_chart
from svc_async.printable import clean
from svc_async.run_files import PAGE_BEGINNING

__all__ = ["JobRecord", "read_style", "render_content", "report_page"]

_OUTCOMES: Mapping[str, str] = {
    "accepted": "Accepted",
    "coalesced": "Coalesced: an equal row is in the same request",
    "failed": "Failed",
    "pending": "Pending: read, without a result",
}
_PARTS: Mapping[str, str] = {
    "in_doubt": "Of these in doubt: sent, and possibly applied",
    "partly_valid": "With an invalid identifier beside a valid one",
}
"""Counts of rows that are among the outcomes; shown if there are any."""
_MIN_SHARE = 0.006
"""The share of the bar that a few rows take, so that they can be seen."""


@attrs.frozen(kw_only=True)
class JobRecord:
    """What a report says about a job.

    Attributes:
        title: what was done, and with which file.
        report: what became of its rows.
        seconds: how long it took.
        state: whether it is finished, runs, was stopped, or failed.
        facts: what else identifies it, by name, such as the account and the audience.
        links: files that belong to it: their names and URLs.
        begun_at: when it began, if that is known.
        samples: how it proceeded over time.
        reasons: how many rows failed for each reason.
        requests_per_minute: the limit of the service on these requests.
        ended_early: why it was not finished, if it was not.
        advice: what to do next, if anything.
        more: further numbers, by what they count.
        version: the version of the SDK.
    """

    title: str
    report: Report
    seconds: float
    state: Literal["finished", "running", "stopped", "failed"] = "finished"
    facts: Mapping[str, str] = attrs.field(factory=dict)
    links: Mapping[str, str] = attrs.field(factory=dict)
    begun_at: datetime | None = None
    samples: Sequence[Progress | Moment] = ()
    reasons: Mapping[str, int] = attrs.field(factory=dict)
    requests_per_minute: float | None = None
    ended_early: str | None = None
    advice: str | None = None
    more: Mapping[str, int] = attrs.field(factory=dict)
    version: str | None = None


def report_page(record: JobRecord, *, live: str = "") -> str:
    """Return the page.

    Args:
        record: what it says.
        live: markup that keeps it up to date, for a page that is served.
    """
    return f"""{PAGE_BEGINNING}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_escape(record.title)}</title>
<style>{read_style()}</style>{live}
</head>
<body>
<main>
{render_content(record)}
</main>
</body>
</html>
"""


def read_style() -> str:
    """Return the style sheet."""
    return files("svc_async.jobs").joinpath("job_page.css").read_text(encoding="utf-8")


def render_content(record: JobRecord) -> str:
    """Return what is on the page."""
    report, begun = record.report, record.begun_at
    more = {name.capitalize(): number for name, number in record.more.items()}
    counts = {words: (getattr(report, name), name) for name, words in _OUTCOMES.items()}
    counts |= {words: (getattr(report, name), "part") for name, words in _PARTS.items() if getattr(report, name)}
    rows = [_row(words, number, kind) for words, (number, kind) in {"Read": (report.read, ""), **counts}.items()]
    facts = {name: _escape(value) for name, value in record.facts.items()}
    facts |= {"Begun": f"{begun:%Y-%m-%d %H:%M:%S} UTC"} if begun is not None else {}
    facts |= {"Worked for": format_duration(record.seconds), "Requests": f"{report.requests:,}"}
    links = record.links.items()
    facts |= {name: f'<a href="{_escape(url)}">{_escape(url.rpartition("/")[2])}</a>' for name, url in links}
    listed = "\n".join(f"<dt>{_escape(name)}</dt><dd>{fact}</dd>" for name, fact in facts.items())
    parts = [
        f"<h1>{_escape(record.title)}</h1>",
        f'<p class="date"><time datetime="{begun:%Y-%m-%dT%H:%M:%SZ}">{begun:%Y-%m-%d %H:%M} UTC</time></p>'
        if begun
        else "",
        _describe_outcome(record),
        f'<p class="next">{_mark_code(record.advice)}</p>' if record.advice else "",
        _section("This job", f"<dl>\n{listed}\n</dl>"),
        _section("Rows", _draw_shares(report) + _wrap_table("Rows", ("Outcome", "Rows"), rows)),
        _section("Compared with the last time", _table("Changes", ("Change", "Rows"), more), more),
        _section("Failures by reason", _table("Failures", ("Reason", "Rows"), record.reasons), record.reasons),
        _section("Over time", "\n".join(_render_charts(record))),
        f"<footer>svc-async {_escape(record.version)}</footer>" if record.version else "",
    ]
    return "\n".join(filter(None, parts))


def _escape(text: str) -> str:
    return escape_markup(clean(text))


def _mark_code(text: str) -> str:
    """Return a sentence in which what stands between backticks is code."""
    parts = _escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _describe_outcome(record: JobRecord) -> str:
    """Describe in the first sentence how it ended."""
    report = record.report
    equal = f" ({report.coalesced:,} of them are equal to others)" if report.coalesced else ""
    read = " that were read" if record.state != "finished" else ""
    counts = f"{report.accepted + report.coalesced:,} of {report.read:,} rows{read} were accepted{equal}"
    counts += f", {report.failed:,} failed" if report.failed else ""
    unchanged = record.more.get("unchanged", 0)
    same = f", {unchanged:,} unchanged" if unchanged else ""
    if record.state == "finished" and record.ended_early is None:
        if not report.read:
            return _say("good", "Finished:", f"there was nothing to send{same}.")
        return _say("warn" if report.failed else "good", "Finished:", f"{counts}{same}.")
    if record.state == "running":
        counts += f", {report.in_doubt:,} were sent and have no answer yet" if report.in_doubt else ""
        return _say("info", "Running:", f"{counts}.")
    counts += f", {report.in_doubt:,} are in doubt" if report.in_doubt else ""
    if not report.read and not report.requests:
        counts = "Nothing was sent"
    reason = record.ended_early or f"the job is {record.state}"
    return _say("bad" if record.state == "failed" else "warn", "Not finished:", f"{_mark_code(reason)}. {counts}.")


def _say(kind: str, title: str, text: str) -> str:
    return f'<p class="outcome {kind}"><strong>{title}</strong> {text}</p>'


def _draw_shares(report: Report) -> str:
    """Draw the outcomes as parts of one bar; the table below says the same."""
    numbers = {name: getattr(report, name) for name in _OUTCOMES}
    total = sum(numbers.values())
    if not total:
        return ""
    shares = {name: max(number / total, _MIN_SHARE) for name, number in numbers.items() if number}
    x, parts = 0.0, []
    for name, share in shares.items():
        width = 1000 * share / sum(shares.values())
        parts.append(f'<rect class="{name}" x="{x:.2f}" width="{width:.2f}" height="1"/>')
        x += width
    box = 'viewBox="0 0 1000 1" preserveAspectRatio="none"'
    return f'<svg class="shares" {box} aria-hidden="true">{"".join(parts)}</svg>\n'


def _section(title: str, content: str, wanted: object = True) -> str:  # noqa: FBT002 - whatever may be empty
    return f"<section>\n<h2>{_escape(title)}</h2>\n{content}\n</section>" if wanted else ""


def _table(caption: str, header: tuple[str, str], numbers: Mapping[str, int]) -> str:
    return _wrap_table(caption, header, [_row(name, number) for name, number in numbers.items()])


def _row(name: str, number: int, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<tr{marked}><th scope="row">{_escape(name)}</th><td class="n">{number:,}</td></tr>'


def _wrap_table(caption: str, header: tuple[str, str], rows: Sequence[str]) -> str:
    body = "\n".join(rows)
    return (
        f"<table><caption>{caption}</caption>\n"
        f'<thead><tr><th scope="col">{header[0]}</th><th scope="col" class="n">{header[1]}</th></tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _render_charts(record: JobRecord) -> Sequence[str]:
    report, samples = record.report, record.samples
    seconds = max(record.seconds, samples[-1].seconds if samples else 0.0)
    if len(samples) < 2 or not seconds:  # noqa: PLR2004 - a line has two ends
        return ['<p class="next">Too short to draw.</p>']
    rows = [(each.seconds, float(each.accepted)) for each in samples]
    requests = [(each.seconds, float(each.requests)) for each in samples]
    limit = record.requests_per_minute
    return [
        render_chart(
            Chart(title="Accepted rows", kind="rows", points=[*rows, (seconds, report.accepted)], seconds=seconds)
        ),
        render_chart(
            Chart(
                title="Requests",
                kind="requests",
                points=[*requests, (seconds, report.requests)],
                seconds=seconds,
                per_minute=limit,
            )
        ),
    ]
