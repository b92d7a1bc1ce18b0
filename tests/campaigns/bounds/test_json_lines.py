"""JSON lines take no more memory and time than their bytes are worth, whatever names and values they have."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from svc_async.errors import UnusableFile
from svc_async.sources.json_lines import JsonLinesSource
from tests.support.bounded_process import MIB, check_linear, measure_peak
from tests.support.errors import at, find_place


async def check(path: str) -> int | None:
    """Return the line on which a file is refused."""
    try:
        await JsonLinesSource(path, mapping={"*": "-", "email": "email"}).check()
    except UnusableFile as error:
        return find_place(error, "line")
    return None


def name_lines(size: int, name: str = "name{}") -> Callable[[], object]:
    path = Path(mkdtemp()) / "names.jsonl"
    lines = (f'{{"{name.format(number)}": "a@example.org"}}\n' for number in range(size))
    path.write_text('{"email": null}\n' + "".join(lines))
    return lambda: check(str(path))


def test_a_new_name_on_each_line_is_linear() -> None:
    check_linear(name_lines, size=1_000)


async def test_many_spellings_of_one_identifier_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "spellings.jsonl"
    path.write_text("".join(f'{{"e{"-" * number}mail": "a@example.org"}}\n' for number in range(1, 200)))
    with pytest.raises(UnusableFile, check=at(line=101)):
        await JsonLinesSource(path).check()


def write_names(path: str) -> None:
    with Path(path).open("w") as file:
        file.writelines(f'{{"{number}{"n" * MIB}": null}}\n' for number in range(200))


def test_the_names_of_all_objects_are_bounded(tmp_path: Path) -> None:
    path = str(tmp_path / "names.jsonl")
    write_names(path)
    peak = measure_peak(check, path)
    assert peak.value == 4
    assert peak.bytes < 64 * MIB
