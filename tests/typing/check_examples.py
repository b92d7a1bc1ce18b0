"""Checks the types of the programs in README.md and docs/, as a reader does who copies one: `nox -s types`.

The pages whose programs need more libraries are checked where these are installed: `nox -s recipes` names them.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mypy.main import main

from tests.support.examples import NEEDS_MORE, ROOT, find_examples

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def check_examples(pages: Iterable[Path], folder: Path) -> None:
    """Write each program into a file of its own, named by its page and line, and check all of them."""
    files: list[str] = []
    for page in pages:
        for example in find_examples(page):
            file = folder / f"{page.stem.replace('-', '_')}_line_{example.name.rpartition(':')[2]}.py"
            file.write_text(example.code, encoding="utf-8")
            files.append(str(file))
    # What the programs import is checked elsewhere, with the libraries that it needs itself.
    main(args=["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports=silent", *files], clean_exit=True)


if __name__ == "__main__":
    named = [ROOT / "docs" / name for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as name:
        check_examples(named or [page for page in PAGES if page.name not in NEEDS_MORE], Path(name))
