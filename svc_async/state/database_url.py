"""The URL of a database. It may contain a password, so its text is shown nowhere."""

from urllib.parse import parse_qs, urlsplit

import attrs

from svc_async.errors import InvalidArgument
from svc_async.printable import clean
from svc_async.value_rules import TEXT

__all__ = ["DatabaseUrl"]

_SCHEMES = ("postgresql", "postgres")
_LONGEST = 8_192
_SHOWN = 200  # characters of a name


@attrs.frozen
class DatabaseUrl:
    """`postgresql://user:password@host:port/database`; the query may name a socket (`host`) and settings of TLS.

    Attributes:
        name: host and database, for messages.
    """

    name: str
    _text: str = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "DatabaseUrl":
        """Return the URL that a text contains.

        Raises:
            InvalidArgument: it is not the URL of a PostgreSQL database; the message leaves it out.
        """
        name = _describe(text) if TEXT.accepts(text) and len(text) <= _LONGEST else None
        try:
            if name is None:
                raise InvalidArgument("state_url", "must begin with postgresql:// and name a database")
            return cls(name, text)
        finally:
            del text  # its password must not be among the locals of a traceback

    def reveal(self) -> str:
        """Return the text, with the password."""
        return self._text


def _describe(text: str) -> str | None:
    """Return host and database; None if it is no URL of PostgreSQL."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        port = parts.port
        query = parse_qs(parts.query)
    except ValueError:  # it may quote the text
        return None
    if parts.scheme not in _SCHEMES:
        return None
    place = f"{host}:{port}" if port else host
    socket = "" if place else ", ".join(query.get("host", ["a local socket"]))
    return clean(f"{place or socket}{parts.path}")[:_SHOWN]
