"""No package grows unnoticed: `budget.toml` says how many lines of code each may have."""

import io
import tokenize
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "svc_async"
BUDGET = tomllib.loads(Path(__file__).with_name("budget.toml").read_text(encoding="utf-8"))["lines"]
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_PARTS = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE} | {"."}


def count_code(source: str) -> int:
    """Return how many lines hold code: no blank line, no comment, and no docstring."""
    lines: set[int] = set()
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT:
            begins = begins or token.type == tokenize.NEWLINE
            continue
        if not (begins and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        begins = False
    return len(lines)


def measure(part: str) -> int:
    """Return the lines of code of a package; `.` stands for the modules beside the packages."""
    files = PACKAGE.glob("*.py") if part == "." else (PACKAGE / part).rglob("*.py")
    return sum(count_code(path.read_text(encoding="utf-8")) for path in files)


def test_each_package_has_a_budget() -> None:
    assert {*BUDGET} == _PARTS


@pytest.mark.parametrize("part", sorted(_PARTS))
def test_no_package_exceeds_its_budget(part: str) -> None:
    lines = measure(part)
    assert lines <= BUDGET[part], f"{part} has {lines} lines of code: delete some, or raise its budget with the reason"


def test_layout_and_text_are_not_counted() -> None:
    source = '"""About."""\n\n# why\nx = 1\n\n\ndef f() -> str:\n    """Return it."""\n    return """a\nb"""\n'
    assert count_code(source) == 4
