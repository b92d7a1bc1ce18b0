import re
from html.parser import HTMLParser

from svc_async.batch.report import Report
from svc_async.batch.timeline import Sample
from svc_async.jobs.html_report import JobRecord, report_page

RECORD = JobRecord(
    title="Upload: <script>alert(1)</script>.csv",
    report=Report(read=1_000_000, accepted=999_990, failed=10, requests=400),
    seconds=64,
    samples=[Sample(second, second * 15_625, second * 6, 0) for second in range(65)],
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
    assert '<td>accepted</td><td class="n">999,990</td>' in page
    assert '<td>removals</td><td class="n">7</td>' in page
    assert "dashed: the limit, 1,500 a minute" in page
    assert page.count("<svg") == 2
    points = re.search(r'class="rows" points="([^"]+)"', page)
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == sorted(heights, reverse=True)
    assert all(0 <= height <= 220 for height in heights)


def test_a_job_of_no_time_has_no_plot() -> None:
    page = report_page(JobRecord(title="Nothing", report=Report(), seconds=0.0))
    assert "too short to draw" in page
    assert "<svg" not in page


def test_a_job_that_ended_early_says_why() -> None:
    page = report_page(JobRecord(title="x", report=Report(), seconds=1, ended_early="HTTP 403 <i>"))
    assert "<strong>Not finished:</strong> HTTP 403 &lt;i&gt;" in page
