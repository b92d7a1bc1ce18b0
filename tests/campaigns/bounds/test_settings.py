"""Environment variables and files of profiles are refused beyond their bounds, whatever they hold."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

import pytest

from svc_async import profiles
from svc_async.errors import SvcError, UnusableFile
from svc_async.wire.base_urls import Endpoints
from tests.support.bounded_process import MIB, check_linear, measure_peaks

APP = {"SVC_BASE_URL": "https://api.example", "SVC_ADS_URL": "https://ads.example", "SVC_BEARER_TOKEN": "token"}
LARGE = "x" * 10 * MIB
NOT_TOML = "file profiles.toml cannot be read; it must be TOML in UTF-8"
TOO_LARGE = "file profiles.toml must have at most 65,536 bytes"

FILES: dict[str, tuple[str, str]] = {
    "a long value": (f"[default]\nbase_url = '{LARGE}'\n", TOO_LARGE),
    "nested arrays": ("a = " + "[" * 60_000, NOT_TOML),
    "nested tables": ("a = " + "{a=" * 20_000, NOT_TOML),
    "a key of many parts": ("a" + ".a" * 30_000 + " = 1\n", NOT_TOML),
    "keys of many parts": (f"{'a.' * 1_000}b = 1\n" * 30, NOT_TOML),
    "many profiles": ("".join(f"[a{number}]\n" for number in range(9_000)), TOO_LARGE),
}


def read_file(path: str) -> str:
    """Return why a profile cannot be read."""
    os.chdir(Path(path).parent)
    try:
        return repr(profiles.from_profile(path=Path(Path(path).name)))
    except SvcError as error:
        return str(error)


def test_no_file_of_profiles_takes_more_than_a_moment(tmp_path: Path) -> None:
    inputs: dict[str, list[str]] = {}
    for name, (text, _) in FILES.items():
        path = tmp_path / name / "profiles.toml"
        path.parent.mkdir()
        path.write_text(text)
        inputs[name] = [str(path)]
    peaks = measure_peaks(read_file, inputs)
    assert {name: peak.value for name, peak in peaks.items()} == {name: told for name, (_, told) in FILES.items()}
    assert {name: peak for name, peak in peaks.items() if peak.bytes > 32 * MIB or peak.seconds > 1} == {}


def read_variable(name: str) -> str:
    """Return why an environment with a large variable is refused."""
    try:
        return repr(profiles.find(environ={**APP, name: LARGE}))
    except SvcError as error:
        return str(error)


VARIABLES: Mapping[str, str] = {
    **dict.fromkeys([*APP, "SVC_CONSUMER_KEY", "SVC_ACCESS_TOKEN_SECRET"], "must have at most 8,192 characters"),
    "SVC_PROFILE": "must be a name of 1 to 200 printable characters",
}


def test_no_variable_takes_more_than_a_moment() -> None:
    peaks = measure_peaks(read_variable, {name: [name] for name in VARIABLES})
    assert {name: peak.value for name, peak in peaks.items()} == {n: f"{n} {rule}" for n, rule in VARIABLES.items()}
    assert {name: peak for name, peak in peaks.items() if peak.bytes > 48 * MIB or peak.seconds > 1} == {}


@pytest.mark.parametrize("folder", ["x" * 300, "x/" * 3_000], ids=["a long name", "a long path"])
def test_a_path_that_the_system_refuses_is_reported(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"/tmp/{folder}")  # noqa: S108 - it cannot exist
    for read in (profiles.find, profiles.from_profile, lambda: profiles.is_stored("a"), lambda: profiles.check("a")):
        with pytest.raises(UnusableFile) as caught:
            read()
        assert len(str(caught.value)) < 1_200


def find_proxies(size: int) -> Callable[[], object]:
    os.environ.update({"HTTPS_PROXY": "http://proxy.example", "NO_PROXY": ",".join(["no.example"] * size)})
    endpoints = Endpoints(base_url=APP["SVC_BASE_URL"], ads_url=APP["SVC_ADS_URL"])
    return lambda: profiles.find_proxies(endpoints)


def write_profiles(size: int) -> Callable[[], object]:
    path = Path(mkdtemp()) / "profiles.toml"
    path.write_text("".join(f"[a{number}]\n" for number in range(min(size, 5_000))))
    return lambda: profiles.write("a1", {"base_url": APP["SVC_BASE_URL"]}, path=path)


def test_the_work_is_linear() -> None:
    check_linear(find_proxies, write_profiles)
