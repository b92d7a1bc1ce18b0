"""Checks the types of the programs in README.md and docs/, as a reader does who copies one: `nox -s types`."""

import tempfile
from pathlib import Path

from mypy.main import main

from tests.support.examples import NEEDS_MORE, ROOT, find_examples

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def check_examples(folder: Path) -> None:
    """Write each program into a file of its own, named by its page and line, and check all of them."""
    files: list[str] = []
    for page in PAGES:
        if page.name in NEEDS_MORE:
            continue
        for example in find_examples(page):
            file = folder / f"{page.stem.replace('-', '_')}_line_{example.name.rpartition(':')[2]}.py"
            file.write_text(example.code, encoding="utf-8")
            files.append(str(file))
    main(args=["--config-file", str(ROOT / "pyproject.toml"), *files], clean_exit=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        check_examples(Path(name))
