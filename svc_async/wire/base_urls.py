"""The base URLs of the three surfaces of the platform, and the URLs of proxies."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs

from svc_async.errors import InvalidArgument
from svc_async.value_rules import hides_values, is_loopback
from svc_async.wire.route import Surface

__all__ = ["Endpoints", "bypasses_proxy", "proxy_url"]

_URL = re.compile(r"[!-~]+")
"""The characters of a URL; with others, the signed URL would differ from the one sent."""
_DEFAULT_PORTS = {"https": 443, "http": 80}


def _normalize(value: str) -> str:
    """Normalize a URL as the signature's base string requires (RFC 5849, 3.4.1.2); anything else is left unchanged."""
    parts = _split(value)
    if parts is None or not parts.hostname or "@" in parts.netloc:
        return value
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if parts.port not in {None, _DEFAULT_PORTS.get(parts.scheme)}:
        host += f":{parts.port}"
    return parts._replace(netloc=host, path=parts.path.rstrip("/")).geturl()


def _check_base_url(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    parts = _split(value)
    if isinstance(value, str) and "://" not in value:
        raise InvalidArgument(field.name, "must start with https://, or with http:// on loopback")
    if parts is None or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidArgument(field.name, "must be an absolute ASCII URL without user, query and fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise InvalidArgument(
            field.name, "must start with https://; http:// is accepted on loopback only", rule_ids=("AUTH-10",)
        )


def _split(value: object) -> SplitResult | None:
    try:
        parts = urlsplit(value) if isinstance(value, str) and _URL.fullmatch(value) else None
        return parts if parts and parts.port != 0 else None
    except ValueError:
        return None


@hides_values  # such as a password in front of a host
@attrs.frozen(kw_only=True)
class Endpoints:
    """The base URLs of the service; there are no defaults.

    Attributes:
        base_url: authentication, webhooks, activity.
        ads_url: the advertising API, without a version.
        ads_sandbox_url: its sandbox host, where accounts and features can be created.
    """

    base_url: str = attrs.field(converter=_normalize, validator=_check_base_url)
    ads_url: str = attrs.field(converter=_normalize, validator=_check_base_url)
    ads_sandbox_url: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_normalize),
        validator=attrs.validators.optional(_check_base_url),
    )

    def of(self, surface: Surface) -> str:
        """Return the base URL of a surface.

        Raises:
            InvalidArgument: the sandbox host is needed and was not given.
        """
        url = {
            Surface.BASE: self.base_url,
            Surface.ADS: self.ads_url,
            Surface.ADS_SANDBOX: self.ads_sandbox_url,
        }[surface]
        if url is None:
            raise InvalidArgument("ads_sandbox_url", "must be given for calls to the sandbox host")
        return url


_PORT = re.compile(r"(\[[^\]]*\]|[^:\[]*)(?::([0-9]+))?")
"""A host, in brackets if it is an address of IPv6, and a port."""


def bypasses_proxy(url: str, excluded: str) -> bool:
    """Return whether a host is reached without a proxy.

    Args:
        url: a URL of the host.
        excluded: entries as those of `NO_PROXY`, between commas or white space: a name, for it and all below it, also
            with a dot or `*.` before it; an address; a network, such as `10.0.0.0/8`; each with a port or without; `*`.
    """
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(parts.scheme)
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    for entry in re.split(r"[\s,]+", excluded.lower()):
        with_port = _PORT.fullmatch(entry)
        name, only = with_port.groups() if with_port else (entry, None)
        if only is not None and int(only) != port:
            continue
        if name == "*" or (_is_in(address, name.strip("[]")) if address else _is_below(host, name)):
            return True
    return False


def _is_in(address: IPv4Address | IPv6Address, name: str) -> bool:
    try:
        return address in ip_network(name, strict=False)
    except ValueError:
        return False


def _is_below(host: str, name: str) -> bool:
    domain = name.removeprefix("*").strip(".")
    return bool(domain) and (host.endswith(f".{domain}") or (host == domain and not name.startswith("*")))


def proxy_url(value: str, name: str = "proxy") -> str:
    """Return the full URL of a proxy; without a scheme it is `http://`.

    Args:
        value: the URL, or host and port.
        name: the setting, for messages.

    Raises:
        InvalidArgument: it is not the URL of an HTTP proxy. The message leaves it out: it may contain a password.
    """
    url = value if "://" in value else f"http://{value}"
    parts = _split(url)
    if parts is None or not parts.hostname or parts.scheme not in _DEFAULT_PORTS or parts.path.strip("/"):
        del value, url, parts  # the password must not be among the locals of a traceback
        raise InvalidArgument(name, "must be the URL of an HTTP proxy: http://host:port")
    return url
