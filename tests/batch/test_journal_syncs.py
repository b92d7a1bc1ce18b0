"""A journal in a file survives a power cut: no request goes out before its intent is on the disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.traced_upload import REQUESTS

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.long("the calls of another interpreter are recorded"),
    pytest.mark.skipif(sys.platform != "linux", reason="records calls by preloading a library"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler for that library"),
]


def record_calls(folder: Path, *statements: str) -> list[list[str]]:
    """Upload with a journal; return the words of each line that was recorded."""
    assert COMPILER is not None
    library, trace = folder / "trace.so", folder / "trace"
    source = ROOT / "tests" / "support" / "trace_syscalls.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    subprocess.run(
        [sys.executable, "-m", "tests.support.traced_upload", str(folder / "job.journal"), *statements],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library), "TRACE": str(trace), "FOLDER": str(folder / "job.journal")},
        check=True,
    )
    return [line.split(" ") for line in trace.read_text().splitlines()]


def count_recorded_when_sent(calls: list[list[str]]) -> list[int]:
    """Return, for each request, of how many the records were on the disk when its first byte was written."""
    written: dict[str, int] = {}
    synced = 0
    counts: list[int] = []
    for what, *words in calls:
        if what == "send":
            if bytes.fromhex(words[0]).startswith(b"POST "):
                counts.append(synced)
        elif what == "sync":
            synced = max(synced, written.pop(words[0], 0))
        else:
            path, content = words[0], bytes.fromhex(words[1])
            found = [each[0] for each in content.split(b"\xa8requests")[1:]]
            written[path] = max([written.get(path, 0), *found])
    return counts


def test_no_request_goes_out_before_its_intent_is_on_the_disk(tmp_path: Path) -> None:
    counts = count_recorded_when_sent(record_calls(tmp_path))

    assert counts == [*range(1, REQUESTS + 1)]


def test_a_journal_that_is_not_synced_is_noticed(tmp_path: Path) -> None:
    counts = count_recorded_when_sent(record_calls(tmp_path, "PRAGMA synchronous = NORMAL"))

    assert len(counts) == REQUESTS
    assert max(counts) == 0
