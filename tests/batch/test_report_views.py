"""Reports as plain values, as JSON and in notebooks."""

import json
from typing import Any

import attrs

from svc_async.batch.plan import Plan, SyncReport
from svc_async.batch.report import Failure, Report
from tests.support.html import HtmlReader

REPORT = Report(
    read=3, accepted=1, failed=2, failures=[Failure(1, "secret reason", "INVALID_ROW"), Failure(2, "x", "y")]
)


def test_a_report_is_shown_with_its_counts_only() -> None:
    assert json.loads(REPORT.to_json()) == REPORT.to_dict() == REPORT.as_dict()
    assert REPORT.to_dict()["failures"][0]["reason"] == "secret reason"
    shown = HtmlReader(REPORT._repr_html_())
    assert shown.texts[:5] == ["Not complete", "read", "3", "accepted", "1"]
    assert not {"secret reason", "failures"} & {*shown.texts}
    assert repr(REPORT) == (
        "Report(read=3, accepted=1, coalesced=0, failed=2, pending=0, in_doubt=0, requests=0, partly_valid=0)"
    )


def test_the_report_of_a_sync_is_shown_with_its_plan_and_both_parts() -> None:
    names = [field.name for field in attrs.fields(Plan) if field.default is attrs.NOTHING]
    counts: dict[str, Any] = dict.fromkeys(names, 4)
    report = SyncReport(plan=Plan(**counts), sent=REPORT)
    assert json.loads(report.to_json()) == report.to_dict() == report.as_dict()
    shown = HtmlReader(report._repr_html_())
    assert {"Plan", "Not complete", "sent", "removed", "additions"} <= {*shown.texts}
    assert "secret reason" not in shown.texts
    assert "Complete" in HtmlReader(attrs.evolve(report, sent=Report())._repr_html_()).texts
