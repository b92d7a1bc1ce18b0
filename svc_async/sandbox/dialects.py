"""How answers and refusals look on the wire."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs
import msgspec

__all__ = ["Basis", "Problem", "Refusal", "Reply", "encode", "error_body", "operation_errors"]


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
        """Write it as the advertising API does; what is absent is left out."""
        return attrs.asdict(self, filter=lambda _, value: value is not None)


class Refusal(Exception):
    """Ends a request with an error.

    Attributes:
        more: what else the body holds.
    """

    def __init__(
        self,
        status: int,
        *problems: Problem,
        rule: str = "",
        basis: Basis = Basis.ASSUMED,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, problems)
        self.status = status
        self.problems = problems
        self.rule = rule
        self.basis = basis
        self.more = dict(more or {})
        self.headers = dict(headers or {})


@attrs.frozen
class Reply:
    """A whole answer, before it goes to the wire."""

    status: int
    body: bytes = b""
    content_type: str = "application/json;charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


def encode(value: Any) -> bytes:
    """Write JSON."""
    return msgspec.json.encode(value)


def error_body(problems: Sequence[Problem], request: Any) -> dict[str, Any]:
    """Give the body of a refusal on the advertising API.

    The one stated shape, `{"errors": [{"code": 89, "message": ...}]}` (ERR-01), has no `request` beside it.
    """
    errors = [problem.as_json() for problem in problems]
    if any(isinstance(problem.code, int) for problem in problems):
        return {"errors": errors}
    return {"errors": errors, "request": request}


def operation_errors(by_operation: Mapping[int, Sequence[Problem]], total: int, form: str) -> list[Any]:
    """Give `operation_errors`: a list by operation, or one object with its `index` for each problem."""
    if form == "objects":
        return [
            {"index": index, **problem.as_json()}
            for index, problems in sorted(by_operation.items())
            for problem in problems
        ]
    return [[problem.as_json() for problem in by_operation.get(index, ())] for index in range(total)]
