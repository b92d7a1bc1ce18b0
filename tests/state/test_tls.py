"""Connections over TLS: the settings of the URL reach the driver, and a server that proves nothing is refused."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from svc_async.errors import InvalidArgument, StateUnavailable
from svc_async.state import SharedState
from tests.support.errors import has

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

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
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


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("sslmode=hush", "sslmode"),
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
