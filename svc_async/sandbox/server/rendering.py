"""How answers and refusals look on the wire.

A refusal names its reason with a word of the advertising API, or with a number of the main API. A numbered one is
written in the one stated shape everywhere, `{"errors": [{"code": 89, "message": ...}]}` (ERR-01); a word is written as
the operation's dialect has it, and where that knows only numbers, with the number of the word.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from string import Template
from typing import Any
from urllib.parse import urlencode

import attrs
import msgspec

__all__ = [
    "PAGE_HEADERS",
    "Basis",
    "Dialect",
    "Problem",
    "Refusal",
    "Reply",
    "answered",
    "encode",
    "operation_errors",
    "page",
    "refused",
]


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


def operation_errors(by_operation: Mapping[int, Sequence[Problem]], total: int, form: str) -> list[Any]:
    """Give `operation_errors`: a list by operation, or one object with its `index` for each problem."""
    if form == "objects":
        return [
            {"index": index, **problem.as_json()}
            for index, problems in sorted(by_operation.items())
            for problem in problems
        ]
    return [[problem.as_json() for problem in by_operation.get(index, ())] for index in range(total)]


class Dialect(StrEnum):
    """How an operation speaks.

    ADS: the envelope of the advertising API; V1: JSON, refusals by number; V2: JSON, refusals as problem JSON;
    FORM: form-encoded answers, refusals by number; HTML: pages; OAUTH2: JSON, refusals as RFC 6749 5.2 has them;
    CREDENTIALS: JSON, every refusal is 403 with code 99.
    """

    ADS = "ads"
    V1 = "v1"
    V2 = "v2"
    FORM = "form"
    HTML = "html"
    OAUTH2 = "oauth2"
    CREDENTIALS = "credentials"


_JSON = "application/json;charset=utf-8"
_PROBLEM = "application/problem+json"
_FORM = "application/x-www-form-urlencoded;charset=utf-8"
_HTML = "text/html;charset=utf-8"


def answered(dialect: Dialect, content: Any) -> tuple[bytes, str]:
    """Write an answer; gives its content type too."""
    if dialect is Dialect.FORM:
        return urlencode(content).encode(), _FORM
    if dialect is Dialect.HTML:
        return content.encode(), _HTML
    return encode(content), _JSON


def refused(dialect: Dialect, refusal: Refusal, request: Any) -> Reply:
    """Write a refusal; `request` is what the advertising API repeats of it."""
    numbered = any(isinstance(problem.code, int) for problem in refusal.problems)
    write = _numbered if numbered and dialect not in _OWN_NUMBERS else _REFUSALS[dialect]
    return write(refusal, request)


def _on_ads(refusal: Refusal, request: Any) -> Reply:
    errors = [problem.as_json() for problem in refusal.problems]
    body = {"errors": errors, "request": request, **refusal.more}
    return Reply(refusal.status, encode(body), headers=refusal.headers)


# Unspecified: the numbers of ordinary refusals on the main API (ASM-74, ASM-75; the others are public).
_NUMBERS: Mapping[str, int] = {
    "UNAUTHORIZED_ACCESS": 32,
    "ROUTE_NOT_FOUND": 34,
    "MISSING_PARAMETER": 38,
    "INVALID_PARAMETER": 44,
    "TOO_MANY_REQUESTS": 88,
    "HTTPS_REQUIRED": 92,
    "OVER_CAPACITY": 130,
    "INTERNAL_ERROR": 131,
    "CALLBACK_NOT_APPROVED": 415,
}


def _numbered(refusal: Refusal, _request: Any) -> Reply:
    errors = [
        {"code": _NUMBERS.get(str(problem.code), problem.code), "message": problem.message}
        for problem in refusal.problems
    ]
    return Reply(refusal.status, encode({"errors": errors, **refusal.more}), headers=refusal.headers)


def _problem(refusal: Refusal, _request: Any) -> Reply:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "detail": "; ".join(f"{problem.code}: {problem.message}" for problem in refusal.problems),
        "status": refusal.status,
    }
    return Reply(refusal.status, encode(body | refusal.more), _PROBLEM, refusal.headers)


def _page(refusal: Refusal, _request: Any) -> Reply:
    text = "".join(f"<p>{html.escape(problem.message)}</p>" for problem in refusal.problems)
    return Reply(refusal.status, page("This cannot go on", text).encode(), _HTML, {**PAGE_HEADERS, **refusal.headers})


# Unspecified: the words for what RFC 6749 5.2 has none for; they are those of its 4.1.2.1.
_OAUTH2_ERRORS: Mapping[str, str] = {
    "UNAUTHORIZED_ACCESS": "invalid_client",
    "TOO_MANY_REQUESTS": "temporarily_unavailable",
    "OVER_CAPACITY": "temporarily_unavailable",
}


def _oauth2_error(word: str, status: int) -> str:
    usual = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request"
    return _OAUTH2_ERRORS.get(word, usual if word.isupper() else word)


def _rfc_6749(refusal: Refusal, _request: Any) -> Reply:
    body = {
        "error": _oauth2_error(str(refusal.problems[0].code), refusal.status),
        "error_description": "; ".join(problem.message for problem in refusal.problems),
    }
    challenge = {"WWW-Authenticate": "Basic"} if refusal.status == HTTPStatus.UNAUTHORIZED else {}
    headers = {"Cache-Control": "no-store", **challenge, **refusal.headers}
    return Reply(refusal.status, encode(body | refusal.more), headers=headers)


def _code_99(refusal: Refusal, _request: Any) -> Reply:
    # Unspecified: for wrong credentials and a wrong grant (ASM-71); for too many requests it is stated (ERR-02).
    errors = [
        {"code": 99, "label": "authenticity_token_error", "message": problem.message} for problem in refusal.problems
    ]
    return Reply(HTTPStatus.FORBIDDEN, encode({"errors": errors}), headers=refusal.headers)


_REFUSALS: Mapping[Dialect, Callable[[Refusal, Any], Reply]] = {
    Dialect.ADS: _on_ads,
    Dialect.V1: _numbered,
    Dialect.V2: _problem,
    Dialect.FORM: _numbered,
    Dialect.HTML: _page,
    Dialect.OAUTH2: _rfc_6749,
    Dialect.CREDENTIALS: _code_99,
}
_OWN_NUMBERS = (Dialect.HTML, Dialect.OAUTH2)

_STYLE = """:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:30rem;margin:3rem auto;padding:0 1rem}
h1{font-size:1.4rem}label{display:block;margin:1rem 0 .3rem}
input,button{font:inherit;padding:.4rem .8rem;box-sizing:border-box}
input{width:100%}button{margin:1.2rem .6rem 0 0}output{font-size:1.8rem;letter-spacing:.2em}"""
_DOCUMENT = Template("""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>$title</title>
<style>$style</style></head>
<body><main><h1>$title</h1>
$content
</main></body>
</html>
""")
PAGE_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def page(title: str, content: str) -> str:
    """Write a page; the title is escaped, the content is HTML."""
    return _DOCUMENT.substitute(title=html.escape(title), style=_STYLE, content=content)
