"""What another user of the machine can do to an embedded PostgreSQL, which asks nobody for a password."""

import json
import socket
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from svc_async.state import SharedState
from tests.support.another_user import run_as_another

_CONNECT = "tests.campaigns.two_users.connect"


@pytest.mark.usefixtures("postgres_wheel")
async def test_another_user_cannot_connect_to_an_embedded_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # the server of root runs as a user of its own, who must enter it
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        async with SharedState.embedded() as state:
            (place,) = parse_qs(urlsplit(state.url).query)["host"]
            assert json.loads(await run_as_another(_CONNECT, f"{place}/.s.PGSQL.5432")) is False


async def test_another_user_can_connect_to_a_socket_that_is_open_to_all() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        Path(folder).chmod(0o755)
        path = Path(folder, "socket")
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        assert json.loads(await run_as_another(_CONNECT, str(path))) is True
