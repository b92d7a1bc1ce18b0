"""The files of the page: HTML, style and modules, all of the sandbox's own."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from svc_async.sandbox.server.rendering import Reply

__all__ = ["FILES", "read_page"]

_TYPES: Mapping[str, str] = {
    "html": "text/html;charset=utf-8",
    "css": "text/css;charset=utf-8",
    "js": "text/javascript;charset=utf-8",
    "svg": "image/svg+xml",
}
# No script, style, font or image from elsewhere, none in the page itself, and no text that becomes HTML.
_POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

FILES: tuple[str, ...] = tuple(
    sorted(entry.name for entry in files("svc_async.sandbox.inspector").joinpath("page").iterdir() if "." in entry.name)
)
"""The names of all files; the page itself is `index.html`."""


@cache
def read_page(name: str) -> Reply:
    """Return one of the files as an answer."""
    content = files("svc_async.sandbox.inspector").joinpath("page", name).read_bytes()
    return Reply(200, content, _TYPES[name.rpartition(".")[2]], headers=_HEADERS)
