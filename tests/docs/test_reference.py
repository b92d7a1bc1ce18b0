"""The page of operations is the code's, and leaves none of the contract's out."""

import re
import runpy
import tomllib
from pathlib import Path

from tests.conformance.calls import WITHOUT_CALL
from tests.conformance.contract import FOLDER, OPERATIONS

UNSPECIFIED = tomllib.loads((FOLDER / "unspecified.toml").read_text(encoding="utf-8"))
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_is_what_the_code_says() -> None:
    made = runpy.run_path(str(REFERENCE / "operations.py"))["page"]()
    assert (REFERENCE / "operations.md").read_text(encoding="utf-8") == made, "run python docs/reference/operations.py"


def test_no_operation_is_left_out() -> None:
    page = (REFERENCE / "operations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (`[A-Z]+ [^`]+`)", page, re.MULTILINE))
    wanted = {name: f"`{row['method']} {row['path']}`" for name, row in OPERATIONS.items() if name not in WITHOUT_CALL}
    assert {name: rows.get(name) for name in wanted} == wanted


def test_what_is_called_unspecified_is_so() -> None:
    known = {row["id"] for table in UNSPECIFIED.values() for row in table}
    named = set(re.findall(r"(?:UNS|CON)-[\w-]+", (REFERENCE.parent / "unspecified.md").read_text(encoding="utf-8")))
    assert named
    assert named <= known
