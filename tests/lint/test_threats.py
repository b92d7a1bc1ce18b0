"""tests/threats.toml: every asset and every trust boundary of SECURITY.md has tests, and these are there."""

import ast
import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
SECURITY = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
THREATS = tomllib.loads((TESTS / "threats.toml").read_text(encoding="utf-8"))


def read_section(heading: str) -> str:
    """Return what follows a heading of the page, up to the next."""
    return SECURITY.partition(f"### {heading}\n")[2].partition("\n### ")[0]


def list_functions(file: str) -> set[str]:
    """Return the tests of a file; none if it is not there."""
    path = TESTS / file
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_asset_has_tests() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", read_section("What is protected"), re.MULTILINE)
    assert len(rows) > 3
    assert {*THREATS["asset"]} == {row.partition(":")[0] for row in rows if row != "Asset"}


def test_each_trust_boundary_has_tests() -> None:
    names = re.findall(r"^\*\*(.+?)\.\*\*", read_section("Trust boundaries"), re.MULTILINE)
    assert len(names) > 5
    assert [*THREATS["boundary"]] == names


def test_each_promise_names_tests_that_are_there() -> None:
    named = [
        (place, promise, tests)
        for places in THREATS.values()
        for place, promises in places.items()
        for promise, tests in (promises or {"nothing": []}).items()
    ]
    assert [(place, promise) for place, promise, tests in named if not tests] == []
    missing = [
        test
        for _, _, tests in named
        for test in tests
        if not test.partition("::")[2].startswith("test_")
        or test.partition("::")[2] not in list_functions(test.partition("::")[0])
    ]
    assert missing == []
