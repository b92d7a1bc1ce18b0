"""Every Python block of README.md and docs/ is a program that runs; a `text` block behind it is what it prints."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from svc_async.state.database import DEFAULT_SCHEMA
from tests.support.loggers import keep_loggers  # noqa: F401 - a fixture
from tests.support.postgres import drop_schema
from tests.support.sandbox_thread import run_sandbox

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING_PAGES = [*PAGES, *(ROOT / name for name in ("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?", re.MULTILINE | re.DOTALL)


def _line(page: Path, match: re.Match[str]) -> int:
    return page.read_text(encoding="utf-8")[: match.start()].count("\n") + 2


EXAMPLES = [
    pytest.param(match["code"], match["output"], id=f"{page.name}:{_line(page, match)}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
]
LINKS = [
    pytest.param(page, target, id=f"{page.name}->{target}")
    for page in LINKING_PAGES
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def sandbox_environment() -> Iterator[dict[str, str]]:
    """The variables with which `Session.from_env()` reaches a sandbox that runs in another thread."""
    with run_sandbox() as environment:
        yield environment


@pytest.mark.usefixtures("keep_loggers")
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_runs_and_prints_what_the_page_says(  # noqa: PLR0917 - what the block is, and fixtures
    code: str,
    output: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    if 'os.environ["ACCOUNT_ID"]' in code:
        for name, value in request.getfixturevalue("sandbox_environment").items():
            monkeypatch.setenv(name, value)
    if "asyncio.run" in code and "SharedState.open()" in code:
        url = request.getfixturevalue("postgres_url")
        drop_schema(url, DEFAULT_SCHEMA)
        monkeypatch.setenv("SVC_STATE_URL", url)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102 - it is what a reader does
    if output is not None:
        assert capsys.readouterr().out == output


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
