"""Nobody reads a message: what an error says is for people, and its fields are for programs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import svc_async

PACKAGE = Path(svc_async.__file__).parent
READING = frozenset(
    {
        "endswith",
        "find",
        "index",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rpartition",
        "rsplit",
        "split",
    }
    | {"splitlines", "startswith"}
)
MATCHING = frozenset({"findall", "finditer", "fullmatch", "match", "search", "split", "sub"})


def find_readers(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls that take the text of an error apart: `str(error)`, `.rule` and `.problem`."""
    errors = {
        *(each.name for each in ast.walk(tree) if isinstance(each, ast.ExceptHandler)),
        *(each.arg for each in ast.walk(tree) if isinstance(each, ast.arg) and _is_error(each)),
    }

    def is_message(value: ast.expr) -> bool:
        match value:
            case ast.Call(func=ast.Name("str"), args=[ast.Name(name)]):
                return name in errors
            case ast.Attribute(value=ast.Name(name), attr="rule" | "problem"):
                return name in errors
        return False

    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        match call.func:
            case ast.Attribute(value, attr) if attr in READING and is_message(value):
                yield call
            case ast.Attribute(_, attr) if attr in MATCHING and any(map(is_message, call.args)):
                yield call


def _is_error(argument: ast.arg) -> bool:
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    return argument.arg == "error" or "Error" in kind or "Exception" in kind


def test_no_message_is_read() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in find_readers(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "give the error a field instead:\n" + "\n".join(found)


def test_a_message_that_is_read_is_found() -> None:
    program = """
def explain(error: InvalidArgument, failed: SvcError):
    error.rule.partition("; ")
    str(failed).startswith("journal ")
    re.search("has no", error.problem)
    _is_dry_run.search(str(error))
    error.parameter.startswith("--")
    re.search("has no", file.name)
"""
    assert [call.lineno for call in find_readers(ast.parse(program))] == [3, 4, 5, 6]
