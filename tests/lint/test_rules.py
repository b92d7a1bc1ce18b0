"""Every rule of the contract has a test that is marked with it, or a reason why it cannot be tested."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.contract import FOLDER, load_table, load_tables

TESTS = Path(__file__).parents[1]
RULES = load_tables("rules", "rule") | load_table("beyond/events", "rule")
UNTESTABLE = {row["id"]: row["reason"] for row in tomllib.loads((FOLDER / "untestable.toml").read_text())["untestable"]}


def find_marked() -> Iterator[str]:
    """Yield the rules in the markers of all tests, whether or not they are collected now."""
    for file in TESTS.rglob("test_*.py"):
        for test in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
                for marker in filter(_is_rule, test.decorator_list):
                    yield from (str(each.value) for each in ast.walk(marker) if isinstance(each, ast.Constant))


def _is_rule(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.rule"


@pytest.fixture(scope="module")
def marked() -> frozenset[str]:
    return frozenset(find_marked())


def test_a_rule_has_a_test_or_a_reason_to_have_none(marked: frozenset[str]) -> None:
    without = [rule for rule in RULES if rule not in marked and not UNTESTABLE.get(rule)]
    assert not without, "\n".join(f"rules.toml {rule}: {RULES[rule]['statement']}" for rule in without)


def test_a_testable_rule_has_no_reason(marked: frozenset[str]) -> None:
    assert not UNTESTABLE.keys() & marked


def test_only_rules_of_the_contract_are_named(marked: frozenset[str]) -> None:
    assert RULES.keys() >= marked | UNTESTABLE.keys()
