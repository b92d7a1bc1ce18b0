"""The recipes of docs/how-to-test-your-code.md as test files, for the ways in which asynchronous tests run."""

import re
from collections.abc import Mapping
from pathlib import Path

import attrs

__all__ = ["RUNNERS", "Runner", "read_recipes", "write_recipes"]

PAGE = Path(__file__).parents[2] / "docs" / "how-to-test-your-code.md"
_SECTION = re.compile(r"^### (?P<title>.+?)$(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Runner:
    """A way in which asynchronous tests run.

    Attributes:
        settings: lines of the configuration.
        header: what the page tells its readers to add to a test file.
        options: for the command line.
    """

    settings: str
    header: str = ""
    options: tuple[str, ...] = ()


_STRICT = "import pytest\n\npytestmark = pytest.mark.asyncio\n"
_ANYIO = """import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
"""

RUNNERS: Mapping[str, Runner] = {
    "auto": Runner("asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"),
    "strict": Runner("asyncio_mode = strict\nasyncio_default_fixture_loop_scope = function", _STRICT),
    "session loop": Runner(
        "asyncio_mode = strict\nasyncio_default_fixture_loop_scope = function",
        _STRICT.replace("mark.asyncio", 'mark.asyncio(loop_scope="session")'),
    ),
    "anyio": Runner("", _ANYIO, ("-p", "no:asyncio")),
    "anyio beside asyncio": Runner("asyncio_default_fixture_loop_scope = function", _ANYIO),
    "xdist": Runner("asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function", options=("-n", "2")),
}


def read_recipes() -> Mapping[str, str]:
    """Return the recipes of the page by the titles of their sections and their numbers there."""
    _, _, page = PAGE.read_text(encoding="utf-8").partition("## Recipes")
    return {
        f"{section['title']} {number}": block["code"]
        for section in _SECTION.finditer(page)
        for number, block in enumerate(_BLOCK.finditer(section["text"]), 1)
    }


def write_recipes(folder: Path, runner: Runner) -> None:
    """Write the recipes into a folder, as the page tells its readers to."""
    configuration = f"[pytest]\nfilterwarnings = error\n{runner.settings}\n"
    (folder / "pytest.ini").write_text(configuration, encoding="utf-8")
    for title, code in read_recipes().items():
        name = re.sub(r"\W+", "_", title.lower()).strip("_")
        header = runner.header if "async def test_" in code else ""  # which is for asynchronous tests
        (folder / f"test_{name}.py").write_text(f"{header}{code}", encoding="utf-8")
