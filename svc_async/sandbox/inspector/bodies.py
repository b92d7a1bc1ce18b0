"""Bodies as a person reads them: decoded, without secrets, and cut where they are long."""

from typing import Any

import msgspec

from svc_async.sandbox.server.masking import mask_fields, mask_query

__all__ = ["describe_body", "describe_text"]

_SHOWN = 100_000
"""Characters of a body that are shown."""

_FORM = "application/x-www-form-urlencoded"


def describe_body(body: bytes, content_type: str, *, private: bool, size: int | None = None) -> dict[str, Any]:
    """Return a body decoded.

    Args:
        body: the body, or the beginning of it that was kept.
        content_type: how it is encoded.
        private: whether it may contain secrets, so that it is shown only if they can be found.
        size: of the whole body.
    """
    size = len(body) if size is None else size
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return {"kind": "none", "size": size, "text": "", "cut": False}
    if media_type == _FORM:
        text = "\n".join(mask_query(body.decode("utf-8", "replace")).split("&"))
        return _show("form", text, size)
    if media_type == "text/html" and private:
        return {"kind": "page", "size": size, "text": "", "cut": False}
    formatted = _format_json(body)
    if formatted is not None:
        return _show("json", formatted, size)
    if private:
        return {"kind": "private", "size": size, "text": "", "cut": False}
    return _show("text", body.decode("utf-8", "replace"), size)


def describe_text(value: str) -> str:
    """Return a text of a row, cut where it is long."""
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"


_LONGEST = 300


def _show(kind: str, text: str, size: int) -> dict[str, Any]:
    return {"kind": kind, "size": size, "text": text[:_SHOWN], "cut": len(text) > _SHOWN}


def _format_json(body: bytes) -> str | None:
    """Return JSON with line breaks, its numbers as they came; None if it is none."""
    try:
        value = msgspec.json.decode(body)
        masked = mask_fields(value)
        return msgspec.json.format(body if masked == value else msgspec.json.encode(masked), indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
