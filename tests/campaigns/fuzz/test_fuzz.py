"""The parts of the long run `nox -s fuzz`; the inputs of its corpus are read in tests/campaigns/bounds."""

import gzip
from pathlib import Path
from random import Random

import pytest

from tests.campaigns.fuzz.mutations import mutate
from tests.campaigns.fuzz.oracle import CORPUS, MAX_INPUT, find_faults
from tests.campaigns.fuzz.targets import TARGETS


def test_each_target_has_inputs() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == {*TARGETS}
    assert max(path.stat().st_size for path in CORPUS.glob("*/*")) <= MAX_INPUT


def test_a_seed_makes_the_same_inputs_each_time() -> None:
    for content in (b'{"data":[{},{}]}', gzip.compress(b"a,b\nc,d\n", mtime=0)):
        inputs = [mutate(content, Random(seed), 4_096, lambda each: each + b"x") for seed in range(40)]
        assert inputs == [mutate(content, Random(seed), 4_096, lambda each: each + b"x") for seed in range(40)]
        assert max(map(len, inputs)) <= 4_096
        assert len({*inputs}) > 10


@pytest.mark.long("reads in processes of their own")
def test_what_takes_too_much_and_what_ends_the_process_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "account").write_bytes(b'{"data": {}}')
    assert find_faults("answers", [tmp_path / "account"]) == {}
    assert [*find_faults("answers", [tmp_path / "missing"])] == ["missing"]  # an error that is not of the library
    assert [*find_faults("unknown", [tmp_path / "account"])] == ["account"]
    for limit, least in (("MAX_SECONDS", -1), ("MAX_BYTES", -1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"tests.campaigns.fuzz.oracle.{limit}", least)
            assert find_faults("answers", [tmp_path / "account"])["account"].startswith("took")
