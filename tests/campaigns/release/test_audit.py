"""What could not be looked up does not count as free of vulnerabilities."""

from typing import Any

from tests.campaigns.release.audit import read_report

CLEAN = {"name": "attrs", "version": "25.1", "vulns": []}
SKIPPED = {"name": "svc-async", "skip_reason": "Dependency not found"}
VULNERABLE: dict[str, Any] = {
    "name": "aiohttp",
    "version": "3.9",
    "vulns": [{"id": "CVE-2024-1", "fix_versions": ["3.9.2"]}],
}


def test_a_vulnerability_fails_everywhere() -> None:
    audit = read_report({"dependencies": [CLEAN, VULNERABLE]})
    assert audit.fails(is_ci=False)
    assert "aiohttp 3.9: CVE-2024-1, fixed in 3.9.2" in audit.describe()


def test_clean_distributions_pass() -> None:
    audit = read_report({"dependencies": [CLEAN, SKIPPED]})
    assert not audit.fails(is_ci=True)
    assert audit.describe() == "1 distributions checked, 0 vulnerabilities\nnot in the database: svc-async"


def test_an_audit_that_reached_no_database_fails_in_ci_and_says_so() -> None:
    audit = read_report({"dependencies": [SKIPPED]})
    assert audit.fails(is_ci=True)
    assert not audit.fails(is_ci=False)
    assert audit.describe().startswith("NOT AUDITED")
