"""How answers and refusals look on the wire, also those that an operation writes piece by piece.

A refusal names its reason with a word of the advertising API, or with a number of the main API. A numbered one is
written in the one stated shape everywhere, `{"errors": [{"code": 89, "message": ...}]}` (ERR-01); a word is written as
the operation's format has it, and where that knows only numbers, with the number of the word.
"""

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from string import Template
from typing import Any
from urllib.parse import urlencode

import attrs
import msgspec
from aiohttp import web

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.refusal import Problem, Refusal

__all__ = [
    "PAGE_HEADERS",
    "Format",
    "OpenResponse",
    "Reply",
    "list_operation_errors",
    "render_answer",
    "render_json",
    "render_page",
    "render_refusal",
]


@attrs.define(eq=False)
class OpenResponse:
    """A request and its connection.

    Attributes:
        request: the request; its body has been read.
        closed: set when the client has disconnected or the sandbox closes.
        clock: the sandbox's time.
        response: the response that was started.
    """

    request: web.BaseRequest = attrs.field(repr=False)
    closed: asyncio.Event
    clock: Clock
    _headers: Callable[[int], Mapping[str, str]]
    response: web.StreamResponse | None = None

    async def start(self, status: int = 200, *, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send status and headers, with the sandbox's own, and return the response to write to."""
        self.response = web.StreamResponse(status=status, headers={**self._headers(status), **headers})
        await self.response.prepare(self.request)
        return self.response

    def on_close(self, callback: Callable[[], None]) -> asyncio.Task[None]:
        """Call back once the client has disconnected or the sandbox closes; cancel the task to unsubscribe."""

        async def wait() -> None:
            await self.closed.wait()
            callback()

        return asyncio.create_task(wait())

    def abort(self) -> None:
        """Cut the connection."""
        if self.request.transport is not None:
            self.request.transport.abort()


@attrs.frozen
class Reply:
    """A whole answer, ready to be sent."""

    status: int
    body: bytes = b""
    content_type: str = "application/json;charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


def render_json(value: Any) -> bytes:
    """Return a value as JSON."""
    return msgspec.json.encode(value)


def list_operation_errors(by_operation: Mapping[int, Sequence[Problem]], total: int) -> list[Any]:
    """Return `operation_errors`."""
    # Unspecified: that it is a list by operation, not one object with its `index` for each problem (ASM-111).
    return [[problem.as_json() for problem in by_operation.get(index, ())] for index in range(total)]


class Format(StrEnum):
    """How the answers of an operation are written.

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


def render_answer(format_: Format, content: Any) -> tuple[bytes, str]:
    """Return an answer and its content type."""
    if format_ is Format.FORM:
        return urlencode(content).encode(), _FORM
    if format_ is Format.HTML:
        return content.encode(), _HTML
    return render_json(content), _JSON


def render_refusal(format_: Format, refusal: Refusal, request: Any) -> Reply:
    """Return a refusal; `request` is the part of the request that the advertising API repeats."""
    numbered = any(isinstance(problem.code, int) for problem in refusal.problems)
    write = _render_numbered if numbered and format_ not in _OWN_NUMBERS else _REFUSALS[format_]
    return write(refusal, request)


def _render_ads(refusal: Refusal, request: Any) -> Reply:
    errors = [problem.as_json() for problem in refusal.problems]
    body = {"errors": errors, "request": request, **refusal.more}
    return Reply(refusal.status, render_json(body), headers=refusal.headers)


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


def _render_numbered(refusal: Refusal, _request: Any) -> Reply:
    errors = [
        {"code": _NUMBERS.get(str(problem.code), problem.code), "message": problem.message}
        for problem in refusal.problems
    ]
    return Reply(refusal.status, render_json({"errors": errors, **refusal.more}), headers=refusal.headers)


def _render_problem(refusal: Refusal, _request: Any) -> Reply:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "detail": "; ".join(f"{problem.code}: {problem.message}" for problem in refusal.problems),
        "status": refusal.status,
    }
    return Reply(refusal.status, render_json(body | refusal.more), _PROBLEM, refusal.headers)


def _render_page(refusal: Refusal, _request: Any) -> Reply:
    text = "".join(f"<p>{html.escape(problem.message)}</p>" for problem in refusal.problems)
    return Reply(
        refusal.status, render_page("This cannot go on", text).encode(), _HTML, {**PAGE_HEADERS, **refusal.headers}
    )


# Unspecified: the codes that RFC 6749 5.2 lacks; they are those of its 4.1.2.1.
_OAUTH2_ERRORS: Mapping[str, str] = {
    "UNAUTHORIZED_ACCESS": "invalid_client",
    "TOO_MANY_REQUESTS": "temporarily_unavailable",
    "OVER_CAPACITY": "temporarily_unavailable",
}


def _name_oauth2_error(word: str, status: int) -> str:
    usual = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request"
    return _OAUTH2_ERRORS.get(word, usual if word.isupper() else word)


def _render_oauth2(refusal: Refusal, _request: Any) -> Reply:
    body = {
        "error": _name_oauth2_error(str(refusal.problems[0].code), refusal.status),
        "error_description": "; ".join(problem.message for problem in refusal.problems),
    }
    challenge = {"WWW-Authenticate": "Basic"} if refusal.status == HTTPStatus.UNAUTHORIZED else {}
    headers = {"Cache-Control": "no-store", **challenge, **refusal.headers}
    return Reply(refusal.status, render_json(body | refusal.more), headers=headers)


def _render_code_99(refusal: Refusal, _request: Any) -> Reply:
    # Unspecified: for wrong credentials and a wrong grant (ASM-71); for too many requests it is stated (ERR-02).
    errors = [
        {"code": 99, "label": "authenticity_token_error", "message": problem.message} for problem in refusal.problems
    ]
    return Reply(HTTPStatus.FORBIDDEN, render_json({"errors": errors}), headers=refusal.headers)


_REFUSALS: Mapping[Format, Callable[[Refusal, Any], Reply]] = {
    Format.ADS: _render_ads,
    Format.V1: _render_numbered,
    Format.V2: _render_problem,
    Format.FORM: _render_numbered,
    Format.HTML: _render_page,
    Format.OAUTH2: _render_oauth2,
    Format.CREDENTIALS: _render_code_99,
}
_OWN_NUMBERS = (Format.HTML, Format.OAUTH2)

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


def render_page(title: str, content: str) -> str:
    """Return a page; the title is escaped, the content is HTML."""
    return _DOCUMENT.substitute(title=html.escape(title), style=_STYLE, content=content)
