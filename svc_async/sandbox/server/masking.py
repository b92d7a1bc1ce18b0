"""Masks tokens, signatures and cookies before a request is logged."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

__all__ = ["mask_fields", "mask_headers", "mask_query", "mask_url"]

_SECRETS = ("oauth_signature", "oauth_token", "oauth_verifier")
_QUERY_SECRETS = frozenset(
    (
        *_SECRETS,
        "access_token",
        "client_secret",
        "code",
        "code_verifier",
        "oauth_token_secret",
        "password",
        "refresh_token",
        "token",
    )
)
_JSON_SECRETS = _QUERY_SECRETS - {"code"}  # there it is the code of an error
_IN_HEADER = re.compile(rf'\b((?:{"|".join(_SECRETS)})=")[^"]*')
_MASKED_HEADERS = ("cookie", "proxy-authorization", "set-cookie")


def mask_query(query: str) -> str:
    """Return a query string, or a form, without the values of its secrets."""
    return "&".join(map(_mask_pair, query.split("&")))


def _mask_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}=***" if equals and unquote_plus(name) in _QUERY_SECRETS else pair


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers without secrets; their names are in lower case."""
    masked = {name.lower(): value for name, value in headers.items()}
    masked |= {name: "***" for name in _MASKED_HEADERS if name in masked}
    if (authorization := masked.get("authorization")) is not None:
        masked["authorization"] = _mask_authorization(authorization)
    if (location := masked.get("location")) is not None:
        masked["location"] = mask_url(location)
    return masked


def mask_url(url: str) -> str:
    """Return a URL without the secrets in its query."""
    path, mark, query = url.partition("?")
    return f"{path}{mark}{mask_query(query)}"


def mask_fields(value: Any) -> Any:
    """Return a JSON value without the secrets in its objects."""
    if isinstance(value, dict):
        return {name: "***" if name in _JSON_SECRETS else mask_fields(inner) for name, inner in value.items()}
    return [mask_fields(inner) for inner in value] if isinstance(value, list) else value


def _mask_authorization(header: str) -> str:
    scheme = header.partition(" ")[0]
    return _IN_HEADER.sub(r"\1***", header) if scheme.lower() == "oauth" else f"{scheme} ***"
