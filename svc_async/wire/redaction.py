"""Removes what a call has proved itself with from what is said about it: a service or a proxy may echo it."""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote

import attrs

__all__ = ["NO_SECRETS", "Secrets", "find_secrets"]

_NAMES = frozenset(
    [
        "access_token",
        "client_secret",
        "code",
        "code_verifier",
        "oauth_signature",
        "oauth_token",
        "oauth_verifier",
        "password",
        "refresh_token",
        "token",
    ]
)
"""The parameters of a call, also those of OAuth 1.0a in its header, whose values are secret."""
_SHORTEST = 6
"""Characters of what is taken for a secret; shorter texts occur in words."""
_REMOVED = "…".encode()
_MOST_FIELDS = 100


@attrs.frozen
class Secrets:
    """The secrets of a call, each after the part of it that nothing escapes.

    The longest come first, since one may be a part of another.
    """

    _secrets: Sequence[tuple[bytes, str]] = attrs.field(repr=False)

    def hide(self, text: bytes) -> bytes:
        """Return a text without the secrets, however they are escaped in it."""
        for part, secret in self._secrets:
            # To compile the pattern of the whole takes milliseconds, and to search a MiB for it tenths of a second.
            if part in text:
                text = re.sub(b"".join(map(_match, secret)), _REMOVED, text)
        return text

    def hide_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers without the secrets, with names in lower case."""
        shown = {name.lower(): value for name, value in headers.items()}
        return {
            name: self.hide(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
            for name, value in shown.items()
        }


NO_SECRETS: Final = Secrets(())


def find_secrets(authorization: str, query: Iterable[tuple[str, str]] = (), form: bytes = b"") -> Secrets:
    """Return the secrets of a call.

    Args:
        authorization: its header.
        query: its parameters, quoted.
        form: its body, if that is form-encoded.
    """
    scheme, _, rest = authorization.partition(" ")
    pairs = [*query, *parse_qsl(form.decode("latin-1"), max_num_fields=_MOST_FIELDS)]
    values = [rest]
    if scheme == "Basic":
        values.append(b64decode(rest).decode("latin-1").partition(":")[2])
    elif scheme == "OAuth":
        pairs += re.findall(r'(\w+)="([^"]*)"', rest)
    values += (value for name, value in pairs if name in _NAMES)
    found = {form for value in values for form in (value, unquote(value)) if len(form) >= _SHORTEST}
    return Secrets([(_find_part(each), each) for each in sorted(found, key=len, reverse=True)])


def _find_part(secret: str) -> bytes:
    return max(re.split(rb"[^A-Za-z0-9]", secret.encode()), key=len)


def _match(letter: str) -> bytes:
    """Return a pattern for a letter as it is, and as JSON, URLs and HTML escape it."""
    raw, code = letter.encode(), ord(letter)
    if letter.isascii() and letter.isalnum():
        return raw
    quoted = b"".join(b"%%%02x" % byte for byte in raw)
    escaped = rb"(?i:%s|\\u%04x|&#x0{0,2}%x;|&#0{0,2}%d;)" % (quoted, code, code, code)
    names = {"&": b"|&amp;", "<": b"|&lt;", ">": b"|&gt;", '"': rb"|&quot;|\\\"", "/": rb"|\\/"}
    return b"(?:%s|%s%s)" % (re.escape(raw), escaped, names.get(letter, b""))
