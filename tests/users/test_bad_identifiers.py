"""Rows with an invalid identifier, and members with unknown keys."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from svc_async import BatchError, Columns, InvalidArgument, Rows
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Sandbox
from svc_async.users.encoding import RowEncoder
from svc_async.users.user_columns import MAX_VALUES
from tests.support.errors import has
from tests.support.user_operations import hash_value

COLUMNS = ("email", "phone_number")
ROWS = [
    ("a@b.de", "+4930123456"),
    ("n/a", "+4930123457"),
    ("nobody", "none"),
    (["c@d.de", "no"], None),
    ("d@d.de", "4.42079E+11"),
]


def read_list(sandbox: Sandbox) -> set[str]:
    users = sandbox.audience(sandbox.audience_id).users
    return {value for user in users for values in user.values() for value in values}


async def test_a_row_with_an_invalid_identifier_fails_and_is_counted(
    sandbox: Sandbox, audience: CustomAudienceHandle
) -> None:
    report = await audience.users.upload(Rows(COLUMNS, ROWS))

    assert (report.accepted, report.failed, report.partly_valid) == (1, 4, 3)
    assert [(each.position, each.attribute, each.code) for each in report.failures] == [
        (1, "email", "INVALID_ROW"),
        (2, "email", "INVALID_ROW"),
        (3, "email", "INVALID_ROW"),
        (4, "phone_number", "INVALID_ROW"),
    ]
    assert "spreadsheet" in report.failures[3].reason  # it has rounded the number
    assert read_list(sandbox) == {hash_value("a@b.de"), hash_value("+4930123456")}


@pytest.mark.parametrize("is_journaled", [False, True])
async def test_a_row_is_sent_without_its_invalid_identifiers_on_request(
    sandbox: Sandbox, audience: CustomAudienceHandle, tmp_path: Path, is_journaled: bool
) -> None:
    journal = tmp_path / "upload.journal" if is_journaled else None
    rows = Rows(COLUMNS, iter(ROWS) if is_journaled else ROWS)
    report = await audience.users.upload(rows, bad_identifiers="drop", journal=journal)

    assert (report.accepted, report.failed, report.partly_valid) == (4, 1, 3)
    assert [each.position for each in report.failures] == [2]
    kept = {"a@b.de", "+4930123456", "+4930123457", "c@d.de", "d@d.de"}
    assert read_list(sandbox) == set(map(hash_value, kept))


async def test_a_sync_knows_only_the_identifiers_that_are_sent(
    sandbox: Sandbox, audience: CustomAudienceHandle, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    rows: list[dict[str, object]] = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    await audience.users.sync(rows, state=state, bad_identifiers="drop")
    assert len(sandbox.audience(sandbox.audience_id).users) == 4
    await audience.users.sync(rows[:1], state=state, bad_identifiers="drop", max_removal_share=1)
    assert read_list(sandbox) == {hash_value("a@b.de"), hash_value("+4930123456")}


@pytest.mark.parametrize("choice", ["keep", "", None])
async def test_there_are_two_choices(audience: CustomAudienceHandle, choice: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="bad_identifiers")):
        await audience.users.upload([], bad_identifiers=choice)


@pytest.mark.parametrize("bad_identifiers", ["fail", "drop"])
def test_valid_rows_are_encoded_alike(bad_identifiers: Literal["fail", "drop"]) -> None:
    rows = [(f"u{number}@b.de", "") for number in range(20)]
    encoded = RowEncoder(COLUMNS, bad_identifiers=bad_identifiers).encode(rows)
    assert len(encoded.users) == 20
    assert encoded.partly_valid == 0


MEMBERS = [{"mail": "a@b.de"}] * 3


async def yield_members() -> AsyncIterator[dict[str, str]]:
    for member in MEMBERS:
        yield member


async def test_an_unknown_key_of_the_first_member_is_refused_with_the_nearest_name(
    sandbox: Sandbox, audience: CustomAudienceHandle, tmp_path: Path
) -> None:
    users = audience.users
    for call in (users.upload(MEMBERS), users.sync(MEMBERS, state=tmp_path / "state")):
        with pytest.raises(InvalidArgument, check=has(parameter="members[0]")) as refused:
            await call
        assert "write 'email' for 'mail'" in refused.value.rule
    operation = {"operation_type": "Update", "params": {"users": MEMBERS}}
    for parameter, call in [
        ("members[0]", users.upload(iter(MEMBERS))),
        ("members[0]", users.upload(yield_members())),
        ("operations[0].params.users[0]", users.apply([operation])),
    ]:
        with pytest.raises(BatchError) as caught:
            await call
        assert isinstance(caught.value.__cause__, InvalidArgument)
        assert (caught.value.__cause__.parameter, caught.value.report.accepted) == (parameter, 0)
    assert read_list(sandbox) == set()


@pytest.mark.parametrize("table", [Rows(["mail"], [("a@b.de",)]), Columns(["mail"], [(["a@b.de"],)])])
async def test_an_unknown_column_is_refused_with_the_nearest_name(
    audience: CustomAudienceHandle, table: Rows | Columns
) -> None:
    with pytest.raises(InvalidArgument, match="write 'email' for 'mail'"):
        await audience.users.upload(table)


async def test_nan_is_a_missing_value(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    """Dicts that pandas makes of a frame have it."""
    nan = float("nan")
    members: list[Any] = [{"email": "a@b.de", "phone_number": nan}, {"email": nan, "phone_number": nan}]
    report = await audience.users.upload(members)
    assert [(each.position, each.code) for each in report.failures] == [(1, "INVALID_ROW")]
    assert read_list(sandbox) == {hash_value("a@b.de")}


@pytest.mark.parametrize("columns", ["email", "mail"])
async def test_one_column_is_a_sequence_too(audience: CustomAudienceHandle, columns: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="columns")):
        await audience.users.upload(Rows(columns, [("a@b.de",)]))


@pytest.mark.parametrize("columns", [["email"], ["email", "phone_number"]])
async def test_mappings_are_not_taken_for_rows(audience: CustomAudienceHandle, columns: list[str]) -> None:
    rows: list[Any] = [dict.fromkeys(columns, "a@b.de"), dict.fromkeys(columns, "b@b.de")]
    report = await audience.users.upload(Rows(columns, rows))
    assert [(each.position, each.code) for each in report.failures] == [(0, "INVALID_ROW"), (1, "INVALID_ROW")]


async def test_an_unknown_key_of_a_later_member_fails_that_row(
    sandbox: Sandbox, audience: CustomAudienceHandle
) -> None:
    members: list[dict[str, str]] = [{"email": "a@b.de"}, {"handle": "b"}, {"Phone": "+4930123456"}, {"Ann Lee": "x"}]
    report = await audience.users.upload(members)

    assert [each.position for each in report.failures] == [2, 3]
    assert report.failures[0].reason.endswith("; write 'phone_number' for 'Phone'")
    assert "Ann" not in report.failures[1].reason
    assert read_list(sandbox) == {hash_value("a@b.de"), hash_value("b")}


@pytest.mark.parametrize(
    "value",
    [
        json.loads("[" * 900 + "]" * 900),
        ["a@b.de"] * (MAX_VALUES + 1),
        10**5_000,
        ["a@b.de", 10**5_000],
    ],
    ids=["nested", "many", "long number", "long number in a list"],
)
def test_a_value_that_is_no_text_fails_its_row(value: object) -> None:
    encoded = RowEncoder(("email",)).encode([("a@b.de",), (value,)])
    assert {index: rule.split()[0] for index, rule in encoded.invalid.items()} == {1: "email"}
