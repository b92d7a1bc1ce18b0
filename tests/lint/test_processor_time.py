"""The limit of the processor time of a run holds for all of its processes."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
CODE = """
import subprocess
import sys


def test_light():
    pass


def test_heavy():
    burn = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makepyfile(CODE)
    plugins = ("-p", "tests.support.processor_time", "-p", "no:svc_async", "-p", "no:cacheprovider")
    result = pytester.runpytest_subprocess(*plugins, *options)
    result.assert_outcomes(passed=2)
    return result


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one", "workers"])
def test_a_run_that_takes_longer_fails_and_names_its_dearest_tests(
    pytester: pytest.Pytester, processes: tuple[str, ...]
) -> None:
    result = run(pytester, "--processor-seconds", "0.1", *processes)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    times = re.findall(r"^ *([\d.]+) s \S+::(test_\w+)$", result.stdout.str(), re.MULTILINE)
    assert [name for _, name in times] == ["test_heavy", "test_light"]
    assert float(times[0][0]) > 0.4, "the time of its child counts"
    ((total, verdict),) = re.findall(r"^ *([\d.]+) s in all, (.+)$", result.stdout.str(), re.MULTILINE)
    assert float(total) > 0.1
    assert verdict == "more than 0.1 s"


def test_a_run_within_its_limit_passes(pytester: pytest.Pytester) -> None:
    assert run(pytester, "--processor-seconds", "1000", "-n", "2").ret == pytest.ExitCode.OK


def test_without_the_option_nothing_is_limited(pytester: pytest.Pytester) -> None:
    result = run(pytester)
    assert result.ret == pytest.ExitCode.OK
    assert "processor time" not in result.stdout.str()
