"""The programs of the page about pipelines run against the real libraries, each as a program of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.examples import NEEDS_MORE, ROOT, Example, find_examples
from tests.support.sandbox_thread import run_sandbox

EXAMPLES = [each for name in sorted(NEEDS_MORE) for each in find_examples(ROOT / "docs" / name)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of the programs: a sandbox, and folders where Airflow and Prefect keep their databases."""
    home = tmp_path_factory.mktemp("home")
    settings = {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "DO_NOT_TRACK": "1",
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "250",  # a slow machine is no failure
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    with run_sandbox() as sandbox:
        yield {**os.environ, **settings, **sandbox}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_program_of_the_page_runs(example: Example, environment: Mapping[str, str], tmp_path: Path) -> None:
    dags = Path(environment["AIRFLOW_HOME"], "dags")
    dags.mkdir(parents=True, exist_ok=True)
    program = (dags if "airflow" in example.code else tmp_path) / "program.py"
    program.write_text(example.code, encoding="utf-8")
    if program.parent == dags:
        run([sys.executable, "-m", "airflow", "db", "migrate"], environment, tmp_path)
    printed = run([sys.executable, str(program)], environment, tmp_path)
    assert example.output is not None
    assert f"\n{example.output}" in f"\n{printed}"  # schedulers print their logs before and after


def test_the_page_has_a_program_for_each_library() -> None:
    code = "".join(example.code for example in EXAMPLES)
    assert all(
        f"import {name}" in code or f"from {name}" in code for name in ("airflow", "duckdb", "polars", "prefect")
    )


def run(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout
