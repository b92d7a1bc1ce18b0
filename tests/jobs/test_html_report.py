import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Literal

import pytest

from svc_async.batch.report import Progress, Report
from svc_async.jobs.html_report import JobRecord, report_page

RECORD = JobRecord(
    title="Upload: <script>alert(1)</script>.csv",
    report=Report(read=1_000_000, accepted=999_990, failed=10, requests=400),
    seconds=64,
    samples=[Progress(seconds=second, accepted=second * 15_625, requests=second * 6) for second in range(65)],
    reasons={"<b>bad</b> & worse": 10},
    requests_per_minute=1_500,
    more={"removals": 7},
)
VOID = {"meta"}


class Tree(HTMLParser):
    """Holds each element to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        del attrs
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    page = report_page(RECORD)
    tree = Tree()
    tree.feed(page)
    assert tree.open == []
    assert tree.seen.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not re.findall(r"https?:|url\(|@import|src=", page)


def test_what_others_wrote_is_no_markup() -> None:
    page = report_page(RECORD)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;.csv" in page
    assert "&lt;b&gt;bad&lt;/b&gt; &amp; worse" in page
    assert "<b>" not in page


def test_numbers_and_plots_are_there() -> None:
    page = report_page(RECORD)
    assert '<th scope="row">Accepted</th><td class="n">999,990</td>' in page
    assert "<dt>Requests</dt><dd>400</dd>" in page
    assert '<th scope="row">Removals</th><td class="n">7</td>' in page
    assert "the limit of the service: 1,500 a minute" in page
    assert page.count('<polyline class="rows"') == 2  # for wide and for narrow windows
    points = re.search(r'class="rows" points="([^"]+)"', page)
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == sorted(heights, reverse=True)
    assert all(0 <= height <= 250 for height in heights)


def test_each_outcome_of_rows_can_be_seen() -> None:
    page = report_page(
        JobRecord(title="x", report=Report(read=10_000_000, accepted=9_999_990, failed=1, pending=9), seconds=1)
    )
    parts = re.findall(r'<rect class="(\w+)" x="([\d.]+)" width="([\d.]+)"', page)
    assert [name for name, _, _ in parts] == ["accepted", "failed", "pending"]
    ends = [float(x) + float(width) for _, x, width in parts]
    assert [float(x) for _, x, _ in parts] == pytest.approx([0, *ends[:-1]], abs=0.02)
    assert ends[-1] == pytest.approx(1000, abs=0.02)
    assert min(float(width) for _, _, width in parts) > 3
    assert "In doubt" not in page


def test_a_job_of_no_time_has_no_plot() -> None:
    page = report_page(JobRecord(title="Nothing", report=Report(), seconds=0.0))
    assert "Too short to draw" in page
    assert "<svg" not in page


def test_a_job_that_ended_early_says_why() -> None:
    record = JobRecord(
        title="x",
        report=Report(),
        seconds=1,
        state="failed",
        ended_early="HTTP 403 <i>; see `b`",
        advice="Run `a < b` again.",
    )
    page = report_page(record)
    assert '<p class="next">Run <code>a &lt; b</code> again.</p>' in page
    assert "<strong>Not finished:</strong> HTTP 403 &lt;i&gt;; see <code>b</code>" in page


@pytest.mark.parametrize(
    ("state", "report", "sentence"),
    [
        ("finished", Report(read=5, accepted=5), "<strong>Finished:</strong> 5 of 5 rows were accepted."),
        (
            "finished",
            Report(read=9, accepted=5, coalesced=1, failed=3),
            "<strong>Finished:</strong> 6 of 9 rows were accepted (1 of them are equal to others), 3 failed.",
        ),
        (
            "running",
            Report(read=9, accepted=5, pending=4, in_doubt=2),
            "<strong>Running:</strong> 5 of 9 rows that were read were accepted, 2 were sent and have no answer yet.",
        ),
        ("finished", Report(), "<strong>Finished:</strong> there was nothing to send."),
        ("stopped", Report(read=9, pending=9), "<strong>Not finished:</strong> the job is stopped. 0 of 9 rows"),
        ("stopped", Report(), "<strong>Not finished:</strong> the job is stopped. Nothing was sent."),
    ],
)
def test_the_first_sentence_says_how_it_ended(
    state: Literal["finished", "running", "stopped"], report: Report, sentence: str
) -> None:
    page = report_page(JobRecord(title="x", report=report, seconds=1, state=state))
    first = page[page.index('<p class="outcome') :].partition("</p>")[0]
    assert sentence in first


def test_the_first_sentence_of_a_sync_counts_the_rows_that_are_unchanged() -> None:
    more = {"additions": 2, "unchanged": 9_000}
    record = JobRecord(title="x", report=Report(read=2, failed=2), seconds=1, more=more)
    assert "0 of 2 rows were accepted, 2 failed, 9,000 unchanged." in report_page(record)
    record = JobRecord(title="x", report=Report(), seconds=1, more=more)
    assert "there was nothing to send, 9,000 unchanged." in report_page(record)


def test_it_says_when_where_and_with_which_version() -> None:
    page = report_page(
        JobRecord(
            title="x",
            report=Report(),
            seconds=90,
            begun_at=datetime(2026, 11, 22, 2, 0, 1, tzinfo=UTC),
            facts={"Account": "18ce54d4x5t", "Host": "ads.example.com"},
            links={"Failures": "file:///home/ada/x.failures.csv"},
            version="1.2.3",
        )
    )
    assert '<time datetime="2026-11-22T02:00:01Z">2026-11-22 02:00 UTC</time>' in page
    assert "<dt>Account</dt><dd>18ce54d4x5t</dd>" in page
    assert "<dt>Host</dt><dd>ads.example.com</dd>" in page
    assert '<a href="file:///home/ada/x.failures.csv">x.failures.csv</a>' in page
    assert "svc-async 1.2.3" in page
