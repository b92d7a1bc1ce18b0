"""Every link of README.md and docs/ leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOORS = ("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in DOORS), *sorted((ROOT / "docs").rglob("*.md"))]


def find_links() -> Iterator[tuple[Path, str, str]]:
    """Yield each link into the project: its page, the file that it names, and the anchor there; both may be empty."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            yield page, target, anchor


def list_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", each).strip().lower()) for each in headings}


def test_a_link_leads_somewhere() -> None:
    links = [(page.name, target, (page.parent / target).exists()) for page, target, _ in find_links()]
    assert len(links) > 300
    assert [(page, target) for page, target, exists in links if not exists] == []


def test_a_link_into_a_page_names_one_of_its_headings() -> None:
    into = [(page, target, anchor) for page, target, anchor in find_links() if anchor]
    assert len(into) > 50
    assert [
        (page.name, target, anchor)
        for page, target, anchor in into
        if anchor not in list_anchors(page.parent / target if target else page)
    ] == []
