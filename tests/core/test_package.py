import subprocess
import sys
from importlib.resources import files
from typing import get_args, get_type_hints

import pytest

import svc_async
from svc_async import Session, handles, services


@pytest.mark.parametrize("name", svc_async.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(svc_async, name) is not None
    assert name in dir(svc_async)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Sesion'"):
        svc_async.Sesion  # type: ignore[attr-defined] # noqa: B018 - the look-up is the test


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = "import sys, svc_async; print([m for m in sys.modules if m.startswith(('svc_async.', 'aiohttp'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert out.strip() == "['svc_async._version', 'svc_async.lazy']"


@pytest.mark.long("an interpreter imports the session")
def test_importing_the_session_loads_no_server_no_service_and_nothing_that_few_programs_need() -> None:
    code = "import sys; from svc_async import Session; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"cattrs", "tenacity", "sqlite3", "tomllib", "authlib"} & {*loaded}
    parts = ("ads", "batch", "events", "platform", "profiles", "sandbox", "sources", "streams", "users", "webhooks")
    assert not [name for name in loaded if name.startswith(tuple(f"svc_async.{part}" for part in parts))]


@pytest.mark.parametrize("name", services._HOME_OF)
def test_every_service_is_there(name: str) -> None:
    assert getattr(services, name) is not None


def test_a_service_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Acounts'"):
        services.Acounts  # type: ignore[attr-defined] # noqa: B018 - the look-up is the test


@pytest.mark.parametrize("kind", [Session, *(getattr(handles, name) for name in handles.__all__)])
def test_the_types_of_services_are_found_at_run_time(kind: type) -> None:
    results = {
        name: get_type_hints(member.fget)["return"]
        for name, member in vars(kind).items()
        if isinstance(member, property) and not name.startswith("_")
    }

    assert results
    assert all(isinstance(result, type) or get_args(result) for result in results.values())


def test_the_package_is_typed() -> None:
    assert (files("svc_async") / "py.typed").is_file()
