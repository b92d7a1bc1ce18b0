import json
from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256
from math import nan
from typing import Any
from uuid import UUID

import pytest

from svc_async.ads.custom_audiences import AudienceUser
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import EncodedUsers, MemberEncoder, RowEncoder
from svc_async.users.identifiers import IDENTIFIERS
from tests.support.errors import has


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def users(encoded: EncodedUsers) -> list[dict[str, list[str]]]:
    template = encoded.template
    written = encoded.users.to_text(template).list_users()
    text = template.before + template.between.join(written) + template.after if written else ""
    decoded: list[dict[str, list[str]]] = json.loads(f"[{text}]")
    return decoded


def encode(*members: Any) -> EncodedUsers:
    return MemberEncoder().encode(members)


@pytest.mark.rule("CAU-07", "CAU-07b")
def test_a_user_has_an_array_for_each_identifier() -> None:
    encoded = encode({"email": "A@b.de", "partner_user_id": 'p"1', "phone_number": None, "handle": ""})

    assert users(encoded) == [{"partner_user_id": ['p"1'], "email": [hashed("a@b.de")]}]
    assert encoded.invalid == {}


def test_an_identifier_may_have_several_values_in_any_order() -> None:
    member = {"email": ["a@b.de", "c@d.de", "A@b.de", "", None], "svc_id": {5}, "partner_user_id": ("x,y", '","')}
    (user,) = users(encode(member))

    assert user == {
        "partner_user_id": ['","', "x,y"],
        "svc_id": [hashed("5")],
        "email": [hashed("a@b.de"), hashed("c@d.de")],
    }


def test_a_lone_identifier_may_have_several_values() -> None:
    encoded = encode({"email": ["a@b.de", "c@d.de"]}, {"email": "a@b.de"})

    assert users(encoded) == [{"email": [hashed("a@b.de"), hashed("c@d.de")]}, {"email": [hashed("a@b.de")]}]
    assert len(set(encoded.users.list_keys())) == 1


def test_the_key_is_the_first_identifier_in_the_documented_order() -> None:
    order = ["partner_user_id", "svc_id", "email", "phone_number", "handle", "device_id"]

    assert list(IDENTIFIERS) == order

    values = ["p", "1", "a@b.de", "+12125550101", "h", "9774d56d682e549c"]
    member = dict(zip(order, values, strict=True))
    for name, value in zip(order, values, strict=True):
        alone, together = encode({name: value}), encode(member)
        assert [*alone.users.list_keys()] == [*together.users.list_keys()]
        del member[name]


@pytest.mark.parametrize(
    ("member", "subject"),
    [
        ({}, "must"),
        ({"email": "", "handle": None, "svc_id": []}, "must"),
        ({"email": "nobody"}, "email"),
        ({"email": "a@b.de", "phone_number": "12"}, "phone_number"),
        ({"email": ["a@b.de", "nobody"]}, "email"),
        ({"email": 1.5}, "email"),
        ({"email": b"a@b.de"}, "email"),
        ({"svc_id": bytearray(b"a")}, "svc_id"),
        ({"svc_id": memoryview(b"a")}, "svc_id"),
        ({"svc_id": 12.0}, "svc_id"),
        ({"email": True}, "email"),
        ({"email": {"a": "b"}}, "email"),
        ({"Email": "a@b.de"}, "must"),
        ("a@b.de", "must"),
        (None, "must"),
    ],
)
def test_a_bad_member_fails_by_itself(member: object, subject: str) -> None:
    encoded = encode({"email": "x@y.de"}, member, {"email": "z@y.de"})

    assert list(encoded.invalid) == [1]
    assert encoded.invalid[1].split()[0] == subject
    assert list(encoded.indexes) == [0, 2]
    assert users(encoded) == [{"email": [hashed("x@y.de")]}, {"email": [hashed("z@y.de")]}]


def test_no_rule_repeats_a_value() -> None:
    secret = "very-secret@"
    encoded = encode({"email": secret}, {"handle": secret}, {secret: "x"})

    assert len(encoded.invalid) == 3
    assert not any("secret" in rule for rule in encoded.invalid.values())


def test_records_are_members_too() -> None:
    digest = hashed("x")
    assert users(encode(AudienceUser(email=[digest]))) == [{"email": [digest]}]


def test_whole_numbers_are_encoded_as_their_digits() -> None:
    assert users(encode({"svc_id": 12}, {"svc_id": Decimal(13)})) == [
        {"svc_id": [hashed(each)]} for each in ("12", "13")
    ]


def test_an_id_of_uuid_is_its_text() -> None:
    assert users(encode({"partner_user_id": UUID(int=5)})) == [{"partner_user_id": [str(UUID(int=5))]}]


@pytest.mark.long("imports numpy and pandas")
def test_values_of_numpy_and_pandas_are_what_they_say() -> None:
    import numpy as np  # noqa: PLC0415 - for this only
    import pandas as pd  # noqa: PLC0415 - for this only

    members = [{"email": np.str_("a@b.de"), "svc_id": np.int64(12)}, {"email": pd.NA, "svc_id": [np.uint8(7), pd.NaT]}]
    assert users(encode(*members)) == [
        {"svc_id": [hashed("12")], "email": [hashed("a@b.de")]},
        {"svc_id": [hashed("7")]},
    ]
    assert list(encode({"svc_id": np.array(7.5)}, {"svc_id": np.float64(7)}, {"svc_id": np.True_}).invalid) == [0, 1, 2]


def test_rows_of_a_table_are_encoded_like_mappings() -> None:
    columns = ("handle", "email", "partner_user_id")
    rows: list[tuple[Any, ...]] = [
        ("@a", "a@b.de", None),
        (None, " C@d.de", "p"),
        ("", None, None),
        ("b", ["x@y.de", "z@y.de"], ""),
        ("b", "bad", ""),
    ]
    by_row = RowEncoder(columns).encode(rows)

    by_member = encode(*(dict(zip(columns, row, strict=True)) for row in rows))

    assert by_row.users == by_member.users
    assert by_row.invalid == by_member.invalid
    assert list(by_row.indexes) == [0, 1, 3]


@pytest.mark.parametrize("row", [("a@b.de",), ("a@b.de", None, None), None, 5, "abc"])
def test_a_row_of_another_width_fails_by_itself(row: Any) -> None:
    encoded = RowEncoder(("email", "handle")).encode([("a@b.de", None), row])

    assert list(encoded.invalid) == [1]
    assert len(encoded.users) == 1


@pytest.mark.parametrize(
    ("row", "values"),
    [
        pytest.param(("a@b.de", "h", "c@d.de"), ["a@b.de", "c@d.de"], id="two"),
        pytest.param(("a@b.de", "h", ["c@d.de", None, "a@b.de"]), ["a@b.de", "c@d.de"], id="a list among them"),
        pytest.param(("", "h", "c@d.de"), ["c@d.de"], id="the second only"),
        pytest.param((" ", "h", nan), [], id="none"),
    ],
)
def test_columns_of_one_identifier_are_its_values(row: Sequence[Any], values: Sequence[str]) -> None:
    encoded = RowEncoder(("email", "handle", "email")).encode([("x@y.de", None, None), row])

    assert users(encoded)[1].get("email", []) == list(map(hashed, values))


@pytest.mark.parametrize(("drops", "invalid"), [(False, [1]), (True, [])])
def test_an_invalid_value_of_one_of_several_columns_is_that_of_the_row(*, drops: bool, invalid: list[int]) -> None:
    encoder = RowEncoder(("email", "email"), bad_identifiers="drop" if drops else "fail")
    encoded = encoder.encode([("x@y.de", "z@y.de"), ("bad", "a@b.de")])

    assert list(encoded.invalid) == invalid
    assert encoded.partly_valid == 1


@pytest.mark.parametrize("columns", [(), ("email", "mail")])
def test_columns_are_identifiers(columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="columns")):
        RowEncoder(columns)


def test_one_bad_row_among_many_does_not_disturb_the_others() -> None:
    rows: list[tuple[Any]] = [(f"u{index}@b.de",) for index in range(300)]
    rows[77], rows[78], rows[299] = ("bad",), (None,), (hashed("q"),)

    encoded = RowEncoder(("email",)).encode(rows)

    assert sorted(encoded.invalid) == [77, 78]

    expected = [{"email": [hashed(f"u{index}@b.de")]} for index in range(300) if index not in (77, 78, 299)]

    assert users(encoded) == [*expected, {"email": [hashed("q")]}]


@pytest.mark.parametrize(
    "columns", [(name,) for name in IDENTIFIERS] + [("partner_user_id", "email"), ("email", "handle")]
)
def test_a_slice_may_have_no_valid_row(columns: tuple[str, ...]) -> None:
    rows = [(None,) * len(columns), ("",) * len(columns)]
    encoded = RowEncoder(columns).encode(rows)

    assert users(encoded) == []
    assert encoded.invalid.keys() == {0, 1}


def test_no_rows_are_no_users() -> None:
    encoded = MemberEncoder().for_rows(("email", "phone_number")).encode([])

    assert (len(encoded.users), encoded.invalid) == (0, {})
