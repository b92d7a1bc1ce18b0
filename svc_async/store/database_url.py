"""The URL of a database. It may contain a password, so its text is shown nowhere."""

import getpass
import os
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import attrs

from svc_async.errors import InvalidArgument
from svc_async.printable import clean
from svc_async.value_rules import TEXT

__all__ = ["DatabaseUrl"]

_SCHEMES = ("postgresql://", "postgres://")
_LONGEST = 8_192
_SHOWN = 200  # characters of a name
_SCHEME = "must begin with postgresql:// and name a database"
_PASSWORD = "must have / ? # and @ in a password written as %2F %3F %23 %40"  # noqa: S105 - a rule
_ADDRESS = "must have a host, and a port from 1 to 65535 if any"
_SETTINGS = (
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("host", "port", "dbname", "user", "password", "passfile"),
    *("target_session_attrs", "krbsrvname", "gsslib", "application_name", "options"),
)
"""Those of libpq that the oldest supported driver takes; others it would send to the server, which refuses them."""
_MODES = ("disable", "require", "verify-ca", "verify-full")
"""Not `allow` and `prefer`: they send the password in the clear to whoever asks for it."""
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_ROOT = "~/.postgresql/root.crt"
_KNOWN_ELSEWHERE = (
    "connect_timeout",
    "channel_binding",
    "sslnegotiation",
    "pgbouncer",
    "connection_limit",
    "pool_size",
)
"""Names that a message may repeat: any other may be a part of a password."""


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
        try:
            if problem := _find_problem(text):
                raise InvalidArgument("state_url", problem)
            return cls(_describe(text), text)
        finally:
            del text  # its password must not be among the locals of a traceback

    def find_local_problem(self) -> str | None:
        """Return what this machine lacks that the URL needs, a file of TLS or the name of a user; None if nothing.

        The driver says only that a setting is not valid, that there is no file or socket, or nothing that means this.
        """
        settings = {name: values[0] for name, values in parse_qs(urlsplit(self._text).query).items()}
        for name in _FILES:
            if name in settings and not os.access(settings[name], os.R_OK):
                return f"has the setting {name}, which must name a file that can be read"
        mode = settings.get("sslmode", "")
        default = os.path.expanduser(_ROOT)  # noqa: PTH111 - pathlib raises without a home folder
        has_root = "sslrootcert" in settings or "PGSSLROOTCERT" in os.environ or Path(default).exists()
        if mode.startswith("verify") and not has_root:
            return f"has sslmode={mode}, which needs sslrootcert, a file with the root certificate, or {_ROOT}"
        if not (urlsplit(self._text).username or "user" in settings or "PGUSER" in os.environ or _find_user()):
            return "must name a user of the database: the user of this process has no name"
        return None

    def choose_sslmode(self) -> str | None:
        """Return the `sslmode` that the driver gets: `require` where nobody names another; None for the one named.

        Other users of this machine may listen on its addresses, too. A socket has no TLS, whatever this says.
        """
        is_named = "sslmode" in parse_qs(urlsplit(self._text).query) or os.environ.get("PGSSLMODE") in _MODES
        return None if is_named else "require"

    def reveal(self) -> str:
        """Return the text, with the password."""
        return self._text


def _find_user() -> str | None:
    """Return the name of the user of this process; one of a container may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # which of them depends on the version of Python
        return None


def _find_problem(text: str) -> str | None:
    """Return the rule that a URL breaks, without a part of it that may be secret; None if it breaks none."""
    if not TEXT.accepts(text) or len(text) > _LONGEST or not text.lower().startswith(_SCHEMES):
        return _SCHEME
    if "@" in "".join(re.split("[/?#]", text.partition("://")[2], maxsplit=1)[1:]):
        return _PASSWORD
    try:
        parts = urlsplit(text)
        settings = parse_qs(parts.query, keep_blank_values=True)
        if parts.port == 0:
            return _ADDRESS
    except ValueError:  # it may quote the text
        return _ADDRESS
    if unknown := settings.keys() - {*_SETTINGS}:
        named = next((name for name in _KNOWN_ELSEWHERE if name in unknown), None)
        what = f"the setting {named}, which" if named else "a setting that"
        return f"has {what} is not supported; supported are {', '.join(_SETTINGS)}"
    wrong_mode = any(mode not in _MODES for mode in settings.get("sslmode", ()))
    return f"has an sslmode that is none of {', '.join(_MODES)}" if wrong_mode else None


def _describe(text: str) -> str:
    """Return host and database."""
    parts = urlsplit(text)
    place = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
    socket = "" if place else ", ".join(parse_qs(parts.query).get("host", ["a local socket"]))
    return clean(f"{place or socket}{parts.path}")[:_SHOWN]
