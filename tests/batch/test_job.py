import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import msgspec
import pytest

from svc_async import InvalidArgument
from svc_async.batch.job import Job, SourceSpec, TargetSpec, from_plain, to_plain
from svc_async.batch.settings import BatchSettings, Reading, SyncObservers, SyncSettings
from svc_async.store.records import SharedSyncs
from tests.support.errors import has

AUDIENCE = TargetSpec(kind="audience", account_id="18ce54d4x5t", list_id="1nmth")
CATALOG = TargetSpec(kind="catalog", list_id="c1")
SOURCE = SourceSpec(path="/data/members.csv", format="csv", mapping={"Mail": "email", "*": "-"}, encoding="cp1252")
UPLOAD = Job(
    target=AUDIENCE,
    source=SOURCE,
    effective_at=datetime(2030, 1, 1, tzinfo=UTC),
    expires_at=datetime(2031, 1, 1, 12, 30, tzinfo=UTC),
    reading=Reading("DE", "drop"),
    settings=BatchSettings(concurrency=4, users_per_operation=1, ordering="none", quarantine=1.5, retry_delays=(0, 9)),
)
JOBS = [
    pytest.param(UPLOAD, id="upload"),
    pytest.param(Job(target=AUDIENCE, source=SOURCE, operation="remove"), id="removal"),
    pytest.param(Job(target=TargetSpec(kind="catalog", list_id="c1"), source=SourceSpec(path="-")), id="defaults"),
    pytest.param(
        Job(
            operation="sync",
            target=AUDIENCE,
            source=SOURCE,
            state="/var/state",
            sync=SyncSettings(dry_run=True, max_removal_share=0.5, refresh_within=timedelta(days=7)),
        ),
        id="sync",
    ),
]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_survives_json(job: Job) -> None:
    through_msgspec = msgspec.json.decode(msgspec.json.encode(to_plain(job)))

    assert from_plain(through_msgspec) == job
    assert from_plain(json.loads(json.dumps(to_plain(job)))) == job


@pytest.mark.parametrize("job", JOBS)
def test_a_job_survives_pickle(job: Job) -> None:
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_a_value(job: Job) -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        job.operation = "remove"  # type: ignore[misc]  # it is refused at run time as well


@pytest.mark.parametrize(
    "change",
    [{"format": 0}, {"format": 3}, {"operation": "move"}, {"target": {}}, {"settings": {"concurrency": 0}}],
)
def test_what_this_version_cannot_run_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="job")):
        from_plain({**to_plain(UPLOAD), **change})


@pytest.mark.parametrize("plain", [None, [], "upload", {}, {"job": "upload"}])
def test_other_values_are_refused(plain: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="job")):
        from_plain(plain)


@pytest.mark.parametrize(
    ("target", "settings", "name"),
    [
        (
            AUDIENCE,
            {"operation": "remove", "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires_at",
        ),
        (
            TargetSpec(kind="do_not_reach_list", account_id="a", list_id="d"),
            {"effective_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "effective_at",
        ),
        (
            CATALOG,
            {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires_at",
        ),
    ],
)
def test_times_that_a_job_cannot_have_are_refused(target: TargetSpec, settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        Job(target=target, source=SOURCE, **settings)


def test_a_do_not_reach_list_cannot_be_synced() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="kind")):
        Job(operation="sync", target=TargetSpec(kind="do_not_reach_list", account_id="a", list_id="d"), source=SOURCE)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (TargetSpec(kind="audience", list_id="1"), "account_id"),
        (TargetSpec(kind="audience", account_id="a"), "custom_audience_id"),
        (TargetSpec(kind="do_not_reach_list", account_id="a"), "do_not_reach_list_id"),
        (TargetSpec(kind="catalog"), "product_catalog_id"),
    ],
)
def test_an_id_that_is_missing_is_named(target: TargetSpec, name: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        target.check()


def test_a_job_of_a_process_is_detached_from_it() -> None:
    class State(SharedSyncs):
        def open_sync_tables(self, target: str) -> Any:
            raise NotImplementedError

    kept = Job(target=AUDIENCE, operation="sync", source=SOURCE, reading=Reading("DE"))
    own: dict[str, Any] = {"journal": "a.journal", "cluster": object(), "shards": 3, "state": State()}
    job = attrs.evolve(kept, observers=SyncObservers(progress=lambda _: None), **own)

    assert pickle.loads(pickle.dumps(job.detach())) == kept == from_plain(to_plain(job))
