import json
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationFrame
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.partitioner import Partitioner
from svc_async.batch.packing.rows import EncodedRows, PackedRows
from svc_async.users.template import PLAIN, RowTemplate

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
SHORT = RowTemplate('{"e":["', '"]},{"e":["', '"]}')


@attrs.frozen
class Operation:
    name: str = "U"

    @property
    def overhead(self) -> int:
        frame = self.build_frame(NOW)
        return len(frame.head) + len(frame.tail)

    def build_frame(self, now: datetime) -> OperationFrame:
        return OperationFrame(f'{{"t":"{self.name}","u":[', f'],"at":"{now:%H:%M}"}}')

    def to_plain(self) -> str:
        return self.name


def packed(
    users: Sequence[str],
    *,
    keys: Sequence[int],
    first: int = 0,
    operation: Operation | None = None,
    template: RowTemplate = PLAIN,
) -> PackedRows:
    positions = array("q", range(first, first + len(users)))
    return PackedRows(operation or Operation(), template, array("Q", keys), ["\n".join(users)], positions)


def user(number: int, length: int = 1) -> str:
    return json.dumps({"n": f"{number:0{length}}"}, separators=(",", ":"))


def read(batch: Batch) -> list[dict[str, Any]]:
    body = batch.body()
    joined = b"".join(body.blocks)
    assert len(joined) == body.size == batch.size
    operations: list[dict[str, Any]] = json.loads(joined)
    assert len(operations) == batch.operations
    assert sum(len(operation["u"]) for operation in operations) == batch.rows
    return operations


def numbers(batches: Sequence[Batch]) -> list[int]:
    return [int(each["n"]) for batch in batches for operation in read(batch) for each in operation["u"]]


def fill(packer: Packer, users: Sequence[str], keys: Sequence[int] | None = None, **given: Any) -> list[Batch]:
    return packer.feed(packed(users, keys=keys or range(len(users)), **given), NOW)


@pytest.mark.rule("CAU-01b")
@pytest.mark.parametrize("per_operation", [1, 2, 25])
def test_full_batches_hold_exactly_what_is_allowed(per_operation: int) -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=per_operation))
    rows = 35 * per_operation
    batches = fill(packer, [user(number) for number in range(rows)])
    batches += packer.flush(NOW)
    assert [batch.operations for batch in batches] == [10, 10, 10, 5]
    assert numbers(batches) == list(range(rows))
    assert [position for batch in batches for position in batch.positions] == list(range(rows))


@pytest.mark.rule("CAU-02", "LIM-06")
@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 120), min_size=1, max_size=80),
    per_operation=st.integers(1, 7),
    size=st.integers(60, 700),
    operations=st.integers(1, 9),
    slices=st.integers(1, 30),
)
def test_a_body_is_never_larger_than_allowed_and_no_row_is_lost(
    lengths: list[int], per_operation: int, size: int, operations: int, slices: int
) -> None:
    limits = Limits(operations=operations, size=size, per_operation=per_operation)
    packer = Packer(limits)
    batches: list[Batch] = []
    for first in range(0, len(lengths), slices):
        some = [user(first + place, length) for place, length in enumerate(lengths[first : first + slices])]
        batches += packer.feed(packed(some, keys=range(first, first + len(some)), first=first), NOW)
    batches += packer.flush(NOW)
    assert all(batch.fits(limits) for batch in batches)
    assert sorted(numbers(batches) + packer.too_large) == list(range(len(lengths)))
    alone = 2 + Operation().overhead
    assert packer.too_large == [at for at, length in enumerate(lengths) if alone + len(user(at, length)) > size]


def test_users_of_one_form_are_written_like_plain_ones() -> None:
    limits = Limits(operations=2, size=10**6, per_operation=3)
    short, plain = Packer(limits), Packer(limits)
    tokens = [f"{number:03}" for number in range(6)]
    fill(short, tokens, template=SHORT)
    fill(plain, [f'{{"e":["{token}"]}}' for token in tokens])
    (one,), (other,) = short.flush(NOW), plain.flush(NOW)
    assert b"".join(one.body().blocks) == b"".join(other.body().blocks)
    assert read(one.split_in_half()[0]) == read(other.split_in_half()[0])
    assert [read(batch) for batch in one.one_user_each(limits)] == [
        read(batch) for batch in other.one_user_each(limits)
    ]


def test_equal_rows_of_a_batch_are_sent_once() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    assert fill(packer, [user(1), user(2), user(1), user(1)], [1, 2, 1, 1]) == []
    (batch,) = packer.flush(NOW)
    assert sorted(numbers([batch])) == [1, 2]
    assert packer.coalesced == 2
    assert sorted(batch.positions) == [1, 3]


def test_another_row_of_the_same_key_goes_into_the_next_batch() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    fill(packer, [user(1), user(2), user(3), user(4), user(3)], [7, 8, 7, 9, 7])
    first, second = packer.flush(NOW)
    assert numbers([first]) == [1, 2, 4]
    assert numbers([second]) == [3]
    assert packer.coalesced == 1


def test_of_two_operations_on_equal_users_the_last_wins() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    fill(packer, [user(1), user(2)], [1, 2], operation=Operation("U"))
    fill(packer, [user(1)], [1], operation=Operation("D"), first=2)
    (batch,) = packer.flush(NOW)
    assert sorted((operation["t"], operation["u"][0]["n"]) for operation in read(batch)) == [("D", "1"), ("U", "2")]
    assert packer.coalesced == 1


def test_many_equal_rows_fit_into_one_request() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=1))
    batches = [batch for _ in range(50) for batch in fill(packer, [user(number) for number in range(8)])]
    batches += packer.flush(NOW)
    assert len(batches) == 1
    assert packer.coalesced == 49 * 8


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.sampled_from("UD")), max_size=60))
def test_the_last_row_of_every_key_has_the_last_word(rows: list[tuple[int, int, str]]) -> None:
    packer = Packer(Limits(operations=4, size=10**6, per_operation=2))
    batches: list[Batch] = []
    for position, (key, variant, kind) in enumerate(rows):
        batches += fill(packer, [user(10 * key + variant)], [key], operation=Operation(kind), first=position)
    batches += packer.flush(NOW)
    last_sent: dict[int, tuple[int, str]] = {}
    for batch in batches:
        keys = [int(each["n"]) // 10 for operation in read(batch) for each in operation["u"]]
        assert len(keys) == len(set(keys))
        for operation in read(batch):
            last_sent |= {int(each["n"]) // 10: (int(each["n"]) % 10, operation["t"]) for each in operation["u"]}
    assert last_sent == {key: (variant, kind) for key, variant, kind in rows}
    assert sum(batch.rows for batch in batches) + packer.coalesced == len(rows)


def test_named_operations_are_parted_from_the_others() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    fill(packer, [user(number) for number in range(5)], operation=Operation("U"))
    fill(packer, [user(number) for number in range(5, 8)], range(5, 8), operation=Operation("D"), first=5)
    (batch,) = packer.flush(NOW)
    named, others = batch.split([0, 2, 3])
    assert numbers([named]) == list(named.positions) == [0, 1, 4, 5, 6]
    assert numbers([others]) == list(others.positions) == [2, 3, 7]
    assert batch.positions_of(2) == array("q", [4])
    assert json.loads(batch.users_of(3)) == [{"n": "5"}, {"n": "6"}]


def test_halving_ends_at_single_rows() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=3))
    fill(packer, [user(number) for number in range(7)])
    pieces = packer.flush(NOW)
    while any(piece.rows > 1 for piece in pieces):
        pieces = [half for piece in pieces for half in (piece.split_in_half() if piece.rows > 1 else [piece])]
    assert numbers(pieces) == list(range(7))


def test_singles_respect_the_limits() -> None:
    limits = Limits(operations=4, size=10**6, per_operation=5)
    packer = Packer(limits)
    fill(packer, [user(number) for number in range(20)])
    (batch,) = packer.flush(NOW)
    singles = batch.one_user_each(limits)
    assert all(single.fits(limits) and single.rows == single.operations for single in singles)
    assert numbers(singles) == list(range(20))


def test_large_bodies_come_in_blocks() -> None:
    packer = Packer(Limits(operations=2500, size=5_000_000, per_operation=25))
    fill(packer, [user(number, 60) for number in range(20_000)])
    (batch,) = packer.flush(NOW)
    sizes = [len(block) for block in batch.body().blocks]
    assert len(sizes) > 10
    assert max(sizes) < 80_000
    assert len(read(batch)) == 800


def test_rows_of_one_key_meet_in_one_packer() -> None:
    packers = [Packer(Limits(operations=100, size=10**6, per_operation=5)) for _ in range(7)]
    partitioner = Partitioner(packers)
    keys = [(number * 37) % 50 for number in range(500)]
    for first in range(0, 500, 100):
        part = keys[first : first + 100]
        partitioner.add(EncodedRows(Operation(), PLAIN, part, [user(key) for key in part], range(first, first + 100)))
    assert partitioner.rows == 500
    for _, batches in partitioner.flush(NOW):
        assert batches == []
        assert partitioner.rows + sum(packer.rows + packer.coalesced for packer in packers) == 500
    assert partitioner.rows == 0
    sent = [numbers(packer.flush(NOW)) for packer in packers]
    assert sorted(key for lane in sent for key in lane) == list(range(50))
    assert sum(packer.coalesced for packer in packers) == 450


def test_a_draft_absorbs_another_only_as_a_whole() -> None:
    limits = Limits(operations=4, size=10**6, per_operation=2)
    first, second, third = Packer(limits), Packer(limits), Packer(limits)
    fill(first, [user(1), user(2), user(3)], [1, 2, 3])
    fill(second, [user(4), user(5), user(6)], [4, 5, 6], first=3)
    fill(third, [user(number) for number in range(7, 12)], range(7, 12), first=6)
    assert first.absorb(second)
    assert (first.rows, second.rows) == (6, 0)
    assert not first.absorb(third)
    assert (first.rows, third.rows) == (6, 5)
    assert numbers(first.flush(NOW)) == [1, 2, 3, 4, 5, 6]


def test_an_absorbed_draft_keeps_the_order_of_its_operations() -> None:
    limits = Limits(operations=9, size=10**6, per_operation=2)
    first, second = Packer(limits), Packer(limits)
    fill(first, [user(1)], [1])
    for position, kind in enumerate("UDU", start=1):
        fill(second, [user(2)], [2], operation=Operation(kind), first=position)
    assert first.absorb(second)
    (batch,) = first.flush(NOW)
    assert sorted(batch.positions) == [0, 3]
    assert {operation["t"] for operation in read(batch)} == {"U"}
