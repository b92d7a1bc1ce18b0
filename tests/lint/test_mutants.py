"""The mutants themselves: which changes are made, and that the list of equivalent ones is about code that exists."""

import ast
from pathlib import Path

import pytest

from tests.campaigns.mutants.__main__ import find_tests, list_packages
from tests.campaigns.mutants.equivalents import read_equivalents
from tests.campaigns.mutants.places import find_in_module, find_mutants, sample

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("return a < 1", {"`a < 1` -> `a <= 1`", "`1` -> `2`", "-> `return None`"}),
        ("if a and b: raise E", {"`a and b` -> `(a or b)`", "-> `(not (a and b))`", "`raise E` -> `pass`"}),
        ("return False", {"`False` -> `True`"}),
        ("a[0] = True", {"-> `pass`", "`0` -> `1`", "`True` -> `False`"}),
        ('a.get("key")', {"-> `pass`", "`\"key\"` -> `'keyx'`"}),
        ('log("a sentence is no behaviour")', {"-> `pass`"}),
        ("a: Literal['text'] = b", set()),
        ("zip(a, b, strict=True)", {"-> `pass`"}),
        ('return f"{a == b}"', {"-> `return None`"}),
    ],
)
def test_each_place_is_changed_in_one_way(line: str, changes: set[str]) -> None:
    source = f'def f():\n    """Docstrings are none."""\n    {line}\n'.encode()

    ids = {mutant.id for mutant in find_in_module("m.py", source)}

    assert len(ids) == len(changes)
    assert all(any(change in each for each in ids) for change in changes)


def test_mutants_can_be_compiled_and_differ_from_their_original() -> None:
    module = "svc_async/governor/windows.py"
    source = (ROOT / module).read_bytes()
    original = ast.dump(ast.parse(source))

    for mutant in sample(find_in_module(module, source), count=20, seed=1):
        assert ast.dump(ast.parse(mutant.apply(source))) != original, mutant.id


def test_mutants_of_all_modules_of_a_package_are_found() -> None:
    assert {mutant.module for mutant in find_mutants(ROOT, ROOT / "svc_async" / "auth")} > {
        "svc_async/auth/oauth1.py",
    }


def test_sample_stays_when_another_function_is_edited() -> None:
    before = list(find_in_module("m.py", b"def f():\n    return 1\n\ndef g():\n    return 2\n"))
    after = list(find_in_module("m.py", b"def f():\n    return 1 + h()\n\ndef g():\n    return 2\n"))

    kept = {mutant.id for mutant in after} & {mutant.id for mutant in before}
    assert [m.id for m in sample(before, count=9, seed=1) if m.id in kept] == [
        m.id for m in sample(after, count=9, seed=1) if m.id in kept
    ]


def test_equivalent_mutants_exist() -> None:
    modules = {id_.partition("::")[0] for id_ in read_equivalents()}
    ids = {m.id for module in modules for m in find_in_module(module, (ROOT / module).read_bytes())}

    assert set(read_equivalents()) - ids == set()


def test_every_package_has_tests() -> None:
    missing = [path for package in list_packages() for path in find_tests(package) if not (ROOT / path).exists()]
    assert missing == []
