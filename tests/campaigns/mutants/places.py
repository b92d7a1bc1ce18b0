"""The places of a module where one small change must make a test fail."""

import ast
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete, ast.Break, ast.Continue)
_GUARDS = {"eq", "frozen", "init", "kw_only", "slots", "stacklevel", "strict"}
"""Arguments that guard against mistakes of the code itself: changing one changes no behaviour."""
_TYPE_VARIABLES = {"ParamSpec", "TypeVar"}


@attrs.frozen
class Mutant:
    """One change of one module.

    Attributes:
        module: the path of the module, from the root of the project.
        scope: the function or class that holds the place, with dots; empty at the top of the module.
        first_line: the first line of the place.
        last_line: its last line.
        start: where the replaced text begins, in bytes.
        end: where it ends.
        before: the text that is replaced, on one line.
        after: what replaces it.
        line: the line where the place begins.
        number: 1 for the first place of the scope with these texts, 2 for the next.
    """

    module: str
    scope: str
    first_line: int
    last_line: int
    start: int
    end: int
    before: str
    after: str
    line: str
    number: int

    @property
    def id(self) -> str:
        """What names the mutant for as long as its function keeps the text."""
        where = "" if self.line == self.before else f" in `{self.line}`"
        again = f" #{self.number}" if self.number > 1 else ""
        return f"{self.module}::{self.scope}: `{self.before}` -> `{self.after}`{where}{again}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def sample(mutants: Iterable[Mutant], *, count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants chosen by a seed; an edit elsewhere in the project does not change the choice."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed}:{mutant.id}".encode()).digest())[:count]


def find_mutants(root: Path, package: Path) -> Iterator[Mutant]:
    """Return every mutant of a package."""
    for path in sorted(package.rglob("*.py")):
        yield from find_in_module(path.relative_to(root).as_posix(), path.read_bytes())


def find_in_module(module: str, source: bytes) -> Iterator[Mutant]:
    """Return every mutant of one module."""
    lines = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    numbers: Counter[tuple[str, ...]] = Counter()
    for scope, node, after in _Finder().find(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = source[start:end].decode()
        before, line = " ".join(text.split()), lines[node.lineno - 1].decode().strip()
        numbers[scope, before, after, line] += 1
        yield Mutant(
            module=module,
            scope=scope,
            first_line=node.lineno,
            last_line=node.end_lineno or node.lineno,
            start=start,
            end=end,
            before=before,
            after=after.replace("\0", text),
            line=line,
            number=numbers[scope, before, after, line],
        )


_Place = tuple[str, ast.expr | ast.stmt, str]


class _Finder:
    """Walks a module; leaves out what has no behaviour: annotations, docstrings, exports, texts with spaces."""

    def __init__(self) -> None:
        self._scope: list[str] = []

    def find(self, node: ast.AST) -> Iterator[_Place]:
        if isinstance(node, ast.JoinedStr) or _declares_names(node):
            return
        named = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
        self._scope.extend(named)
        yield from self._changes(node)
        for child in _children(node):
            yield from self.find(child)
        del self._scope[len(self._scope) - len(named) :]

    def _changes(self, node: ast.AST) -> Iterator[_Place]:
        scope = ".".join(self._scope)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield scope, node.test, "(not (\0))"
        if isinstance(node, ast.expr):
            yield from ((scope, node, after) for after in _change_expression(node))
        if isinstance(node, ast.Return) and node.value is not None and not _is_false(node.value):
            yield scope, node, "return None"
        if isinstance(node, _STATEMENTS) and self._scope and not _is_text(node):
            yield scope, node, "pass"


def _change_expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[operator]):
            yield ast.unparse(ast.Compare(node.left, [_OPPOSITES[type(operator)]()], node.comparators))
        case ast.BoolOp(op=operator, values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))})"
        case ast.Constant(value=bool(value)):
            yield repr(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield repr(value + 1)
        case ast.Constant(value=str(value)) if value and " " not in value:
            yield repr(f"{value}x")
        case _:
            pass


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes below a node that have behaviour."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or (isinstance(child, ast.keyword) and child.arg in _GUARDS):
                continue
            if not (isinstance(child, ast.stmt) and _is_text(child)):
                yield child


def _is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_false(node: ast.expr) -> bool:
    """Return whether None in place of a value is the same to an `if`: another change makes the value true."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _declares_names(node: ast.AST) -> bool:
    """Return whether a statement is for readers and type checkers only: a list of exports, a type variable."""
    if not isinstance(node, ast.Assign):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return ast.unparse(node.targets[0]) == "__all__" or (isinstance(called, ast.Name) and called.id in _TYPE_VARIABLES)
