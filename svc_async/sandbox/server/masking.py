"""Masks tokens, signatures and cookies before a request is logged."""

import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

__all__ = ["mask_headers", "mask_query"]

_SECRETS = ("oauth_signature", "oauth_token", "oauth_verifier")
_QUERY_SECRETS = frozenset((*_SECRETS, "access_token", "code", "refresh_token", "token"))
_IN_HEADER = re.compile(rf'\b((?:{"|".join(_SECRETS)})=")[^"]*')
_MASKED_HEADERS = ("cookie", "proxy-authorization")


def mask_query(query: str) -> str:
    """Return a query string without the values of its secrets."""
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
    return masked


def _mask_authorization(header: str) -> str:
    scheme = header.partition(" ")[0]
    return _IN_HEADER.sub(r"\1***", header) if scheme.lower() == "oauth" else f"{scheme} ***"
