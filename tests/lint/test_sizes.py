"""Files, classes and packages stay small enough to be read."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "svc_async"
TESTS = ROOT / "tests"
MODULES = sorted(PACKAGE.rglob("*.py"))
FACES = {"Session", "Sandbox"}
"""Classes that only collect what a user can reach."""
ONE_FILE_A_FAMILY = {PACKAGE / "ads", PACKAGE / "sandbox" / "api" / "ads"}


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_no_module_has_more_than_400_lines() -> None:
    assert {path.relative_to(ROOT).as_posix(): lines(path) for path in MODULES if lines(path) > 400} == {}


def test_no_test_file_has_more_than_600_lines() -> None:
    assert {path.name: lines(path) for path in TESTS.rglob("*.py") if lines(path) > 600} == {}


def test_no_class_has_more_than_25_methods() -> None:
    large = {
        node.name: count
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and node.name not in FACES
        and (count := sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)) > 25
    }
    assert large == {}


def test_no_package_has_more_than_14_modules_beside_each_other() -> None:
    modules = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    crowded = {folder.name: count for folder, count in modules.items() if count > 14}
    assert {name for name in crowded if name not in {folder.name for folder in ONE_FILE_A_FAMILY}} == set()
