"""The check of a release notices what breaks code of users, and what does not belong into a package."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.release.api import FILE, Break, dump, find_breaks, load
from tests.campaigns.release.packages import check_sdist, check_wheel, list_package

PACKAGE = Path(__file__).parents[3] / "svc_async"


def function(*parameters: str, keyword: str = "") -> Mapping[str, Any]:
    plain = [[name, "positional or keyword", "str", None] for name in parameters]
    named = [[keyword, "keyword-only", "int", "1"]] if keyword else []
    return {"kind": "function", "parameters": plain + named, "returns": "str"}


OLD = {
    "svc_async.session.Session": {"kind": "class", "bases": ["RawCalls"]},
    "svc_async.session.Session.find": function("self", "name"),
}


def test_what_was_added_breaks_nothing() -> None:
    new = {
        **OLD,
        "svc_async.session.open_": function("name"),
        "svc_async.session.Session.find": function("self", "name", keyword="limit"),
    }
    assert find_breaks(OLD, new) == []


@pytest.mark.parametrize(
    "found",
    [None, function("self"), function("self", "name", "other"), function("self", "title")],
    ids=["removed", "parameter removed", "parameter required", "parameter renamed"],
)
def test_what_callers_depend_on_breaks(found: Mapping[str, Any] | None) -> None:
    new = {**OLD, "svc_async.session.Session.find": found}
    assert find_breaks(OLD, {name: each for name, each in new.items() if each is not None})


def test_a_break_is_mentioned_by_its_name_in_backticks() -> None:
    found = Break("svc_async.session.Session.find", "Session.find was removed")
    assert found.is_in("- `session.find` is gone")
    assert found.is_in("- `Session.find(name)` takes a name")
    assert not found.is_in("- one can find more, and `finder` is new")


def test_the_stored_surface_can_be_read_again() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert dump(load(text)) == text
    assert "svc_async.session.Session.account" in load(text)


# --- packages


def make_wheel(folder: Path, *, without: str = "", more: str = "", metadata: str = "") -> Path:
    wheel = folder / "svc_async-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in {*(f"svc_async/{each}" for each in list_package(PACKAGE))} - {without}:
            archive.writestr(name, "")
        archive.writestr("svc_async-0.1.0.dist-info/METADATA", metadata)
        for name in ("licenses/LICENSE", "entry_points.txt"):
            archive.writestr(f"svc_async-0.1.0.dist-info/{name}", "")
        if more:
            archive.writestr(more, "")
    return wheel


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    assert list(check_wheel(make_wheel(tmp_path, metadata="[a](https://svc-async.example/) [b](#c)"), PACKAGE)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"without": "svc_async/py.typed"}, "the wheel lacks svc_async/py.typed"),
        ({"more": "tests/test_x.py"}, "the wheel has tests/test_x.py"),
        ({"more": "svc_async/.env"}, "the wheel has svc_async/.env, which is not in the package"),
        ({"metadata": "[a](docs/a.md)"}, "a link of the README is relative: docs/a.md"),
    ],
)
def test_what_is_missing_or_too_much_in_a_wheel_is_reported(
    tmp_path: Path, change: Mapping[str, str], problem: str
) -> None:
    assert list(check_wheel(make_wheel(tmp_path, **change), PACKAGE)) == [problem]


def test_a_source_distribution_has_only_what_is_listed(tmp_path: Path) -> None:
    sdist = tmp_path / "svc_async-0.1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name, size in (("svc_async/a.py", 1), ("docs/big.png", 2_000_000), ("upload.journal", 1), ("README.md", 1)):
            member = tarfile.TarInfo(f"svc_async-0.1.0/{name}")
            member.size = size
            archive.addfile(member, io.BytesIO(b"x" * size))
    problems = list(check_sdist(sdist))
    assert "the source distribution has upload.journal" in problems
    assert "docs/big.png has 2,000,000 bytes" in problems
    assert "the source distribution lacks SECURITY.md" in problems
