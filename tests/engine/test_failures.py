"""What an exchange has failed by: it is said, in the error and in the log, and what it quotes is not."""

import asyncio
import errno
import logging
import os
import pickle
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp
import pytest
import trustme

from svc_async import BearerToken, Endpoints, Session, TransportError
from svc_async.engine.failures import describe_failure
from svc_async.engine.transport import Transport
from svc_async.errors import Sent, SvcError
from tests.support.raw_peer import Peer, send

AUTHORITY, STRANGER = trustme.CA(), trustme.CA()
PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
CERTIFICATES: dict[str, tuple[Callable[[], trustme.LeafCert], str]] = {
    "expired": (lambda: AUTHORITY.issue_cert("127.0.0.1", not_before=PAST, not_after=PAST), "expired"),
    "not yet valid": (lambda: AUTHORITY.issue_cert("127.0.0.1", not_before=FUTURE, not_after=FUTURE), "not yet valid"),
    "other host": (lambda: AUTHORITY.issue_cert("other.example"), "mismatch"),
    "other authority": (lambda: STRANGER.issue_cert("127.0.0.1"), "issuer"),
}


async def fail_at(url: str, caplog: pytest.LogCaptureFixture, connector: ssl.SSLContext | None = None) -> SvcError:
    """Return the error of a call, which the log repeats in one line."""
    caplog.set_level(logging.INFO, logger="svc_async.http")
    session = Session(BearerToken("t"), endpoints=Endpoints(base_url=url, ads_url=url), connector=connector)
    async with session:
        with pytest.raises(SvcError) as caught:
            await session.webhooks.list().collect()
    return caught.value


@pytest.mark.parametrize("case", CERTIFICATES)
async def test_why_a_certificate_is_refused_is_said_and_not_tried_again(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    issue, word = CERTIFICATES[case]
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    issue().configure_cert(theirs)
    AUTHORITY.configure_trust(ours)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=theirs) as server:
        port = server.sockets[0].getsockname()[1]
        error = await fail_at(f"https://127.0.0.1:{port}", caplog, ours)
    assert isinstance(error, TransportError)
    assert word in error.reason
    assert (error.sent, error.repeatable) == (Sent.NO, False)
    assert isinstance(error.__cause__, ssl.SSLCertVerificationError)
    assert word in error.__cause__.verify_message
    assert error.__cause__.__traceback__ is None
    assert [error.reason in record.getMessage() for record in caplog.records] == [True]
    assert pickle.loads(pickle.dumps(error)).reason == error.reason


async def test_a_port_without_tls_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        error = await fail_at(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", caplog)
    assert isinstance(error, TransportError)
    assert (error.reason, error.repeatable) == ("TLS handshake failed (wrong version number)", False)
    assert type(error.__cause__) is ssl.SSLError


OK = b"HTTP/1.1 200 OK\r\n"
END = b"Content-Length: 2\r\n\r\n{}"
UNREADABLE = {
    "long header": (OK + b"hush: " + b"a" * 9_000 + b"\r\n" + END, "header", "LineTooLong"),
    "many headers": (OK + b"hush: a\r\n" * 300 + END, "headers", "BadHttpMessage"),
    "no colon": (OK + b"hush\r\n" + END, "header", "BadHttpMessage"),
    "zero byte": (OK + b"hush: a\0b\r\n" + END, "header", "InvalidHeader"),
    "HTTP/2": (b"HTTP/2 200 hush\r\n\r\n", "HTTP/1.1", "BadStatusLine"),
    "another protocol": (b"SSH-2.0-hush\r\n", "HTTP/1.1", "BadStatusLine"),
    "two lengths": (OK + b"Content-Length: 1\r\n" + END, "Content-Length", "BadHttpMessage"),
    "coding": (OK + b"Content-Encoding: zstd\r\nhush: a\r\n" + END, "decompressed", "ContentEncodingError"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_what_is_wrong_with_an_answer_is_said_without_repeating_it(
    case: str, peer: Peer, transport: Transport
) -> None:
    answer, word, cause = UNREADABLE[case]
    peer.script = peer.answer(answer, close=True)

    with pytest.raises(TransportError) as caught:
        await send(transport, "GET", peer.url)

    error = caught.value
    assert word in error.reason
    assert (error.sent, error.repeatable) == (Sent.MAYBE, True)
    assert "hush" not in f"{error} {error.__cause__!r}"
    assert error.__cause__ is not None
    assert cause in str(error.__cause__)


async def test_a_body_that_cannot_be_decompressed_is_not_called_cut_off(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhush", close=True)

    with pytest.raises(SvcError) as caught:
        await send(transport, "GET", peer.url)

    assert "decompressed (gzip)" in str(caught.value)
    assert "hush" not in str(caught.value)


class _Key:
    """What aiohttp's errors name: the host, its port and whether TLS is used."""

    host, port, is_ssl, ssl = "hush", 443, True, None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 443)"), "connection refused"),
        (OSError(errno.ENETUNREACH, "Connect call failed ('10.0.0.1', 443)"), "network is unreachable"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 443)"), "no route to host"),
        (OSError(errno.EMFILE, "Too many open files"), "too many open files"),
        (
            OSError("Multiple exceptions: [Errno 101] Connect call failed ('::1'), [Errno 111] Connect call failed"),
            "network is unreachable and connection refused",
        ),
        (OSError("unheard of"), "connection failed"),
    ],
)
def test_each_failure_to_connect_has_its_own_name(found: OSError, reason: str) -> None:
    key: object = _Key()
    direct = describe_failure(aiohttp.ClientConnectorError(key, found), sent=Sent.NO, is_proxied=False)  # type: ignore[arg-type]  # as far as it is used
    proxied = describe_failure(aiohttp.ClientProxyConnectionError(key, found), sent=Sent.NO, is_proxied=True)  # type: ignore[arg-type]  # likewise

    assert direct.reason == reason
    assert proxied.reason in {f"the proxy is unreachable ({reason})", "the proxy is unreachable"}
    assert direct.__cause__ is not None
    if found.errno:
        assert (direct.__cause__.errno, direct.__cause__.strerror) == (found.errno, os.strerror(found.errno))  # type: ignore[attr-defined]  # an OSError


def test_a_host_name_that_is_not_known_says_whether_that_may_pass() -> None:
    found = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    key: object = _Key()

    failure = describe_failure(aiohttp.ClientConnectorDNSError(key, found), sent=Sent.NO, is_proxied=False)  # type: ignore[arg-type]  # as far as it is used

    assert failure.reason == "the host name cannot be resolved (Temporary failure in name resolution)"
    assert failure.repeatable
    assert isinstance(failure.__cause__, socket.gaierror)
