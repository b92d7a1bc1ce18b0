from collections.abc import Iterable
from io import StringIO
from pathlib import Path

import attrs
import pytest
from rich.console import Console

from svc_async.batch.report import Progress
from svc_async.cli.output.progress import Bar, Display, Lines, open_display
from svc_async.cli.output.wording import format_duration
from svc_async.sandbox import VirtualClock
from svc_async.sources.csv_source import CsvSource

HALFWAY = Progress(read=1_000, accepted=480, failed=20, pending=500, requests=3, in_doubt=500, seconds=10.0)


@pytest.fixture
def source(tmp_path: Path) -> CsvSource:
    path = tmp_path / "customers.csv"
    path.write_text("email\na@example.org\n")
    source = CsvSource(path)
    rows = source.rows().rows
    assert isinstance(rows, Iterable)
    assert len(list(rows)) == 1
    return source


def console(*, terminal: bool) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=140, highlight=False)


def read_output(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_terminal_gets_a_bar_others_get_lines_and_json_gets_nothing(source: CsvSource) -> None:
    clock = VirtualClock()
    terminal, pipe = console(terminal=True), console(terminal=False)
    assert type(open_display(source, console=terminal, clock=clock, limit=1_500, quiet=False)) is Bar
    assert type(open_display(source, console=pipe, clock=clock, limit=1_500, quiet=False)) is Lines
    assert type(open_display(source, console=terminal, clock=clock, limit=1_500, quiet=True)) is Display


async def test_a_line_comes_every_five_seconds_at_most(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    with Lines(source, console=out, clock=clock, limit=1_500) as lines:
        for _ in range(60):
            lines.show(HALFWAY)
            await clock.advance(seconds=0.2)
    assert read_output(out).splitlines() == [
        " 50% | 480 accepted, 20 failed, 500 in doubt, 3 requests | 50 rows/s, 3 of 1,500 requests/min | 10.0 s left",
        " 50% | 480 accepted, 20 failed, 500 in doubt, 3 requests | 50 rows/s, 3 of 1,500 requests/min | 10.0 s left",
    ]
    assert lines.last is HALFWAY


async def test_the_bar_shows_the_numbers(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True)
    with Bar(source, console=out, clock=clock, limit=1_500) as bar:
        await clock.advance(seconds=1)
        bar.show(attrs.evolve(HALFWAY, rate_limited=2))
    shown = read_output(out)
    for part in (
        "50%",
        "50 rows/s",
        "3 of 1,500 requests/min",
        "10.0 s left",
        "480 accepted",
        "20 failed",
        "3 requests",
        "2 times 429",
    ):
        assert part in shown


async def test_a_wait_for_what_is_in_doubt_is_announced_when_it_begins(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Lines(source, console=out, clock=clock, limit=1_500)
    waiting = attrs.evolve(HALFWAY, in_doubt=44_596, resend_in=101)
    for progress in (HALFWAY, waiting, waiting, HALFWAY):
        lines.show(progress)
    (line,) = read_output(out).splitlines()
    assert "44,596 in doubt, sent again in 1:41" in line


async def test_a_bar_counts_a_wait_down(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True)
    with Bar(source, console=out, clock=clock, limit=1_500) as bar:
        bar.show(attrs.evolve(HALFWAY, resend_in=101))
        await clock.advance(seconds=60)
    assert "sent again in 41.0 s" in read_output(out)


async def test_the_share_never_goes_back(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Lines(source, console=out, clock=clock, limit=1_500)
    for read in (1_000, 2_000, 1_000):
        await clock.advance(seconds=6)
        lines.show(attrs.evolve(HALFWAY, read=read))
    assert [line.split("%")[0] for line in read_output(out).splitlines()] == [" 50", " 50", " 50"]


async def test_nothing_settled_yet_is_no_division_by_zero(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Lines(source, console=out, clock=clock, limit=1_500)
    await clock.advance(seconds=6)
    lines.show(Progress(read=512, pending=512))
    assert "? left" in read_output(out)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (5.04, "5.0 s"), (61, "1:01"), (3_599.7, "1:00:00"), (7_322, "2:02:02")]
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
