import json
from datetime import UTC, datetime

import attrs
import pytest

from svc_async.ads.custom_audiences import (
    AudienceUser,
    AudienceUserOperation,
    AudienceUserOperationParams,
    BatchOperationType,
)
from svc_async.errors import InvalidArgument
from svc_async.wire.records import READ_ONLY
from svc_async.wire.writing import to_json
from tests.support.errors import has


@pytest.mark.rule("CAU-04", "CAU-05")
def test_models_are_written_without_what_is_not_given() -> None:
    operation = AudienceUserOperation(
        operation_type=BatchOperationType.UPDATE,
        params=AudienceUserOperationParams(
            users=[AudienceUser(email=["a" * 64])], expires_at=datetime(2027, 1, 1, tzinfo=UTC)
        ),
    )
    assert json.loads(to_json([operation])) == [
        {
            "operation_type": "Update",
            "params": {"users": [{"email": ["a" * 64]}], "expires_at": "2027-01-01T00:00:00Z"},
        }
    ]


def test_none_is_left_out_of_mappings_and_false_is_not() -> None:
    assert json.loads(to_json({"a": None, "b": False, "c": 0, "d": "", "e": []})) == {
        "b": False,
        "c": 0,
        "d": "",
        "e": [],
    }


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (object(), "json"),
        ({"a": object()}, "json.a"),
        (b"bytes", "json"),
        ([bytearray()], "json[0]"),
        (datetime(2026, 1, 1), "json"),  # noqa: DTZ001 - without a zone on purpose
        ("\ud800", "json"),
    ],
)
def test_what_json_cannot_hold_is_refused(value: object, place: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=place)):
        to_json(value)


def test_a_moment_without_a_zone_is_named_as_such() -> None:
    for name, path in (("json", "json.expires_at"), ("", "expires_at")):
        with pytest.raises(InvalidArgument, check=has(parameter=path)) as caught:
            to_json({"expires_at": datetime(2026, 1, 1)}, name=name)  # noqa: DTZ001 - that is the point
        assert caught.value.parameter == path
        assert caught.value.rule_ids == ("GEN-12",)


@attrs.frozen
class Component:
    key: str
    metadata: str | None = attrs.field(default=None, metadata=READ_ONLY)


def test_what_the_service_alone_sets_is_not_written() -> None:
    assert json.loads(to_json([Component("k", metadata="m")])) == [{"key": "k"}]
