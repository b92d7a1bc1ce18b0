"""Names, docstrings and messages keep to docs/glossary.md, as far as a machine can see."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "svc_async"
SANDBOX = PACKAGE / "sandbox"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    path for folder in ("svc_async", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")
)
CLIENT = [path for path in MODULES if SANDBOX not in path.parents]
DOORS = ("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in DOORS), *sorted((ROOT / "docs").rglob("*.md"))]

PARTICIPLE = re.compile(
    r"_?(?:[a-z]+(?<!fe)(?<!ne)(?<!se)(?<!ee)ed|told|given|made|found|known|held|sent|kept|taken|built|written|shown|chosen|left|drawn)"
    r"(?:_|$)"
)
VERBS_IN_ED = {"feed", "embed", "exceed", "need", "proceed", "seed", "shed", "speed", "succeed", "bed"}
ADJECTIVES = {
    "embedded",
    "malformed",
    "related",
    "required",
    "sized",
    "tailored",
    "targeted",
    "unauthorized",
    "unexpected",
    "unused",
}
"""First words of functions that are named after what they return: a record, a fault, a predicate."""
COINED = re.compile(
    r"\b(?:sheaf|sheaves|spreader|parcels?|outlets?|told|heard|unheard|remed(?:y|ies)|give(?:s)? way|goes? on where"
    r"|stands? aside|put aside|so many|blot(?:s|ted)?|the books)\b",
    re.IGNORECASE,
)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def list_sentences(tree: ast.Module) -> Iterator[ast.Constant]:
    """Return the strings that are no docstrings and have a space: messages."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documents and " " in str(node.value):
            yield node


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(each) or ".setter" in ast.unparse(each) for each in function.decorator_list)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := re.search(r"(?:^|\s)#\s?(?P<text>.*)", line):
            yield number, match["text"]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside its code blocks."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def test_a_function_is_named_by_a_verb() -> None:
    participles = [
        f"{relative(path)}:{function.lineno} {function.name}"
        for path in MODULES
        for function in functions(parse(path))
        if not is_property(function)
        and (match := PARTICIPLE.match(function.name))
        and match[0].strip("_") not in VERBS_IN_ED | ADJECTIVES
    ]
    assert not participles


def test_a_docstring_does_not_begin_with_give() -> None:
    assert not [
        f"{relative(path)}:{line}"
        for path in MODULES
        for line, text in docstrings(parse(path))
        if text.startswith(("Give ", "Gives "))
    ]


def test_a_class_name_stands_for_one_thing_in_the_client() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in CLIENT:
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(relative(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_no_coined_words_in_docstrings_and_comments() -> None:
    assert not [
        f"{relative(path)}:{line} {match[0]}"
        for path in MODULES
        for line, text in (*docstrings(parse(path)), *comments(path))
        if (match := COINED.search(text))
    ]


def test_no_coined_words_in_the_documentation() -> None:
    assert not [
        f"{page.name}:{line} {match[0]}"
        for page in PAGES
        for line, text in prose(page)
        if (match := COINED.search(text))
    ]


def test_every_suppression_has_a_reason() -> None:
    bare = re.compile(r"#\s*(?:noqa(?::\s*[A-Z0-9, ]+)?|type:\s*ignore(?:\[[^\]]*\])?|fmt:\s*skip)\s*$")
    assert not [
        f"{relative(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if bare.search(line)
    ]


def test_the_glossary_defines_each_term_once() -> None:
    terms = re.findall(r"^\| \*\*([^*]+)\*\* \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    counts: Mapping[str, int] = {term: terms.count(term) for term in terms}
    assert len(terms) >= 30
    assert set(counts.values()) == {1}


RULE_ID = re.compile(r"\b(?:[A-Z]{2,4}-\d{2}[a-z]?|UNS-[a-z-]+)\b")


def test_no_message_cites_a_rule_that_its_reader_cannot_look_up() -> None:
    found = [
        f"{relative(path)}:{node.lineno}"
        for path in CLIENT
        for node in list_sentences(parse(path))
        if RULE_ID.search(str(node.value))
    ]

    assert not found, "name it in rule_ids"
