"""Compares the installed distributions with the database of known vulnerabilities: `nox -s audit`.

pip-audit counts what it could not look up as passed. Here that is a failure with CI=true, and a clear word elsewhere.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import attrs

_OPTIONS = ("--format", "json", "--progress-spinner", "off", "--timeout", "15", "--skip-editable")


@attrs.frozen
class Audit:
    """What an audit found.

    Attributes:
        vulnerable: a line for each known vulnerability.
        checked: how many distributions were looked up.
        skipped: the names of those that the database does not know or that could not be looked up.
    """

    vulnerable: tuple[str, ...]
    checked: int
    skipped: tuple[str, ...]

    def fails(self, *, is_ci: bool) -> bool:
        """Return whether the check fails; without an answer it does so only in CI."""
        return bool(self.vulnerable) or (self.checked == 0 and is_ci)

    def describe(self) -> str:
        """Return what to print."""
        if self.checked == 0:
            return "NOT AUDITED: the database of vulnerabilities cannot be reached from here. Run it where it can be."
        lines = [*self.vulnerable, f"{self.checked} distributions checked, {len(self.vulnerable)} vulnerabilities"]
        if self.skipped:
            lines.append(f"not in the database: {', '.join(self.skipped)}")
        return "\n".join(lines)


def read_report(report: Mapping[str, Any]) -> Audit:
    """Return what a report of pip-audit says."""
    found = report["dependencies"]
    problems = [(each, flaw) for each in found for flaw in each.get("vulns", ())]
    return Audit(
        vulnerable=tuple(
            f"{each['name']} {each['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'none'}"
            for each, flaw in problems
        ),
        checked=sum("vulns" in each for each in found),
        skipped=tuple(each["name"] for each in found if "skip_reason" in each),
    )


def main() -> int:
    """Run pip-audit in this environment and print what it found."""
    command = [sys.executable, "-m", "pip_audit", *_OPTIONS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:  # it ends with a traceback where it cannot connect
        sys.stderr.write("\n".join(run.stderr.splitlines()[-1:]) + "\n")
        report = {"dependencies": []}
    audit = read_report(report)
    sys.stdout.write(audit.describe() + "\n")
    return int(audit.fails(is_ci=os.environ.get("CI") == "true"))


if __name__ == "__main__":
    sys.exit(main())
