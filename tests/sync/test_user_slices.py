"""What is read from a spill is what the selected rows give when they are encoded by themselves."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.sync.snapshot import SliceSpill
from svc_async.sync.user_slices import pack_users, unpack_users
from svc_async.users.encoding import EncodedUsers, MemberEncoder, RowEncoder

emails = st.sampled_from(["a@b.de", "c@d.de", "nobody", "", None]) | st.lists(st.just("e@f.de"), max_size=2)
handles = st.sampled_from(["a", "@b", "two words", None])
partner_ids = st.sampled_from(["p", "q\n", None])
rows = st.tuples(emails, handles) | st.just(("a@b.de",))


def describe(encoded: EncodedUsers) -> tuple[Any, ...]:
    users = encoded.users.to_text(encoded.template)
    between = encoded.template.between
    return (
        encoded.template.before + between.join(users.list_users()) + encoded.template.after,
        list(encoded.users.list_keys()),
        list(encoded.indexes),
        dict(encoded.invalid),
        dict(encoded.attributes),
        encoded.partly_valid,
        encoded.rows,
    )


@pytest.mark.parametrize("bad_identifiers", ["fail", "drop"])
@pytest.mark.usefixtures("examples")
@given(slices=st.lists(st.lists(rows, min_size=1, max_size=12), max_size=4), chosen=st.sets(st.integers(0, 47)))
def test_selected_rows_are_as_if_they_were_encoded_alone(
    bad_identifiers: Any, slices: list[list[Any]], chosen: set[int]
) -> None:
    encoder = RowEncoder(("email", "handle"), bad_identifiers=bad_identifiers)
    check(encoder, slices, chosen)


@pytest.mark.usefixtures("examples")
@given(
    slices=st.lists(
        st.lists(st.fixed_dictionaries({}, optional={"email": emails, "partner_user_id": partner_ids}), min_size=1),
        max_size=4,
    ),
    chosen=st.sets(st.integers(0, 47)),
)
def test_selected_members_are_sent_as_if_they_were_encoded_alone(slices: list[list[Any]], chosen: set[int]) -> None:
    encoder = MemberEncoder()
    with open_spill() as spill:
        for part in slices:
            spill.add(pack_users(encoder.hash(part)))
        found = [each for encoded in unpack_users(spill.read(select(chosen))) for each in write(encoded)]
    members = [member for part in slices for member in part]
    expected = [list(write(encoder.encode([members[index]]))) for index in sorted(chosen) if index < len(members)]
    assert found == [user for users in expected for user in users]


def test_users_whose_slice_has_no_selected_row_are_not_read() -> None:
    encoder = RowEncoder(("email",))
    with open_spill() as spill:
        for number in range(3):
            spill.add(pack_users(encoder.hash([(f"u{number}@b.de",)])))
        (encoded,) = unpack_users(spill.read(select({1})))
    assert describe(encoded) == describe(encoder.encode([("u1@b.de",)]))


def check(encoder: RowEncoder, slices: list[list[Any]], chosen: set[int]) -> None:
    with open_spill() as spill:
        for part in slices:
            spill.add(pack_users(encoder.hash(part)))
        found = list(map(describe, unpack_users(spill.read(select(chosen)))))
    expected, first = list[Any](), 0
    for part in slices:
        selected = [row for index, row in enumerate(part, first) if index in chosen]
        expected += [describe(encoder.encode(selected))] if selected else []
        first += len(part)
    assert found == expected


def open_spill() -> SliceSpill:
    return SliceSpill(Path(tempfile.gettempdir()))


def select(chosen: set[int]) -> Any:
    return lambda rows: [row - rows.start for row in rows if row in chosen]


def write(encoded: EncodedUsers) -> Iterator[str]:
    template = encoded.template
    for user in encoded.users.to_text(template).list_users():
        yield template.before + user + template.after
