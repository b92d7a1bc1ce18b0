import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import cast

import attrs
import pytest
from rich.console import Console

from svc_async.batch.report import JobPhase, Progress, Wait
from svc_async.cli.output.console import format_duration, say, show
from svc_async.cli.output.progress import Display, choose_form
from svc_async.governor.governor import BucketState, Governor
from svc_async.jobs.limits import find_job_limit
from svc_async.sandbox import VirtualClock
from svc_async.sources.csv_source import CsvSource

LIMIT = find_job_limit("audience", "upload")
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


def console(*, terminal: bool, width: int = 140) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=width, highlight=False)


def render(bars: Display) -> list[str]:
    """Return the lines that are on the terminal now."""
    paper = console(terminal=True, width=bars.bars.console.width)
    paper.print(bars.bars.get_renderable())
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in read_output(paper).splitlines()]


def read_output(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_terminal_gets_bars_and_others_lines_and_with_json_only_a_terminal_gets_lines() -> None:
    terminal, pipe = console(terminal=True), console(terminal=False)
    assert (choose_form(terminal, as_json=False), choose_form(pipe, as_json=False)) == ("bars", "lines")
    assert (choose_form(terminal, as_json=True), choose_form(pipe, as_json=True)) == ("lines", "nothing")


async def test_nothing_is_shown_where_nothing_is_asked_for_and_the_latest_progress_is_kept(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    with Display(source, form="nothing", console=out, clock=clock, limit=LIMIT) as display:
        display.begin("checking")
        display.show(HALFWAY)
        await clock.advance(seconds=70)
    assert (display.last, read_output(out)) == (HALFWAY, "")


async def test_a_line_comes_every_five_seconds_at_most(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    with Display(source, form="lines", console=out, clock=clock, limit=LIMIT) as lines:
        lines.show(Progress(phase="sending"))
        for _ in range(60):
            await clock.advance(seconds=0.2)
            lines.show(HALFWAY)
    first, second = read_output(out).splitlines()
    assert first == (
        "sending 50% | 480 accepted, 20 failed, 500 in doubt, 3 requests | 100 rows/s, 3 of 1,500 requests/min"
    )
    assert second.startswith("sending 50% | 480 accepted")
    assert lines.last is HALFWAY


async def test_each_phase_has_a_bar_that_moves(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True)
    with Display(source, form="bars", console=out, clock=clock, limit=LIMIT) as bars:
        bars.begin("checking")
        await clock.advance(seconds=1)
        for done in range(5):
            bars.show(Progress(phase="comparing", phase_done=done, phase_total=4))
            await clock.advance(seconds=1)
        bars.show(Progress(phase="settling", phase_done=1, phase_total=8))
        await clock.advance(seconds=1)
        bars.show(Progress(phase="settling", phase_done=2, phase_total=8))
        assert "left" not in render(bars)[2]  # a second says little
        await clock.advance(seconds=4)
        bars.show(Progress(phase="settling", phase_done=4, phase_total=8))
        shown = render(bars)
    assert [line.split()[0] for line in shown[:2]] == ["checking", "comparing"]
    assert "settling" in shown[2]
    assert ["100%" in line for line in shown] == [True, True, False]
    assert "1.0 s" in shown[0]
    assert "4.0 s" in shown[1]
    assert "50%" in shown[2]
    assert re.search(r"[0-9]\.0 s left", shown[2])


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_nothing_is_lost_at_any_width(source: CsvSource, width: int) -> None:
    clock, out = VirtualClock(), console(terminal=True, width=width)
    many = Progress(
        read=30_000_000,
        accepted=14_950_000,
        failed=50_000,
        pending=15_000_000,
        in_doubt=1_200_000,
        requests=12_345,
        rate_limited=1_234,
        wait=Wait(until=clock.monotonic() + 102),  # announced in a second
    )
    with Display(source, form="bars", console=out, clock=clock, limit=LIMIT) as bars:
        bars.show(Progress(phase="sending"))
        await clock.advance(seconds=1)
        bars.show(many)
        shown = "\n".join(render(bars)).replace("\N{NO-BREAK SPACE}", " ")
    for part in (
        *("sending", "50%", "waiting", "continues in 1:41", "14,950,000 accepted", "50,000 failed"),
        *("1,200,000 in doubt", "12,345 requests", "1,234 times 429", "rows/s", "of 1,500 requests/min"),
    ):
        assert part in shown
    assert max(map(len, shown.splitlines())) <= width


async def test_a_wait_for_what_is_in_doubt_is_announced_when_it_begins(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False, width=200)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    wait = Wait(until=clock.monotonic() + 101, requests=18, after="HTTP 502", attempts=1)
    waiting = attrs.evolve(HALFWAY, in_doubt=44_596, wait=wait)
    for progress in (HALFWAY, waiting, waiting, HALFWAY):
        lines.show(progress)
    (line,) = read_output(out).splitlines()
    at = clock.now() + timedelta(seconds=101)
    told = f"18 requests wait after HTTP 502 (attempt 1), the first sent again at {at:%H:%M:%S} UTC (in 1:41)"
    assert line.startswith(f"sending 50% | {told} | 480 accepted, 20 failed, 44,596 in doubt, ")


async def test_lines_say_when_a_request_is_sent_again_and_why(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False, width=200)
    at = clock.now() + timedelta(seconds=60)
    wait = Wait(until=clock.monotonic() + 60, requests=1, after="connection refused", attempts=2)
    waiting = attrs.evolve(HALFWAY, in_doubt=0, wait=wait)
    with Display(source, form="lines", console=out, clock=clock, limit=LIMIT) as lines:
        lines.show(waiting)
        await clock.advance(seconds=31)
    begun, later = read_output(out).splitlines()
    told = f"1 request waits after connection refused (attempt 2), sent again at {at:%H:%M:%S} UTC"
    assert f" | {told} (in 1:00) | " in begun
    assert f" | {told} (in 30.0 s) | " in later


async def test_bars_say_when_a_request_is_sent_again_and_why(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True, width=100)
    at = clock.now() + timedelta(seconds=60)
    waiting = attrs.evolve(HALFWAY, wait=Wait(until=clock.monotonic() + 60, requests=2, after="HTTP 503", attempts=1))
    with Display(source, form="bars", console=out, clock=clock, limit=LIMIT) as bars:
        bars.show(waiting)
        await clock.advance(seconds=20)
        shown = "\n".join(render(bars)).replace("\N{NO-BREAK SPACE}", " ")
        assert "sent again in 40.0 s" in shown
        assert "2 requests wait after HTTP 503 (attempt 1)" in shown
        assert f"the first sent again at {at:%H:%M:%S} UTC" in shown
        await clock.advance(seconds=41)
        assert "again" not in "\n".join(render(bars))


async def test_a_line_says_a_wait_of_a_sync_once(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False, width=200)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    lines.show(Progress(phase="waiting", wait=Wait(until=clock.monotonic() + 101)))
    at = clock.now() + timedelta(seconds=101)
    told = f"waits for the quarantine, continues at {at:%H:%M:%S} UTC (in 1:41)"
    assert read_output(out).strip() == f"waiting 0% | {told}"


async def test_a_quarantine_holds_more_requests_than_wait_at_the_head_of_a_lane(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False, width=200)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    lines.show(attrs.evolve(HALFWAY, wait=Wait(until=clock.monotonic() + 60, requests=2)))
    at = clock.now() + timedelta(seconds=60)
    assert f" | waits for the quarantine, the first sent again at {at:%H:%M:%S} UTC (in 1:00) | " in read_output(out)


@pytest.mark.parametrize(("total", "is_shown"), [(10**6, False), (10**3, True)])
async def test_an_estimate_from_the_first_rows_after_a_wait_is_not_shown(
    source: CsvSource, total: int, *, is_shown: bool
) -> None:
    clock, out = VirtualClock(), console(terminal=True)
    with Display(source, form="bars", console=out, clock=clock, limit=LIMIT) as bars:
        for done in range(3):
            bars.show(Progress(phase="settling", phase_done=done, phase_total=total))
            await clock.advance(seconds=10)
        bars.show(Progress(phase="settling", phase_done=3, phase_total=total))
        (line,) = (line for line in render(bars) if "settling" in line)
    assert ("left" in line) is is_shown


async def test_a_bar_counts_a_wait_down_and_goes(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True)
    with Display(source, form="bars", console=out, clock=clock, limit=LIMIT) as bars:
        bars.show(attrs.evolve(HALFWAY, wait=Wait(until=clock.monotonic() + 100)))
        await clock.advance(seconds=60)
        (waiting,) = (line for line in render(bars) if "waiting" in line)
        assert "60%" in waiting
        assert "continues in 40.0 s" in waiting
        bars.show(HALFWAY)
        assert not [line for line in render(bars) if "waiting" in line]


async def test_the_share_never_goes_back(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    for read in (1_000, 2_000, 1_000):
        await clock.advance(seconds=6)
        lines.show(attrs.evolve(HALFWAY, read=read))
    assert [line.split("%")[0] for line in read_output(out).splitlines()] == ["sending 50"] * 3


async def test_a_resumed_job_counts_the_speed_of_this_run(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    lines.show(attrs.evolve(HALFWAY, seconds=0.0))
    await clock.advance(seconds=10)
    lines.show(attrs.evolve(HALFWAY, accepted=580, pending=400))
    assert "| 10 rows/s, 0 of" in read_output(out)


async def test_a_resumed_job_shows_how_much_is_sent_while_it_reads_again() -> None:
    @attrs.define
    class Place:
        """How far a source of a hundred bytes is read."""

        bytes_read: int = 100
        size: int = 100

    clock, out, place = VirtualClock(), console(terminal=False), Place()
    lines = Display(cast(CsvSource, place), form="lines", console=out, clock=clock, limit=LIMIT)
    lines.begin("checking")
    before = Progress(read=1_000, accepted=1_000)  # by an earlier run, of 2,000
    steps: list[tuple[JobPhase, int]]
    steps = [("reading", 25), ("reading", 50), ("sending", 10), ("sending", 50), ("sending", 60)]
    for phase, bytes_read in steps:
        place.bytes_read = bytes_read
        await clock.advance(seconds=6)
        lines.show(attrs.evolve(before, phase=phase))
    shown = [line.split("%")[0] for line in read_output(out).splitlines()]
    assert shown == ["reading 25", "reading 50", "sending 50", "sending 50", "sending 60"]


async def test_the_speed_is_that_of_the_last_minute(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    waiting = attrs.evolve(HALFWAY, wait=Wait(until=clock.monotonic() + 100))
    lines.show(waiting)
    await clock.advance(seconds=90)
    lines.show(waiting)
    await clock.advance(seconds=10)
    lines.show(attrs.evolve(HALFWAY, accepted=980, requests=5))
    assert "| 50 rows/s, 2 of 1,500 requests/min" in read_output(out)


async def test_nothing_settled_yet_is_no_division_by_zero(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    lines = Display(source, form="lines", console=out, clock=clock, limit=LIMIT)
    await clock.advance(seconds=6)
    lines.show(Progress(read=512, pending=512))
    assert read_output(out).startswith("sending 0% | 0 accepted")


def test_what_is_printed_meanwhile_goes_above_the_bars(source: CsvSource, monkeypatch: pytest.MonkeyPatch) -> None:
    out = console(terminal=True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with Display(source, form="bars", console=out, clock=VirtualClock(), limit=LIMIT) as bars:
        bars.show(HALFWAY)
        show("plan: 600,000 rows to send")
        say("warning: the answer does not fit")
    output = read_output(out)
    assert "plan: 600,000 rows to send\n" in output
    assert "warning: the answer does not fit\n" in output


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_without_colours_there_are_lines(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert choose_form(console(terminal=True), as_json=False) == "lines"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (5.04, "5.0 s"), (61, "1:01"), (3_599.7, "1:00:00"), (7_322, "2:02:02")]
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@attrs.define
class HeldGovernor:
    """Holds products until a time of day."""

    until: datetime | None
    used: int = 570

    def snapshot(self) -> tuple[BucketState, ...]:
        return (
            BucketState(
                name="ads.products.put",
                scope="user ann",
                limit=600,
                used=self.used,
                remaining=None,
                waiting=15,
                opens_at=VirtualClock().now(),
                closed_until=None,
                concurrency=100,
                turn_at=self.until,
            ),
        )


PRODUCTS = find_job_limit("catalog", "upload")
BEGUN = Progress(phase="sending")
HELD = Progress(read=28_500, accepted=14_250, pending=14_250, requests=585, phase="sending")


def follow(display: Display, governor: HeldGovernor) -> None:
    display.follow(cast(Governor, governor), [PRODUCTS])


async def test_lines_count_a_wait_for_the_rate_limit_down(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False, width=200)
    governor = HeldGovernor(None)
    with Display(source, form="lines", console=out, clock=clock, limit=PRODUCTS) as lines:
        follow(lines, governor)
        lines.show(BEGUN)
        await clock.advance(seconds=4)
        lines.show(HELD)
        governor.until = clock.now() + timedelta(seconds=901)
        await clock.advance(seconds=70)
    first, *others = read_output(out).splitlines()
    until = f"{governor.until:%H:%M} UTC"
    assert first.startswith(f"sending 50%, 15:00 left | waits for the rate limit, continues at {until} (in 15:00) | ")
    assert first.endswith("570 of 600 requests in 15 min")
    assert [re.findall(r"\(in (.*?)\)", line) for line in others] == [["14:30"], ["14:00"]]


async def test_nothing_is_printed_after_the_end(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    with Display(source, form="lines", console=out, clock=clock, limit=PRODUCTS) as lines:
        lines.show(BEGUN)
    await clock.advance(seconds=70)
    assert not read_output(out)


async def test_lines_count_a_quarantine_down(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=False)
    with Display(source, form="lines", console=out, clock=clock, limit=LIMIT) as lines:
        lines.show(attrs.evolve(HALFWAY, wait=Wait(until=clock.monotonic() + 86)))
        await clock.advance(seconds=65)
    assert re.findall(r"\(in ([\d:.]+)", read_output(out)) == ["1:26", "56.0", "26.0"]


async def test_bars_count_a_wait_for_the_rate_limit_down(source: CsvSource) -> None:
    clock, out = VirtualClock(), console(terminal=True, width=60)
    governor = HeldGovernor(clock.now() + timedelta(seconds=900))
    with Display(source, form="bars", console=out, clock=clock, limit=PRODUCTS) as bars:
        follow(bars, governor)
        bars.show(BEGUN)
        await clock.advance(seconds=4)
        bars.show(HELD)
        await clock.advance(seconds=60)
        shown = "\n".join(render(bars)).replace("\N{NO-BREAK SPACE}", " ")
        for part in (
            "13:56 left",
            "continues in 13:56",
            f"waits for the rate limit   continues at {governor.until:%H:%M} UTC",
            "570 of 600 requests in 15 min",
        ):
            assert part in shown
        governor.until = None
        await clock.advance(seconds=1)
        assert "continues" not in "\n".join(render(bars))


async def test_the_rest_counts_all_windows_that_a_job_needs(source: CsvSource) -> None:
    clock, out, governor = VirtualClock(), console(terminal=False, width=200), HeldGovernor(None)
    with Display(source, form="lines", console=out, clock=clock, limit=PRODUCTS) as lines:
        follow(lines, governor)
        lines.show(BEGUN)
        await clock.advance(seconds=4)
        lines.show(attrs.evolve(HELD, read=142_500, pending=128_250))
        governor.until = clock.now() + timedelta(seconds=901)
        await clock.advance(seconds=1)
    assert "sending 10%, 2:15:00 left" in read_output(out)
