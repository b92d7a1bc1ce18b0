"""Every Python block of README.md and docs/ is a program that runs; a `text` block behind it is what it prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from svc_async.store.postgres import DEFAULT_SCHEMA
from tests.support.examples import NEEDS_MORE, ROOT, Example, find_examples
from tests.support.loggers import keep_loggers  # noqa: F401 - a fixture
from tests.support.postgres import drop_schema
from tests.support.sandbox_thread import run_sandbox

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [each for page in PAGES if page.name not in NEEDS_MORE for each in find_examples(page)]
LONG = (
    "django",
    "range(10_000)",
    "call_later(0.5",  # these wait in real time
    "for pause in (0.1",
    "seconds=0.2",
)
CASES = [
    pytest.param(each, id=each.name, marks=pytest.mark.long if any(word in each.code for word in LONG) else ())
    for each in EXAMPLES
]


@pytest.fixture(scope="module")
def sandbox_environment() -> Iterator[dict[str, str]]:
    """The variables with which `Session.from_env()` reaches a sandbox that runs in another thread."""
    with run_sandbox() as environment:
        yield environment


def forget_django_settings() -> None:
    """Let a program configure Django as if it were the first one of this process."""
    from django import conf  # noqa: PLC0415 - only the group `test-long` has it

    kept = vars(conf.settings)
    kept.clear()
    kept["_wrapped"] = conf.empty


@pytest.mark.usefixtures("keep_loggers")
@pytest.mark.parametrize("example", CASES)
def test_an_example_runs_and_prints_what_the_page_says(
    example: Example,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    if example.needs_sandbox:
        for name, value in request.getfixturevalue("sandbox_environment").items():
            monkeypatch.setenv(name, value)
    if "asyncio.run" in example.code and "SharedState.open()" in example.code:
        url = request.getfixturevalue("postgres_url")
        drop_schema(url, DEFAULT_SCHEMA)
        monkeypatch.setenv("SVC_STATE_URL", url)
    if "DATABASE_URL" in example.code:
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("postgres_url"))
    if "django" in example.code:
        forget_django_settings()
    exec(compile(example.code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102 - it is what a reader does
    if example.output is not None:
        assert capsys.readouterr().out == example.output


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
