import subprocess
import sys
from importlib.resources import files

import pytest

import svc_async


@pytest.mark.parametrize("name", svc_async.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(svc_async, name) is not None
    assert name in dir(svc_async)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sesion'"):
        svc_async.Sesion  # noqa: B018 - the look-up is the test


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = "import sys, svc_async; print([m for m in sys.modules if m.startswith(('svc_async.', 'aiohttp'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert out.strip() == "['svc_async._version']"


def test_importing_the_session_loads_no_server() -> None:
    code = "import sys; from svc_async import Session; print('svc_async.sandbox' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_package_is_typed() -> None:
    assert (files("svc_async") / "py.typed").is_file()
