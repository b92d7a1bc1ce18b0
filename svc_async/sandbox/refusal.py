"""Refusals: the problems that end a request with an error, and the rule that each rests on."""

import logging
import secrets
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import attrs

__all__ = ["Basis", "Finding", "Problem", "Refusal", "find_basis", "invalid", "missing", "refuse", "report_failure"]

_log = logging.getLogger(__name__)


class Basis(StrEnum):
    """What an answer rests on."""

    SPEC = "spec"
    PUBLIC = "public"
    ASSUMED = "assumed"


@attrs.frozen
class Problem:
    """One reason of a refusal."""

    code: str | int
    message: str
    parameter: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as the advertising API writes it, without absent fields."""
        return attrs.asdict(self, filter=lambda _, value: value is not None)


class Refusal(Exception):
    """Ends a request with an error.

    Attributes:
        more: further fields of the body.
        reason: why, for the request log.
    """

    def __init__(
        self,
        status: int,
        *problems: Problem,
        rule: str = "",
        basis: Basis = Basis.ASSUMED,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(status, problems)
        self.status = status
        self.problems = problems
        self.rule = rule
        self.basis = basis
        self.more = dict(more or {})
        self.headers = dict(headers or {})
        self.reason = reason or "; ".join(problem.message for problem in problems)


def report_failure() -> Refusal:
    """Log the exception that is being handled, and return the refusal that names its entry in the log."""
    incident = secrets.token_hex(4)
    _log.exception("incident %s: the sandbox failed", incident)
    return Refusal(500, Problem("INTERNAL_ERROR", f"the sandbox failed; its log describes incident {incident}"))


class Finding(NamedTuple):
    """A problem of a parameter and the rule that it breaks."""

    rule: str
    problem: Problem


def invalid(rule: str, message: str, parameter: str, *, code: str = "INVALID_PARAMETER") -> Finding:
    """Return the finding that a value is wrong."""
    return Finding(rule, Problem(code, f"{parameter} {message}", parameter))


def missing(rule: str, parameter: str) -> Finding:
    """Return the finding that a parameter is missing."""
    return invalid(rule, "is required", parameter, code="MISSING_PARAMETER")


def refuse(*findings: Finding) -> None:
    """Refuse the request if there are findings.

    Raises:
        Refusal: there are; each is named.
    """
    if findings:
        rule = findings[0].rule
        raise Refusal(400, *(finding.problem for finding in findings), rule=rule, basis=find_basis(rule))


def find_basis(rule: str) -> Basis:
    """Return the basis of a rule."""
    return _BASES.get(rule.partition("-")[0], Basis.SPEC)


_BASES = {"ASM": Basis.ASSUMED, "CA": Basis.PUBLIC, "CAP": Basis.PUBLIC, "DNL": Basis.PUBLIC}
"""The basis of rules by what their ids begin with; that of all others is the specification."""
