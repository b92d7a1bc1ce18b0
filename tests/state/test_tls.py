"""Connections over TLS: the settings of the URL reach the driver, and a server that proves nothing is refused."""

import asyncio
import ssl
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from svc_async.errors import InvalidArgument, StateUnavailable
from svc_async.state import SharedState
from tests.support.errors import has
from tests.support.tracebacks import find_shown

SSL_REQUEST = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def port(postgres_url: str, authority: trustme.CA) -> AsyncIterator[int]:
    """The port of a server that speaks TLS in front of the database of the tests."""
    (folder,) = parse_qs(urlsplit(postgres_url).query).get("host", [""])
    if not folder:
        pytest.skip("needs the socket of the server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            assert await reader.readexactly(8) == SSL_REQUEST
            writer.write(b"S")
            await writer.start_tls(context)
            inner_reader, inner_writer = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            writer.close()  # the client refused the certificate

    server = await asyncio.start_server(serve, "0.0.0.0", 0)  # noqa: S104 - another address than loopback, too
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_with_a_certificate_of_the_named_authority_is_accepted(
    port: int, schema: str, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    url = f"postgresql://postgres@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem"
    async with SharedState.open(url, schema=schema) as state:
        assert await state.database.fetch("SELECT 1")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_server_of_another_authority_or_name_is_refused(
    port: int, schema: str, authority: trustme.CA, tmp_path: Path, host: str
) -> None:
    trusted = authority if host != "localhost" else trustme.CA()
    trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    url = f"postgresql://postgres:hush@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem"
    with pytest.raises(StateUnavailable) as caught:
        async with SharedState.open(url, schema=schema):
            pass
    assert "hush" not in str(caught.value)


async def test_a_server_without_tls_is_refused_if_it_is_required() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StateUnavailable):
            async with SharedState.open(f"postgresql://postgres@127.0.0.1:{port}/a?sslmode=require"):
                pass


@pytest.fixture
async def curious() -> AsyncIterator[tuple[int, list[bytes]]]:
    """The port of a server that offers no TLS and asks for the password in the clear, and what it is answered."""
    passwords: list[bytes] = []

    async def read(reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await read(reader) == SSL_REQUEST[4:]:
                writer.write(b"N")
                await read(reader)
            writer.write(b"R" + struct.pack(">II", 8, 3))
            assert await reader.readexactly(1) == b"p"
            passwords.append(await read(reader))
            words = b"SFATAL\0C28P01\0Mnot " + passwords[-1] + b"\0"  # which repeat it
            writer.write(b"E" + struct.pack(">I", 4 + len(words)) + words)
        except asyncio.IncompleteReadError:
            pass  # the client has left
        writer.close()

    server = await asyncio.start_server(ask, "0.0.0.0", 0)  # noqa: S104 - another address than loopback
    async with server:
        yield server.sockets[0].getsockname()[1], passwords


@pytest.mark.skipif(sys.platform == "win32", reason="0.0.0.0 is no address to connect to")
@pytest.mark.parametrize(
    ("url", "environment", "is_told"),
    [
        ("postgresql://me:hush@0.0.0.0:{port}/a", {}, False),
        ("postgresql://me:hush@/a?host=0.0.0.0&port={port}", {}, False),
        ("postgresql://me:hush@/a?port={port}", {"PGHOST": "0.0.0.0"}, False),  # noqa: S104 - nothing is bound
        ("postgresql://me:hush@127.0.0.1:{port}/a", {}, False),
        ("postgresql://me:hush@127.0.0.1:{port}/a", {"PGSSLMODE": "prefer"}, False),
        ("postgresql://me:hush@127.0.0.1:{port}/a?sslmode=disable", {}, True),
        ("postgresql://me:hush@127.0.0.1,0.0.0.0/a?port={port}", {}, False),
        ("postgresql://me:hush@0%2E0.0.0:{port}/a", {}, False),
        ("postgresql://me:hush@[::ffff:127.0.0.1]:{port}/a", {}, False),
        ("postgresql://me:hush@0.0.0.0:{port}/a", {"PGSSLMODE": "disable"}, True),
        ("postgresql://me:hush@0.0.0.0:{port}/a?sslmode=require", {"PGSSLMODE": "disable"}, False),
    ],
)
async def test_no_server_is_told_a_password_in_the_clear_unless_sslmode_says_so(
    url: str,
    environment: dict[str, str],
    is_told: bool,
    curious: tuple[int, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, passwords = curious
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(StateUnavailable) as caught:
        async with SharedState.open(url.format(port=port)):
            pass

    assert find_shown(caught.value, "hush") == []
    assert passwords == ([b"hush\0"] if is_told else [])


@pytest.mark.skipif(sys.platform == "win32", reason="0.0.0.0 is no address to connect to")
async def test_another_machine_with_tls_needs_no_setting(port: int, schema: str) -> None:
    async with SharedState.open(f"postgresql://postgres@0.0.0.0:{port}/postgres", schema=schema) as state:
        assert await state.database.fetch("SELECT 1")


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("sslmode=hush", "sslmode"),
        ("sslmode=prefer", "sslmode"),
        ("sslmode=verify-full&sslrootcert=/hush/ca.pem", "sslrootcert"),
        ("sslmode=require&sslcert=/hush/a.pem", "sslcert"),
        ("sslmode=verify-ca", "sslrootcert"),
    ],
)
async def test_a_setting_that_is_not_valid_is_named(
    setting: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidArgument, check=has(parameter="state_url")) as caught:
        async with SharedState.open(f"postgresql://postgres:hush@127.0.0.1:1/a?{setting}"):
            pass
    assert name in caught.value.rule
    assert "hush" not in str(caught.value)
