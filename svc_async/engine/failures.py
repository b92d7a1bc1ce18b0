"""Names the reason why an exchange failed, by one table of what aiohttp, the system and OpenSSL report.

A reason has no URL, header or byte of an answer, and the cause that is kept no frame: aiohttp's messages quote these.
"""

import os
import re
import socket
import ssl
from collections.abc import Iterator, Sequence

import aiohttp
from aiohttp import http_exceptions

from svc_async.errors import Sent, TransportError

__all__ = ["ConnectionBroken", "ConnectionUnusable", "describe_failure", "describe_unreadable_body"]


class ConnectionBroken(Exception):
    """A connection broke. aiohttp would resend a GET, PUT or DELETE if it saw its own exception."""


class ConnectionUnusable(Exception):
    """Nothing was written: the connection was closed, or has bytes that no request asked for.

    Attributes:
        is_used: it comes from the pool, so that another connection may do.
    """

    def __init__(self, *, is_used: bool) -> None:
        super().__init__()
        self.is_used = is_used


_NOT_DECODED = "the answer has an encoding that cannot be decompressed"
_REASONS: Sequence[tuple[type[BaseException], str]] = (
    (ConnectionBroken, "an answer arrived before the request was written"),
    (ConnectionUnusable, "the connection was closed, or had an answer on it, before a request was written"),
    (aiohttp.ClientConnectorDNSError, "the host name cannot be resolved"),
    (aiohttp.ClientConnectorCertificateError, "certificate verification failed"),
    (aiohttp.ClientSSLError, "TLS handshake failed"),
    (aiohttp.ClientProxyConnectionError, "the proxy is unreachable"),
    (aiohttp.ClientHttpProxyError, "the proxy refused the request"),
    (http_exceptions.ContentEncodingError, _NOT_DECODED),
    (http_exceptions.DecompressSizeError, _NOT_DECODED),
    (http_exceptions.LineTooLong, "the answer has a header or a first line of more than 8,190 bytes"),
    (http_exceptions.BadStatusLine, "the answer is not HTTP/1.1"),
    (http_exceptions.InvalidHeader, "the answer has a malformed header"),
    (http_exceptions.HttpProcessingError, "the answer is malformed HTTP"),
    (ssl.SSLError, "TLS failed"),
    (aiohttp.ServerDisconnectedError, "the connection was closed before an answer"),
)
"""Reasons by what is found; the first that fits. Everything else is called as the system calls it."""
_PROXY_NAME = "the host name of the proxy cannot be resolved"
"""A proxy resolves the name of the host by itself."""
_PASSING_ALERT = "TLSV1_ALERT_INTERNAL_ERROR"
_MOST_CAUSES = 5
_find_numbers = re.compile(r"\[Errno (\d+)\]").findall
"""Those of the system, in a message of asyncio about several addresses of one host."""
_find_rule = re.compile(r"([A-Z][A-Za-z' /-]{1,60}?)(?::\n|$)").match
"""The rule of HTTP that is broken, in a message of aiohttp's parser; what was received follows it."""
_find_encoding = re.compile(r"Can not decode content-encoding: ([\w-]+)").match


def describe_failure(error: BaseException, *, sent: Sent, is_proxied: bool) -> TransportError:
    """Return the error that says why an exchange failed; its cause is what the system or OpenSSL said.

    Args:
        error: what aiohttp raised; no timeout.
        sent: whether the request may have arrived.
        is_proxied: whether it went to a proxy.
    """
    found = (error.__cause__ or error) if isinstance(error, ConnectionBroken) else error
    said = _find_said(found)
    failure = TransportError(_name_reason(found, said, is_proxied=is_proxied), sent=sent)
    # The same certificate and the same versions of TLS fail again.
    failure.repeatable = not (isinstance(found, aiohttp.ClientSSLError) and _is_final(said))
    failure.__cause__ = _strip(found if said is None else said)
    return failure


def describe_unreadable_body(error: BaseException) -> str:
    """Return why the body of an answer cannot be read to its end."""
    for each in _list_causes(error):
        if isinstance(each, http_exceptions.ContentEncodingError | http_exceptions.DecompressSizeError):
            return _NOT_DECODED + _describe_details(each, None)
        if isinstance(each, http_exceptions.TransferEncodingError):
            return "the answer is malformed HTTP"
    return "the answer was cut off"


def _name_reason(found: BaseException, said: OSError | None, *, is_proxied: bool) -> str:
    # What is nearest to the system or to the parser says most.
    causes = [*([] if said is None else [said]), *reversed([*_list_causes(found)])]
    for kind, reason in _REASONS:
        for each in causes:
            if isinstance(each, kind):
                if is_proxied and kind is aiohttp.ClientConnectorDNSError:
                    reason = _PROXY_NAME  # noqa: PLW2901 - of the same row
                return reason + _describe_details(each, said)
    return (said and _name_system_error(said)) or "connection failed"


def _describe_details(found: BaseException, said: OSError | None) -> str:
    """Return in parentheses what is known besides the reason."""
    details: str | None = None
    if isinstance(said, ssl.SSLCertVerificationError):
        details = said.verify_message
    elif isinstance(said, ssl.SSLError):
        details = (said.reason or "").replace("_", " ").lower()
    elif isinstance(said, socket.gaierror):
        details = said.strerror
    elif isinstance(found, aiohttp.ClientHttpProxyError):
        details = f"HTTP {found.status}"
    elif isinstance(found, http_exceptions.ContentEncodingError):
        encoding = _find_encoding(found.message)
        details = encoding and encoding[1]
    elif type(found) is http_exceptions.BadHttpMessage:
        rule = _find_rule(found.message)
        details = rule and rule[1]
    elif said is not None and not isinstance(found, aiohttp.ServerDisconnectedError):
        details = _name_system_error(said)
    return f" ({details.rstrip('.')})" if details else ""


def _name_system_error(error: OSError) -> str | None:
    """Return what the system calls an error, or those of all addresses of a host; None if it has no number."""
    numbers = [error.errno] if error.errno else [*map(int, _find_numbers(str(error)))]
    return " and ".join(dict.fromkeys(os.strerror(number).lower() for number in numbers)) or None


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is not None:
            yield found
            found = found.__cause__


def _find_said(error: BaseException) -> OSError | None:
    """Return what the system or OpenSSL said, if it did."""
    wrapped = (getattr(error, "certificate_error", None), getattr(error, "os_error", None), *_list_causes(error))
    found = [each for each in wrapped if isinstance(each, OSError)]
    return next((each for each in found if isinstance(each, ssl.SSLError)), next(iter(found), None))


def _is_final(said: OSError | None) -> bool:
    if isinstance(said, ssl.SSLCertVerificationError):
        return True
    # The subclasses are about connections that end within a handshake.
    return said is not None and type(said) is ssl.SSLError and said.reason != _PASSING_ALERT


def _strip(error: BaseException) -> Exception:
    """Return an error as an exception of its own: without frames, URL, headers and bytes that were received."""
    if isinstance(error, ssl.SSLCertVerificationError):
        failed = ssl.SSLCertVerificationError(error.errno, error.strerror)
        failed.verify_code, failed.verify_message = error.verify_code, error.verify_message
        return failed
    if isinstance(error, ssl.SSLError):
        return ssl.SSLError(error.errno, error.strerror)
    if isinstance(error, socket.gaierror):
        return socket.gaierror(error.errno, error.strerror)
    if isinstance(error, OSError) and error.errno:
        return OSError(error.errno, os.strerror(error.errno))
    *_, first = _list_causes(error)
    return aiohttp.ClientError(type(first).__name__)
