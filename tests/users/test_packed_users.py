"""Users are the same whether they are stored as digests or as text."""

import tracemalloc
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.users.packed import HashedUsers, Joints, PackedUsers, RowTemplate, TextUsers, merge_users

ONE = RowTemplate('{"a":["', '"]},{"a":["', '"]}')
SEVERAL = RowTemplate("{", "},{", "}", ('"a":["', '"bb":["', '"ccc":["'), '"]')


def build(template: RowTemplate, kinds: Sequence[int]) -> tuple[HashedUsers, TextUsers]:
    """Return users of which each has the identifiers that the bits of a number say, in both stores."""
    dice = Random(7)
    digests = [[dice.randbytes(32) for _ in template.openings] for _ in kinds]
    chosen = [[bit for bit in range(len(template.openings)) if kind >> bit & 1] for kind in kinds]
    records = [b"".join(row[bit] for bit in bits) for row, bits in zip(digests, chosen, strict=True)]
    texts = [
        ",".join(f"{template.openings[bit]}{row[bit].hex()}{template.closing}" for bit in bits)
        for row, bits in zip(digests, chosen, strict=True)
    ]
    keys = [memoryview(record).cast("Q")[0] for record in records]
    return HashedUsers(b"".join(records), bytes(kinds) if len(template.openings) > 1 else b""), TextUsers.pack(
        keys, texts
    )


samples = st.one_of(
    st.tuples(st.just(ONE), st.lists(st.just(1), max_size=40)),
    st.tuples(st.just(SEVERAL), st.lists(st.integers(1, 7), max_size=40)),
    st.tuples(st.just(SEVERAL), st.lists(st.just(5), max_size=40)),
)


def list_users(users: PackedUsers, template: RowTemplate) -> Sequence[tuple[int, str]]:
    assert len(users) == len(users.list_keys()) == len(users.list_first_bytes())
    return [*zip(users.list_keys(), users.to_text(template).list_users(), strict=True)]


@pytest.mark.usefixtures("examples")
@given(sample=samples, per_operation=st.integers(1, 9), index=st.integers(0, 40), size=st.integers(1, 50))
def test_both_stores_agree(
    sample: tuple[RowTemplate, Sequence[int]], per_operation: int, index: int, size: int
) -> None:
    template, kinds = sample
    hashed, text = build(template, kinds)

    assert list_users(hashed, template) == list_users(text, template)
    assert hashed.list_first_bytes() == text.list_first_bytes()
    assert hashed.measure(template) == text.measure(template)
    assert hashed.measure_longest(template) == text.measure_longest(template)
    if kinds:
        ways = template, Joints("><", per_operation, ">--<"), size * per_operation
        assert [*hashed.write(*ways)] == [*text.write(*ways)]
        assert hashed.held < text.held
    for one, other in zip(hashed.split(index), text.split(index), strict=True):
        assert list_users(one, template) == list_users(other, template)


@pytest.mark.usefixtures("examples")
@given(sample=samples, dice=st.randoms(use_true_random=False))
def test_both_stores_distribute_alike(sample: tuple[RowTemplate, Sequence[int]], dice: Random) -> None:
    template, kinds = sample
    hashed, text = build(template, kinds)
    indexes = dice.sample(range(len(kinds)), len(kinds))
    groups = [indexes[:1], indexes[1:5], indexes[5:], []]
    for some, others in zip(hashed.distribute(groups), text.distribute(groups), strict=True):
        assert list_users(some, template) == list_users(others, template)


@pytest.mark.parametrize("template", [ONE, SEVERAL])
def test_users_of_both_stores_are_merged_as_text(template: RowTemplate) -> None:
    hashed, text = build(template, [1] * 5)
    first, second = hashed.split(3)
    same = merge_users([first, HashedUsers(b""), second], template)
    mixed = merge_users([first, TextUsers(b"", ""), text.split(3)[1]], template)

    assert same == hashed
    assert mixed == text


@pytest.mark.long("memory shows in many users")
def test_distributing_users_keeps_no_memory() -> None:
    users = [HashedUsers(bytes(32 * count)) for count in range(2_000, 2_040)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for each in users:
            assert [*each.distribute([range(0, len(each), 2)])]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 400_000, "a format of struct for each length takes over 2.4 MB"
