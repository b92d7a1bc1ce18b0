"""The sandbox shares no code with the client; the client starts it in three places only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import svc_async.sandbox

PACKAGE = Path(svc_async.sandbox.__file__).parents[1]
STARTERS = ("session.py", "pytest_plugin", "cli")


def list_imports(source: Path) -> Iterator[str]:
    package = ".".join(("svc_async", *source.relative_to(PACKAGE).parent.parts))
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def list_sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0], path


def test_the_sandbox_imports_nothing_else_of_ours() -> None:
    wrong = {
        (path.name, name)
        for first, path in list_sources()
        if first == "sandbox"
        for name in list_imports(path)
        if name.split(".")[0] == "svc_async" and not f"{name}.".startswith("svc_async.sandbox.")
    }
    assert not wrong


def test_only_the_front_door_the_command_and_the_plugin_import_the_sandbox() -> None:
    wrong = {
        (path.name, name)
        for first, path in list_sources()
        if first not in ("sandbox", *STARTERS)
        for name in list_imports(path)
        if f"{name}.".startswith("svc_async.sandbox.")
    }
    assert not wrong
