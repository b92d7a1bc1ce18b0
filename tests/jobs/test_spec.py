import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import msgspec
import pytest

from svc_async import InvalidArgument
from svc_async.batch.settings import BatchSettings
from svc_async.batch.sync.settings import SyncSettings
from svc_async.jobs.spec import JobSpec, SourceSpec, SyncSpec, TargetSpec, UploadSpec, from_plain, to_plain

AUDIENCE = TargetSpec(kind="audience", account_id="18ce54d4x5t", list_id="1nmth")
CATALOG = TargetSpec(kind="catalog", list_id="c1")
SOURCE = SourceSpec(path="/data/members.csv", format="csv", mapping={"Mail": "email", "*": "-"}, encoding="cp1252")
UPLOAD = UploadSpec(
    target=AUDIENCE,
    source=SOURCE,
    effective_at=datetime(2030, 1, 1, tzinfo=UTC),
    expires_at=datetime(2031, 1, 1, 12, 30, tzinfo=UTC),
    phone_region="DE",
    settings=BatchSettings(concurrency=4, users_per_operation=1, ordering="none", quarantine=1.5, retry_delays=(0, 9)),
)
SPECS = [
    pytest.param(UPLOAD, id="upload"),
    pytest.param(UploadSpec(target=AUDIENCE, source=SOURCE, operation="remove"), id="removal"),
    pytest.param(
        UploadSpec(target=TargetSpec(kind="catalog", list_id="c1"), source=SourceSpec(path="-")), id="defaults"
    ),
    pytest.param(
        SyncSpec(
            target=AUDIENCE,
            source=SOURCE,
            state="/var/state",
            sync=SyncSettings(dry_run=True, max_removal_share=0.5, refresh_within=timedelta(days=7)),
        ),
        id="sync",
    ),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_survives_json(spec: JobSpec) -> None:
    through_msgspec = msgspec.json.decode(msgspec.json.encode(to_plain(spec)))

    assert from_plain(through_msgspec) == spec
    assert from_plain(json.loads(json.dumps(to_plain(spec)))) == spec


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_survives_pickle(spec: JobSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_is_a_value(spec: JobSpec) -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.phone_region = "FR"  # type: ignore[misc]  # it is refused at run time as well


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 0}, "spec is of format 0, but this version runs format 1"),
        ({"format": 2}, "spec is of format 2, but this version runs format 1"),
        ({"job": "copy"}, "spec must be a job that `to_plain` has encoded"),
        ({"operation": "move"}, "spec cannot be read: Invalid enum value 'move' - at `$.operation`"),
        ({"target": {}}, "spec cannot be read: Object missing required field `kind` - at `$.target`"),
        (
            {"settings": {"concurrency": 0}},
            "spec cannot be read: concurrency must be a whole number from 1 to 1,000 - at `$.settings`",
        ),
    ],
)
def test_what_this_version_cannot_run_is_refused_in_one_sentence(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_plain({**to_plain(UPLOAD), **change})

    assert str(caught.value) == problem


@pytest.mark.parametrize("plain", [None, [], "upload", {}, {"command": ["audience", "upload"]}])
def test_other_values_are_refused(plain: object) -> None:
    with pytest.raises(InvalidArgument, match="spec must be a job"):
        from_plain(plain)


@pytest.mark.parametrize(
    ("target", "settings", "problem"),
    [
        (
            AUDIENCE,
            {"operation": "remove", "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires_at must not be given",
        ),
        (
            TargetSpec(kind="do_not_reach_list", account_id="a", list_id="d"),
            {"effective_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "effective_at must not be given for this job: Upload to a do-not-reach list",
        ),
        (
            CATALOG,
            {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "expires_at must not be given for this job: Upload to a catalog",
        ),
    ],
)
def test_times_that_a_job_cannot_have_are_refused(target: TargetSpec, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        UploadSpec(target=target, source=SOURCE, **settings)


def test_a_do_not_reach_list_cannot_be_synced() -> None:
    with pytest.raises(InvalidArgument, match="kind must be audience or catalog"):
        SyncSpec(target=TargetSpec(kind="do_not_reach_list", account_id="a", list_id="d"), source=SOURCE)


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
    with pytest.raises(InvalidArgument, match=f"{name} must be given"):
        target.check()
