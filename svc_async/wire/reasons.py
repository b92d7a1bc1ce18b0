"""Reads what a refusal says: the forms of both APIs, and those of the gateways, proxies and frameworks before them.

Whatever comes is bounded in number, depth and length, and is text: no value is shown as Python writes it.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from svc_async.errors import ErrorDetail

__all__ = ["MOST_REASONS", "parse_detail", "parse_details", "read_document", "read_text"]

MOST_REASONS = 100
"""Reasons of one place in an answer; others are dropped."""
_DEEPEST = 4

_CODES = ("code", "Code", "error_code", "errorCode")
_WORDS = (
    "message",
    "Message",
    "error_message",
    "errorMessage",
    "msg",
    "faultstring",
    "detail",
    "description",
    "reason",
)
_NESTED = ("errors", "error", "Error", "detail", "details", "fault")
_OTHERS = ("title", "connection_issue", "parameter", "parameters", "attribute", "type", "value")
_KNOWN = frozenset((*_CODES, *_WORDS, *_NESTED, *_OTHERS, "error_description"))


def read_document(body: object) -> Sequence[ErrorDetail]:
    """Return the reasons in a JSON value."""
    if not isinstance(body, Mapping):
        return [*parse_details(body)]
    reasons: list[ErrorDetail] = []
    if "title" in body:  # the problem document of the main API's version 2: {type, title, detail, status}
        name = _problem_name(body)
        words = [each.removeprefix(f"{name}: ") for each in _list_words(body)]
        reasons.append(ErrorDetail(code=name, message="; ".join(each for each in words if each != name)))
    reasons += parse_details(body.get("errors"))
    if isinstance(error := body.get("error"), str):  # the refusal of an OAuth 2.0 grant (RFC 6749, 5.2)
        reasons.append(ErrorDetail(code=error, message=_to_text(body.get("error_description"))))
    nested = [name for name in _NESTED if isinstance(body.get(name), list | dict)]
    reasons += (each for name in nested if name != "errors" for each in parse_details(body[name]) if each.message)
    code, words = _find_code(body), [*_list_words({name: body[name] for name in body.keys() - {*nested}})]
    if "title" not in body and (words or (code != "" and not reasons)):
        reasons.append(ErrorDetail(code=code, message="; ".join(words)))
    return reasons[:MOST_REASONS]


def parse_details(errors: object, depth: int = 0) -> Iterator[ErrorDetail]:
    """Parse the reasons in one place: objects or strings, in an array or alone."""
    if isinstance(errors, str) and errors:
        yield ErrorDetail(message=errors)
    elif isinstance(errors, list) and depth < _DEEPEST:
        yield from islice((reason for each in errors for reason in parse_details(each, depth + 1)), MOST_REASONS)
    elif isinstance(errors, dict) and (errors.keys() & _KNOWN or not _is_by_parameter(errors)):
        yield parse_detail(errors)
    elif isinstance(errors, dict):
        for name, words in islice(errors.items(), MOST_REASONS):
            yield ErrorDetail(message=_to_text(words), parameter=name)


def _is_by_parameter(errors: Mapping[str, object]) -> bool:
    """Return whether an object has the words about each parameter under its name."""
    return bool(errors) and all(isinstance(each, str | list) for each in islice(errors.values(), MOST_REASONS))


def parse_detail(error: Mapping[str, Any]) -> ErrorDetail:
    """Parse one reason, in the form of either API."""
    code = _find_code(error) or ("" if "message" in error else _problem_name(error))
    parameters = error.get("parameters")
    named = next(iter(parameters), None) if isinstance(parameters, dict) else None
    parameter = error.get("parameter") or error.get("attribute") or named
    words = next(iter(_list_words(error)), "") or _to_text(error.get("title"))
    if not words:
        nested = (each for name in _NESTED for each in _list_texts(error.get(name)))
        words = "; ".join(islice(nested, MOST_REASONS))
    return ErrorDetail(code=code, message=words, parameter=None if parameter is None else _to_text(parameter))


def _find_code(error: Mapping[str, Any]) -> str | int:
    code = next((error[name] for name in _CODES if error.get(name)), "")
    return code if isinstance(code, int) and not isinstance(code, bool) else _to_text(code)


def _list_words(error: Mapping[str, Any]) -> Iterable[str]:
    """Return the words of a reason, each once."""
    return dict.fromkeys(words for name in _WORDS if (words := _to_text(error.get(name))))


def _to_text(value: object) -> str:
    return "; ".join(islice(_list_texts(value), MOST_REASONS))


def _list_texts(value: object, depth: int = 0) -> Iterator[str]:
    """Return the texts and numbers in a value, without the names of an object."""
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value) if not isinstance(value, int) or value.bit_length() < _LARGE else ""
    elif isinstance(value, list | dict) and depth < _DEEPEST:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(each, depth + 1)


_LARGE = 256
_FAILURE = re.compile(r"(?:[A-Z][a-z]+){2,}\b")


def _problem_name(problem: Mapping[str, Any]) -> str:
    # Unspecified: a failure such as `CrcValidationFailed` is named by the first word of `detail` (contract
    # UNS-main-error-body), one of a stream by `connection_issue` (UNS-stream-protocol), any other by its title.
    detail = problem.get("detail")
    failure = _FAILURE.match(detail) if isinstance(detail, str) else None
    return (
        _to_text(problem.get("connection_issue")) or (failure[0] if failure else "") or _to_text(problem.get("title"))
    )


_MOST_TEXT = 16_384
"""Bytes that are read of a body that is not JSON."""
_MARKED = re.compile(r"<(?:title|h1|message)\b[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_ILLEGIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")


def read_text(body: bytes, content_type: str) -> str:
    """Return the words of a body that is not JSON: the title of a page, the message of XML, or plain text."""
    kind = content_type.partition(";")[0].strip().lower()
    text = body[:_MOST_TEXT].decode("utf-8-sig", "replace").strip()
    if _ILLEGIBLE.search(text) or text.startswith(("{", "[")) or text == "null":
        return ""
    if text.startswith("<"):
        found = _MARKED.search(text)
        text = html.unescape(found[1]) if found else ""
    elif kind not in {"", "text/plain"}:
        return ""
    return " ".join(text.split())
