"""Pages that are made from the code say what it says, and leave nothing out."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from tests.support.contract import FOLDER, OPERATIONS

UNSPECIFIED = tomllib.loads((FOLDER / "unspecified.toml").read_text(encoding="utf-8"))
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", ["commands", "keywords", "operations", "rejections", "rules", "settings"])
def test_a_page_is_what_the_code_says(name: str) -> None:
    made = runpy.run_path(str(REFERENCE / f"{name}.py"))["page"]()
    page = (REFERENCE / f"{name}.md").read_text(encoding="utf-8")
    assert page == made, f"run python docs/reference/{name}.py"


def test_the_sandbox_says_what_its_rules_say() -> None:
    made = runpy.run_path(str(REFERENCE / "rules.py"))
    assert made["DATA"].read_text(encoding="utf-8") == made["data"](), "run python docs/reference/rules.py"


def test_no_operation_is_left_out() -> None:
    page = (REFERENCE / "operations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)`(?: \(\*public\*\))? \| (`[A-Z]+ [^`]+`)", page, re.MULTILINE))
    wanted = {name: f"`{row['method']} {row['path']}`" for name, row in OPERATIONS.items()}
    assert {name: rows.get(name) for name in wanted} == wanted


def test_what_is_called_unspecified_is_so() -> None:
    known = {row["id"] for table in UNSPECIFIED.values() for row in table}
    named = set(re.findall(r"(?:UNS|CON)-[\w-]+", (REFERENCE.parent / "unspecified.md").read_text(encoding="utf-8")))
    assert named
    assert named <= known
