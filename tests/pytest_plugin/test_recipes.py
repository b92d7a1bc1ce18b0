"""Every recipe of docs/how-to-test-your-code.md, in every way in which asynchronous tests run (`nox -s plugin`)."""

import pytest

from tests.support.recipes import RUNNERS, read_recipes, write_recipes

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", RUNNERS)
def test_every_recipe_passes(pytester: pytest.Pytester, name: str) -> None:
    runner = RUNNERS[name]
    write_recipes(pytester.path, runner)
    result = pytester.runpytest_subprocess(*runner.options)
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] > len(read_recipes())
    assert result.parseoutcomes().keys() == {"passed"}


def test_a_test_on_trio_is_refused(pytester: pytest.Pytester) -> None:
    code = RUNNERS["anyio"].header.replace('"asyncio"', '"trio"') + "\n\nasync def test(svc_session):\n    pass\n"
    pytester.makepyfile(code)
    result = pytester.runpytest_subprocess("-p", "no:asyncio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*svc_sandbox needs asyncio: let the fixture anyio_backend return 'asyncio'*"])
    result.stdout.no_fnmatch_line("*another exception occurred*")
