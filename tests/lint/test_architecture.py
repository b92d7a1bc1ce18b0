"""docs/architecture.md names modules that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_module_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(\w+\.py)\b", page))
    assert len(named) > 50
    assert named <= {path.name for path in (ROOT / "svc_async").rglob("*.py")}
