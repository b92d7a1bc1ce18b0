"""The plan of a source: which files it has, in which order, and whether it is still the same."""

import asyncio
import json
import os
import pickle
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from svc_async.batch.job import Job
from svc_async.cluster import planning
from svc_async.cluster.files import SourceUnavailable, list_files
from svc_async.cluster.fragments import open_fragment
from svc_async.cluster.plan import SourcePlan
from svc_async.cluster.planning import plan_in_thread, plan_source
from svc_async.errors import Hint, InvalidArgument, UnusableFile
from tests.support.errors import has
from tests.support.files import COMPRESSIONS, Write, read_rows
from tests.support.object_store import Bucket
from tests.support.plans import describe

SIZE = 30
"""Bytes of a fragment."""
CSV = "email\n" + "".join(f"user{number}@example.com\n" for number in range(10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "part=1/c.csv", "_SUCCESS", ".hidden/d.csv", "_temporary/e.csv"):
        path = tmp_path / "customers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CSV)
    (tmp_path / "customers" / "empty.csv").touch()
    return tmp_path / "customers"


def list_paths(plan: SourcePlan, start: str) -> Sequence[str]:
    return [file.source.path.removeprefix(start) for file in plan.files]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["/a.csv", "/b.csv", "/part=1/c.csv"]),
        ("/*.csv", ["/a.csv", "/b.csv"]),
        ("/**/*.csv", ["/a.csv", "/b.csv", "/part=1/c.csv"]),
        ("/b.csv", ["/b.csv"]),
    ],
)
def test_files_of_folders_and_patterns_come_in_the_order_of_their_paths(
    folder: Path, pattern: str, expected: Sequence[str]
) -> None:
    assert list_paths(plan_source(describe(f"{folder}{pattern}"), fragment_size=SIZE), str(folder)) == expected


@pytest.mark.parametrize("format_", [None, "csv"])
@pytest.mark.parametrize("pattern", ["", "/*"])
def test_parts_without_content_are_left_out_however_they_are_compressed(
    tmp_path: Path, pattern: str, format_: str | None
) -> None:
    for suffix, compress in COMPRESSIONS.items():
        (tmp_path / f"none.csv.{suffix}").write_bytes(compress(b""))
        with pytest.raises(UnusableFile, check=has(problem="is empty")):
            plan_source(describe(tmp_path / f"none.csv.{suffix}", format=format_))
    (tmp_path / "none.csv").touch()
    with pytest.raises(UnusableFile, check=has(path=f"{tmp_path}{pattern}")):
        plan_source(describe(f"{tmp_path}{pattern}", format=format_))
    for suffix, compress in COMPRESSIONS.items():
        (tmp_path / f"one.csv.{suffix}").write_bytes(compress(CSV.encode()))
    plan = plan_source(describe(f"{tmp_path}{pattern}", format=format_))
    assert list_paths(plan, str(tmp_path)) == [f"/one.csv.{suffix}" for suffix in sorted(COMPRESSIONS)]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
@pytest.mark.parametrize(
    ("pattern", "is_refused"), [("", True), ("/**/*.csv", True), ("/*/c.csv", True), ("/*.csv", False)]
)
def test_folder_that_cannot_be_read_is_refused_and_not_left_out(pattern: str, *, is_refused: bool) -> None:
    with tempfile.TemporaryDirectory() as name:  # since another user has no access to the folders of pytest
        for part in ("part=1", "part=2", "_temporary"):
            (Path(name) / part).mkdir()
            (Path(name) / part / "c.csv").write_text(CSV)
        (Path(name) / "c.csv").write_text(CSV)
        for path in (Path(name) / "part=2", Path(name) / "_temporary"):
            path.chmod(0)
        Path(name).chmod(0o755)
        refusal = pytest.raises(SourceUnavailable, check=has(name=f"{name}/part=2"))
        with become_nobody(), refusal if is_refused else nullcontext():
            list_files(f"{name}{pattern}")


@contextmanager
def become_nobody() -> Iterator[None]:
    """Do without the rights of the superuser, who can read every folder."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("pattern", ["", "/*.csv", "/a.csv"])
def test_files_of_a_bucket_are_found_likewise(bucket: Bucket, pattern: str) -> None:
    for name in ("b.csv", "a.csv", "part=1/c.csv", "_SUCCESS", ".hidden/d.csv"):
        bucket.write(f"customers/{name}", CSV.encode())
    bucket.write("customers/empty.csv", b"")
    start = f"{bucket.url}/customers"
    found = {"": ["/a.csv", "/b.csv", "/part=1/c.csv"], "/*.csv": ["/a.csv", "/b.csv"], "/a.csv": ["/a.csv"]}
    plan = plan_source(describe(f"{start}{pattern}"), fragment_size=SIZE)
    assert list_paths(plan, start) == found[pattern]
    rows = []
    for fragment in plan.fragments:
        with open_fragment(fragment, plan.job) as source:
            rows += read_rows(source)
    assert rows == [(f"user{number}@example.com",) for number in range(10)] * len(plan.files)


def test_plan_survives_json_and_pickle(folder: Path) -> None:
    plan = plan_source(describe(folder, mapping={"*": "-"}, empty=("n/a",)), fragment_size=SIZE)
    again = SourcePlan.from_plain(json.loads(json.dumps(plan.to_plain())), describe(folder))
    assert again == plan == pickle.loads(pickle.dumps(plan))
    assert again.digest == plan.digest
    assert plan_source(describe(f"{folder}/a.csv"), fragment_size=SIZE).digest != plan.digest


@pytest.mark.parametrize("plain", [None, {}, {"format": 1}, {"format": 2, "files": []}])
def test_plan_of_another_form_is_refused(plain: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="plan")):
        SourcePlan.from_plain(plain, describe("people.csv"))


def test_same_source_goes_on_whatever_the_size_of_its_fragments(folder: Path) -> None:
    stored = plan_source(describe(folder), fragment_size=SIZE)
    plan_source(describe(folder)).check_same_source(stored)


def test_other_source_is_refused_by_its_first_difference(folder: Path) -> None:
    stored = plan_source(describe(folder), fragment_size=SIZE)
    with pytest.raises(UnusableFile, check=has(path=str(folder / "a.csv"))):
        plan_source(describe(folder, empty=("n/a",)), fragment_size=SIZE).check_same_source(stored)
    os.utime(folder / "b.csv", ns=(0, 0))
    with pytest.raises(UnusableFile, check=has(path=str(folder / "b.csv"))):
        plan_source(describe(folder), fragment_size=SIZE).check_same_source(stored)
    stored = plan_source(describe(folder), fragment_size=SIZE)
    (folder / "part=1" / "c.csv").unlink()
    with pytest.raises(UnusableFile, check=has(hint=Hint.RESTORE_THE_SOURCE)):
        plan_source(describe(folder), fragment_size=SIZE).check_same_source(stored)
    (folder / "aa.csv").write_text(CSV)
    with pytest.raises(UnusableFile, check=has(path=str(folder / "aa.csv"))):
        plan_source(describe(folder), fragment_size=SIZE).check_same_source(stored)


def test_object_that_was_replaced_is_another_source(bucket: Bucket) -> None:
    url = bucket.write("a.csv", CSV.encode())
    stored = plan_source(describe(url), fragment_size=SIZE)
    bucket.write("a.csv", CSV.replace("user0", "user1").encode())
    with pytest.raises(UnusableFile, check=has(path=url)):
        plan_source(describe(url), fragment_size=SIZE).check_same_source(stored)
    with (
        pytest.raises(SourceUnavailable, check=has(name=url)),
        open_fragment(stored.fragments[0], stored.job),
    ):
        pass
    bucket.delete("a.csv")
    with pytest.raises(SourceUnavailable, check=has(name=url)), open_fragment(stored.fragments[0], stored.job):
        pass


def test_file_that_a_worker_does_not_see_is_named(write: Write) -> None:
    path = write(CSV)
    plan = plan_source(describe(path), fragment_size=SIZE)
    path.unlink()
    with (
        pytest.raises(SourceUnavailable, check=has(name=str(path))),
        open_fragment(plan.fragments[0], plan.job),
    ):
        pass


@pytest.mark.parametrize("path", ["nowhere.csv", "nowhere/*.csv", "empty.csv"])
def test_source_without_files_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty.csv").touch()
    with pytest.raises(UnusableFile, check=has(path=str(tmp_path / path))):
        plan_source(describe(tmp_path / path), fragment_size=SIZE)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://someone:secret@example.com/a.csv",
        "https://example.com/a.csv?X-Amz-Signature=secret",
        "nothing://bucket/a.csv",
        "abfs://container/a.csv",
    ],
)
def test_url_that_cannot_be_opened_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="source")) as caught:
        plan_source(describe(url), fragment_size=SIZE)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("bound", [1_000, pytest.param(planning._MAX_WHOLE, marks=pytest.mark.long)])
def test_file_that_cannot_be_divided_has_a_bound(write: Write, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    monkeypatch.setattr(planning, "_MAX_WHOLE", bound)
    text = ("email\n" + "user@example.com\n" * (bound // 34 + 1)).encode("utf-16")
    assert len(plan_source(describe(write(text[:bound])), fragment_size=SIZE).fragments) == 1
    with pytest.raises(UnusableFile, check=has(parameter="file")):
        plan_source(describe(write(text[: bound + 2])), fragment_size=SIZE)


def refuse(*_: object, **__: object) -> None:
    raise ImportError


def test_storage_is_opened_by_pyarrow_if_its_package_is_missing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.csv", "a.csv", "_SUCCESS"):
        bucket.write(f"customers/{name}", CSV.encode())
    with monkeypatch.context() as missing:
        missing.setattr("fsspec.core.url_to_fs", refuse)
        plan = plan_source(describe(f"{bucket.url}/customers/*.csv"), fragment_size=SIZE)
        assert list_paths(plan, f"{bucket.url}/customers") == ["/a.csv", "/b.csv"]
        assert plan.files[0].source.version.startswith("20")  # when it was modified, since pyarrow knows no ETag
        rows = []
        for fragment in plan.fragments:
            with open_fragment(fragment, plan.job) as source:
                rows += read_rows(source)
    assert rows == [(f"user{number}@example.com",) for number in range(10)] * 2


async def test_a_plan_that_is_cancelled_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.csv"
    path.write_text("email\n" + "somebody@example.com\n" * 1_000)
    began, ended = threading.Event(), threading.Event()

    def plan(job: Job, *, stop: threading.Event) -> SourcePlan:
        began.set()
        stop.wait()
        try:
            return plan_source(job, stop=stop)
        except SourceUnavailable:
            ended.set()
            raise

    monkeypatch.setattr(planning, "plan_source", plan)
    task = asyncio.ensure_future(plan_in_thread(describe(path)))
    await asyncio.to_thread(began.wait)
    task.cancel()
    await asyncio.to_thread(ended.wait)
    assert task.cancelled()
