import json
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.packing.packer import Batch, Frame, Limits, Load, Packer, Parcel, Spreader
from svc_async.users.template import PLAIN, Form

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
SHORT = Form('{"e":["', '"]},{"e":["', '"]}')


@attrs.frozen
class Kind:
    name: str = "U"

    @property
    def overhead(self) -> int:
        frame = self.frame(NOW)
        return len(frame.head) + len(frame.tail)

    def frame(self, now: datetime) -> Frame:
        return Frame(f'{{"t":"{self.name}","u":[', f'],"at":"{now:%H:%M}"}}')

    def plain(self) -> str:
        return self.name


def parcel(
    users: Sequence[str], *, keys: Sequence[int], first: int = 0, kind: Kind | None = None, form: Form = PLAIN
) -> Parcel:
    positions = array("q", range(first, first + len(users)))
    return Parcel(kind or Kind(), form, array("Q", keys), ["\n".join(users)], positions)


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
    return packer.add(parcel(users, keys=keys or range(len(users)), **given), NOW)


@pytest.mark.rule("CAU-01b")
@pytest.mark.parametrize("per_operation", [1, 2, 25])
def test_full_batches_hold_exactly_what_is_allowed(per_operation: int) -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=per_operation))
    rows = 35 * per_operation
    batches = fill(packer, [user(number) for number in range(rows)])
    batches += packer.seal(NOW)
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
    parcels=st.integers(1, 30),
)
def test_a_body_is_never_larger_than_allowed_and_no_row_is_lost(
    lengths: list[int], per_operation: int, size: int, operations: int, parcels: int
) -> None:
    limits = Limits(operations=operations, size=size, per_operation=per_operation)
    packer = Packer(limits)
    batches: list[Batch] = []
    for first in range(0, len(lengths), parcels):
        some = [user(first + place, length) for place, length in enumerate(lengths[first : first + parcels])]
        batches += packer.add(parcel(some, keys=range(first, first + len(some)), first=first), NOW)
    batches += packer.seal(NOW)
    assert all(batch.fits(limits) for batch in batches)
    assert sorted(numbers(batches) + packer.too_large) == list(range(len(lengths)))
    alone = 2 + Kind().overhead
    assert packer.too_large == [at for at, length in enumerate(lengths) if alone + len(user(at, length)) > size]


def test_users_of_one_form_are_written_like_plain_ones() -> None:
    limits = Limits(operations=2, size=10**6, per_operation=3)
    short, plain = Packer(limits), Packer(limits)
    tokens = [f"{number:03}" for number in range(6)]
    fill(short, tokens, form=SHORT)
    fill(plain, [f'{{"e":["{token}"]}}' for token in tokens])
    (one,), (other,) = short.seal(NOW), plain.seal(NOW)
    assert b"".join(one.body().blocks) == b"".join(other.body().blocks)
    assert read(one.halved()[0]) == read(other.halved()[0])
    assert [read(batch) for batch in one.singles(limits)] == [read(batch) for batch in other.singles(limits)]


def test_equal_rows_of_a_batch_are_sent_once() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    assert fill(packer, [user(1), user(2), user(1), user(1)], [1, 2, 1, 1]) == []
    (batch,) = packer.seal(NOW)
    assert sorted(numbers([batch])) == [1, 2]
    assert packer.coalesced == 2
    assert sorted(batch.positions) == [1, 3]


def test_another_row_of_the_same_key_goes_into_the_next_batch() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    fill(packer, [user(1), user(2), user(3), user(4), user(3)], [7, 8, 7, 9, 7])
    first, second = packer.seal(NOW)
    assert numbers([first]) == [1, 2, 4]
    assert numbers([second]) == [3]
    assert packer.coalesced == 1


def test_of_two_operations_on_equal_users_the_last_wins() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    fill(packer, [user(1), user(2)], [1, 2], kind=Kind("U"))
    fill(packer, [user(1)], [1], kind=Kind("D"), first=2)
    (batch,) = packer.seal(NOW)
    assert sorted((operation["t"], operation["u"][0]["n"]) for operation in read(batch)) == [("D", "1"), ("U", "2")]
    assert packer.coalesced == 1


def test_many_equal_rows_fit_into_one_request() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=1))
    batches = [batch for _ in range(50) for batch in fill(packer, [user(number) for number in range(8)])]
    batches += packer.seal(NOW)
    assert len(batches) == 1
    assert packer.coalesced == 49 * 8


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.sampled_from("UD")), max_size=60))
def test_the_last_row_of_every_key_has_the_last_word(rows: list[tuple[int, int, str]]) -> None:
    packer = Packer(Limits(operations=4, size=10**6, per_operation=2))
    batches: list[Batch] = []
    for position, (key, variant, kind) in enumerate(rows):
        batches += fill(packer, [user(10 * key + variant)], [key], kind=Kind(kind), first=position)
    batches += packer.seal(NOW)
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
    fill(packer, [user(number) for number in range(5)], kind=Kind("U"))
    fill(packer, [user(number) for number in range(5, 8)], range(5, 8), kind=Kind("D"), first=5)
    (batch,) = packer.seal(NOW)
    named, others = batch.parted([0, 2, 3])
    assert numbers([named]) == list(named.positions) == [0, 1, 4, 5, 6]
    assert numbers([others]) == list(others.positions) == [2, 3, 7]
    assert batch.rows_of(2) == array("q", [4])
    assert json.loads(batch.users_of(3)) == [{"n": "5"}, {"n": "6"}]


def test_halving_ends_at_single_rows() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=3))
    fill(packer, [user(number) for number in range(7)])
    pieces = packer.seal(NOW)
    while any(piece.rows > 1 for piece in pieces):
        pieces = [half for piece in pieces for half in (piece.halved() if piece.rows > 1 else [piece])]
    assert numbers(pieces) == list(range(7))


def test_singles_respect_the_limits() -> None:
    limits = Limits(operations=4, size=10**6, per_operation=5)
    packer = Packer(limits)
    fill(packer, [user(number) for number in range(20)])
    (batch,) = packer.seal(NOW)
    singles = batch.singles(limits)
    assert all(single.fits(limits) and single.rows == single.operations for single in singles)
    assert numbers(singles) == list(range(20))


def test_large_bodies_come_in_blocks() -> None:
    packer = Packer(Limits(operations=2500, size=5_000_000, per_operation=25))
    fill(packer, [user(number, 60) for number in range(20_000)])
    (batch,) = packer.seal(NOW)
    sizes = [len(block) for block in batch.body().blocks]
    assert len(sizes) > 10
    assert max(sizes) < 80_000
    assert len(read(batch)) == 800


def test_rows_of_one_key_meet_in_one_packer() -> None:
    packers = [Packer(Limits(operations=100, size=10**6, per_operation=5)) for _ in range(7)]
    spreader = Spreader(packers)
    keys = [(number * 37) % 50 for number in range(500)]
    for first in range(0, 500, 100):
        part = keys[first : first + 100]
        spreader.add(Load(Kind(), PLAIN, part, [user(key) for key in part], range(first, first + 100)))
    assert spreader.rows == 500
    for _, batches in spreader.spread(NOW):
        assert batches == []
        assert spreader.rows + sum(packer.rows + packer.coalesced for packer in packers) == 500
    assert spreader.rows == 0
    sent = [numbers(packer.seal(NOW)) for packer in packers]
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
    assert numbers(first.seal(NOW)) == [1, 2, 3, 4, 5, 6]


def test_an_absorbed_draft_keeps_the_order_of_its_operations() -> None:
    limits = Limits(operations=9, size=10**6, per_operation=2)
    first, second = Packer(limits), Packer(limits)
    fill(first, [user(1)], [1])
    for position, kind in enumerate("UDU", start=1):
        fill(second, [user(2)], [2], kind=Kind(kind), first=position)
    assert first.absorb(second)
    (batch,) = first.seal(NOW)
    assert sorted(batch.positions) == [0, 3]
    assert {operation["t"] for operation in read(batch)} == {"U"}
