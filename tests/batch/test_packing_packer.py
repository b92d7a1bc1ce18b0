from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.packing.batch import Batch, Limits
from svc_async.batch.packing.packer import Packer, count_lanes
from svc_async.engine.memory import MEMORY
from tests.support.packing import NOW, Operation, encode_user, feed, pack_rows, read_body, read_numbers


@pytest.mark.rule("CAU-01b")
@pytest.mark.parametrize("per_operation", [1, 2, 25])
def test_full_batches_hold_exactly_what_is_allowed(per_operation: int) -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=per_operation))
    rows = 35 * per_operation
    batches = feed(packer, [encode_user(number) for number in range(rows)])
    batches += packer.flush(NOW)

    assert [batch.operations for batch in batches] == [10, 10, 10, 5]
    assert read_numbers(batches) == list(range(rows))
    assert [position for batch in batches for position in batch.positions] == list(range(rows))


@pytest.mark.rule("CAU-02", "LIM-06")
@pytest.mark.usefixtures("examples")
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
        some = [encode_user(first + place, length) for place, length in enumerate(lengths[first : first + slices])]
        batches += packer.feed(pack_rows(some, keys=range(first, first + len(some)), first=first), NOW)
    batches += packer.flush(NOW)

    assert all(batch.fits(limits) and batch.size <= size for batch in batches)
    assert sorted(read_numbers(batches) + packer.too_large) == list(range(len(lengths)))

    alone = 2 + Operation().overhead

    assert packer.too_large == [at for at, length in enumerate(lengths) if alone + len(encode_user(at, length)) > size]


def test_a_body_may_be_as_large_as_allowed_to_the_byte() -> None:
    users = [encode_user(number) for number in range(9)]  # ten bytes each with a comma, in a frame of thirty
    for size in range(40, 120):
        packer = Packer(Limits(operations=9, size=size, per_operation=9))
        batches = [*feed(packer, users), *packer.flush(NOW)]
        assert max(batch.size for batch in batches) == size // 10 * 10


def test_a_slice_may_fill_any_number_of_batches() -> None:
    packer = Packer(Limits(operations=1, size=10**6, per_operation=1))

    assert read_numbers(feed(packer, [encode_user(number) for number in range(300)])) == [*range(299)]


def test_equal_rows_of_a_batch_are_sent_once() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))

    assert feed(packer, [encode_user(1), encode_user(2), encode_user(1), encode_user(1)], [1, 2, 1, 1]) == []

    (batch,) = packer.flush(NOW)

    assert sorted(read_numbers([batch])) == [1, 2]
    assert packer.coalesced == 2
    assert sorted(batch.positions) == [1, 3]


def test_another_row_of_the_same_key_goes_into_the_next_batch() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    feed(packer, [encode_user(1), encode_user(2), encode_user(3), encode_user(4), encode_user(3)], [7, 8, 7, 9, 7])

    first, second = packer.flush(NOW)

    assert read_numbers([first]) == [1, 2, 4]
    assert read_numbers([second]) == [3]
    assert packer.coalesced == 1


def test_a_row_that_has_no_room_even_without_the_repeats_goes_into_the_next_batch() -> None:
    packer = Packer(Limits(operations=10, size=130, per_operation=10))
    large = [encode_user(number, 60) for number in (2, 3)]
    assert feed(packer, [encode_user(1), encode_user(1), large[0]], [1, 1, 2]) == []

    (first,) = feed(packer, [large[1]], [3], first=3)
    (second,) = packer.flush(NOW)

    assert (read_numbers([first]), read_numbers([second]), packer.too_large) == ([1, 2], [3], [])


def test_of_two_operations_on_equal_users_the_last_wins() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    feed(packer, [encode_user(1), encode_user(2)], [1, 2], operation=Operation("U"))
    feed(packer, [encode_user(1)], [1], operation=Operation("D"), first=2)

    (batch,) = packer.flush(NOW)

    assert sorted((operation["t"], operation["u"][0]["n"]) for operation in read_body(batch)) == [
        ("D", "1"),
        ("U", "2"),
    ]
    assert packer.coalesced == 1


def test_many_equal_rows_fit_into_one_request() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=1))
    batches = [batch for _ in range(50) for batch in feed(packer, [encode_user(number) for number in range(8)])]
    batches += packer.flush(NOW)

    assert len(batches) == 1
    assert packer.coalesced == 49 * 8


@pytest.mark.usefixtures("examples")
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.sampled_from("UD")), max_size=60))
def test_the_last_row_of_every_key_is_sent_last(rows: list[tuple[int, int, str]]) -> None:
    packer = Packer(Limits(operations=4, size=10**6, per_operation=2))
    batches: list[Batch] = []
    for position, (key, variant, kind) in enumerate(rows):
        batches += feed(packer, [encode_user(10 * key + variant)], [key], operation=Operation(kind), first=position)
    batches += packer.flush(NOW)
    last_sent: dict[int, tuple[int, str]] = {}
    for batch in batches:
        keys = [int(each["n"]) // 10 for operation in read_body(batch) for each in operation["u"]]
        assert len(keys) == len(set(keys))
        for operation in read_body(batch):
            last_sent |= {int(each["n"]) // 10: (int(each["n"]) % 10, operation["t"]) for each in operation["u"]}

    assert last_sent == {key: (variant, kind) for key, variant, kind in rows}
    assert sum(batch.rows for batch in batches) + packer.coalesced == len(rows)


@pytest.mark.usefixtures("examples")
@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), max_size=60),
    slices=st.integers(1, 20),
    operations=st.integers(1, 9),
)
def test_each_row_is_sent_or_replaced_in_the_order_of_its_key(
    rows: list[tuple[int, int]], slices: int, operations: int
) -> None:
    packer = Packer(Limits(operations=operations, size=10**6, per_operation=2))
    numbers = [10 * key + variant for key, variant in rows]
    batches: list[Batch] = []
    for first in range(0, len(rows), slices):
        some = numbers[first : first + slices]
        batches += feed(packer, [*map(encode_user, some)], [number // 10 for number in some], first=first)
    batches += packer.flush(NOW)
    sent = [position for batch in batches for position in batch.positions]

    assert read_numbers(batches) == [numbers[position] for position in sent]
    assert sorted(sent + [each for batch in batches for each in batch.superseded]) == list(range(len(rows)))
    for key in range(7):
        of_key = [position for position in sent if rows[position][0] == key]
        assert of_key == sorted(of_key)


@pytest.mark.parametrize("variants", [1, 2])
def test_repeated_rows_are_taken_from_each_slice_at_once(variants: int) -> None:
    packer = Packer(Limits(operations=2_000, size=10**6))
    numbers = Random(5)
    for index in range(10):
        some = numbers.sample(range(1, 200), 99)
        users = [encode_user(0, 1 + index % variants), *map(encode_user, some)]
        feed(packer, users, [0, *some], first=100 * index)
    batches = packer.flush(NOW)

    assert len(batches) == (1 if variants == 1 else 10)
    assert len(batches[0].positions.runs) <= 2 * 10


def test_a_packer_fills_its_batches_with_the_rows_of_another() -> None:
    limits = Limits(operations=4, size=10**6, per_operation=2)
    first, second, third = Packer(limits), Packer(limits), Packer(limits)
    feed(first, [encode_user(1), encode_user(2), encode_user(3)], [1, 2, 3])
    feed(second, [encode_user(4), encode_user(5), encode_user(6)], [4, 5, 6], first=3)
    feed(third, [encode_user(number) for number in range(7, 12)], range(7, 12), first=6)

    assert first.take_over(second, NOW) == []
    assert (first.rows, second.rows) == (6, 0)
    full = first.take_over(third, NOW)

    assert (first.rows, third.rows) == (3, 0)
    assert read_numbers(full) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert read_numbers(first.flush(NOW)) == [9, 10, 11]


def test_rows_that_were_replaced_are_not_settled_after_those_that_replaced_them() -> None:
    limits = Limits(operations=2, size=10**6)
    first, second = Packer(limits), Packer(limits, reopen_below=1)
    feed(first, [encode_user(9)], [9], first=9)
    feed(second, [encode_user(1)] * 2, [1, 1])
    feed(second, [encode_user(2)], [2], first=2)

    batches = first.take_over(second, NOW) + first.flush(NOW)

    assert [sorted(batch.superseded) for batch in batches] == [[0], []]


@pytest.mark.parametrize(
    ("limits", "fullness"),
    [
        (Limits(operations=4, size=10**6, per_operation=2), 2 / 4),
        (Limits(operations=400, size=100, per_operation=2), 0.89),
    ],
)
def test_fullness_is_the_share_of_operations_or_of_bytes(limits: Limits, fullness: float) -> None:
    packer = Packer(limits)
    assert packer.fullness == 0

    feed(packer, [encode_user(1), encode_user(2), encode_user(3)], [1, 2, 3])

    assert packer.fullness == pytest.approx(fullness, abs=0.01)


def test_absorbed_rows_keep_the_order_of_their_operations() -> None:
    limits = Limits(operations=9, size=10**6, per_operation=2)
    first, second = Packer(limits), Packer(limits)
    feed(first, [encode_user(1)], [1])
    for position, kind in enumerate("UDU", start=1):
        feed(second, [encode_user(2)], [2], operation=Operation(kind), first=position)

    first.take_over(second, NOW)

    (batch,) = first.flush(NOW)

    assert sorted(batch.positions) == [0, 3]
    assert {operation["t"] for operation in read_body(batch)} == {"U"}


# --- how many lanes a job has

PACE = 1_500 / 60 * 0.97


def lanes(*, users: int = 25, concurrency: int = 32, memory: int = MEMORY, pace: float | None = PACE) -> int:
    limits = Limits(operations=2_500, per_operation=users)
    return count_lanes(limits, concurrency, memory=memory, pace=pace)


def test_the_pace_of_the_service_needs_twelve_lanes_at_the_defaults() -> None:
    assert lanes() == 12


def test_small_requests_have_as_many_lanes_as_are_allowed() -> None:
    assert lanes(users=1) == 32


@pytest.mark.parametrize("users", [1, 25])
@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_there_are_never_more_lanes_than_requests_are_allowed(users: int, concurrency: int) -> None:
    assert lanes(users=users, concurrency=concurrency) == concurrency


def test_a_slower_pace_needs_no_fewer_lanes_than_full_requests_fit_into_half_of_the_memory() -> None:
    assert lanes(pace=1.0) == lanes(pace=None) == 11
    assert lanes(pace=1.0, memory=2 * MEMORY) == 23


def test_a_faster_pace_has_more_lanes_while_their_open_batches_fit_into_the_memory() -> None:
    assert lanes(pace=2 * 24.25) == 22


def test_a_pace_for_which_the_memory_is_too_small_leaves_requests_full() -> None:
    assert lanes(pace=1e6) == 11
    assert lanes(pace=1e6, memory=MEMORY // 2) == 5


def test_a_small_memory_leaves_a_few_lanes_to_go_on_while_one_waits() -> None:
    assert lanes(memory=1) == 4
