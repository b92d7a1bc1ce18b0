"""The page of a job: as a file, and while another process runs the job."""

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import expect

from svc_async.batch.report import Progress, Report
from svc_async.jobs.html_report import JobRecord, report_page
from svc_async.sandbox import Fault, Sandbox
from tests.support.command import Command, environment_of
from tests.support.page import JobPage

USERS = "*/custom_audiences/*/users"
RECORD = JobRecord(
    title="Upload to an audience: customers-2026-11.csv",
    report=Report(read=3_000_000, accepted=2_941_233, coalesced=57_563, failed=1_204, requests=217),
    seconds=187.3,
    begun_at=datetime(2026, 11, 22, 2, 0, 1, tzinfo=UTC),
    facts={"Account": "18ce54d4x5t", "File": f"/home/ada/{'a-long-folder/' * 12}customers.csv"},
    links={"Failures": "failures.csv"},
    samples=[Progress(seconds=tick * 0.9, accepted=tick * 14_706, requests=tick) for tick in range(201)],
    reasons={"email must be an e-mail address": 902, "phone_number must be a phone number in E.164": 302},
    requests_per_minute=1_500,
    more={"additions": 5, "removals": 7},
    version="1.2.3",
)


@pytest_asyncio.fixture(loop_scope="session")
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox on machine time, as commands are."""
    async with Sandbox() as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="session")
async def report(browser: Any, tmp_path: Path, view: tuple[int, str]) -> AsyncIterator[JobPage]:
    """A page in a file, at both widths and in both colours."""
    path = tmp_path / "report.html"
    path.write_text(report_page(RECORD), encoding="utf-8")
    async with JobPage.open(browser, path.as_uri(), width=view[0], colours=view[1]) as page:
        yield page
        assert page.requests == [path.as_uri()]


async def test_a_report_can_be_read_by_everybody(report: JobPage) -> None:
    await expect(report.outcome).to_contain_text("2,998,796 of 3,000,000 rows were accepted")
    assert await report.list_violations() == []
    assert await report.count_pixels_too_wide() <= 0
    await report.page.get_by_text("Requests: the numbers").click()
    await expect(report.page.get_by_role("table", name="Requests over time")).to_contain_text("3 min")
    assert await report.list_violations() == []
    assert await report.count_pixels_too_wide() <= 0


async def test_letters_of_a_chart_are_large_enough(report: JobPage) -> None:
    chart = report.page.get_by_role("img", name="Accepted rows: 2,941,233 after 3 min 7 s")
    await expect(chart).to_have_count(1)
    heights = await chart.locator("text").evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
    assert min(heights) >= 11


async def test_lines_of_a_chart_can_be_seen(report: JobPage) -> None:
    """Graphics have a contrast of at least 3 with what is behind them."""
    contrasts = await report.page.evaluate("""() => {
      const light = (text) => {
        const parts = text.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255);
        const [r, g, b] = parts.map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const ground = light(getComputedStyle(document.querySelector("section")).backgroundColor);
      return [".rows", ".requests", ".limit", ".axis"].map((name) => {
        const line = light(getComputedStyle(document.querySelector(name)).stroke);
        return (Math.max(line, ground) + 0.05) / (Math.min(line, ground) + 0.05);
      });
    }""")
    assert min(contrasts) >= 3


async def test_a_report_works_by_keyboard_only(report: JobPage) -> None:
    await report.tab_to("Accepted rows: the numbers")
    await report.press("Enter")
    await expect(report.page.get_by_role("table", name="Accepted rows over time")).to_be_visible()


async def test_a_job_is_shown_while_it_runs(
    browser: Any, sandbox: Sandbox, tmp_path: Path, view: tuple[int, str]
) -> None:
    (tmp_path / "people.csv").write_text("email\n" + "".join(f"user{n}@example.org\n" for n in range(6_000)))
    command = Command(tmp_path, environment_of(sandbox))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    upload = await command.start(
        *("audience", "upload", "people.csv", *target, "--journal", "job.journal"),
        *("--users-per-operation", "1", "--concurrency", "1"),
    )
    await sandbox.requests.wait(count=2, route=USERS)
    watch = await command.start("job", "watch", "job.journal", "--json")
    url = (await watch.item())["url"]
    async with JobPage.open(browser, url, width=view[0], colours=view[1]) as page:
        await expect(page.connection).to_have_text("Live")
        await expect(page.outcome).to_contain_text("Running: 2,500 of 6,000 rows that were read were accepted")
        assert await page.list_violations() == []
        assert await page.count_pixels_too_wide() <= 0
        await page.tab_to("Requests: the numbers")
        await page.press("Enter")
        upload.send(signal.SIGINT)
        await upload.wait()
        await expect(page.outcome).to_contain_text("Not finished: the job is stopped")
        await expect(page.connection).to_have_text("The job has ended")
        await expect(page.page.get_by_role("table", name="Requests over time")).to_be_visible()  # it stays open
        assert await page.get_focused() == "Requests: the numbers"
        assert await page.list_violations() == []
    assert (await watch.wait()).end["result"]["state"] == "stopped"
