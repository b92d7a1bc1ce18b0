"""Packed positions are the same positions."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.packing.positions import Positions
from tests.support.call_count import count_calls

near = st.lists(st.integers(0, 300), unique=True, max_size=60)
far = st.lists(st.integers(0, 2**40), unique=True, max_size=20)
consecutive = st.builds(lambda start, count: range(start, start + count), st.integers(0, 2**33), st.integers(0, 90))
with_gaps = st.builds(
    lambda start, gaps: [start + index for index in range(200) if index not in gaps],
    st.integers(0, 2**33),
    st.sets(st.integers(0, 199), max_size=4),
)
positions = st.one_of(near, near.map(sorted), far, consecutive, with_gaps)


@pytest.mark.usefixtures("examples")
@given(positions)
def test_positions_are_kept_in_their_order(numbers: Sequence[int]) -> None:
    packed = Positions.pack(numbers)
    assert list(packed) == list(numbers)
    assert len(packed) == len(numbers)
    if numbers:
        assert (packed.lowest, packed.highest) == (min(numbers), max(numbers))
        assert packed[len(numbers) // 2] == numbers[len(numbers) // 2]


@pytest.mark.usefixtures("examples")
@given(parts=st.lists(positions, max_size=5), dice=st.randoms(use_true_random=False))
def test_merged_positions_are_cut_and_distributed(parts: Sequence[Sequence[int]], dice: Random) -> None:
    numbers = [number for part in parts for number in part]
    merged = Positions.merge(map(Positions.pack, parts))
    cut = dice.randint(0, len(numbers))
    indexes = dice.sample(range(len(numbers)), len(numbers))
    groups = [indexes[:cut], sorted(indexes[cut:]), range(cut)]

    assert list(merged) == [merged[index] for index in range(len(numbers))] == numbers
    assert (list(merged[:cut]), list(merged[cut:])) == (numbers[:cut], numbers[cut:])
    assert [list(each) for each in merged.distribute(groups)] == [[numbers[i] for i in group] for group in groups]


@pytest.mark.usefixtures("examples")
@given(parts=st.lists(positions, max_size=5), highest=st.integers(0, 400))
def test_positions_are_selected_up_to_one(parts: Sequence[Sequence[int]], highest: int) -> None:
    numbers = [number for part in parts for number in part]
    merged = Positions.merge(map(Positions.pack, parts))
    for bound in (highest, *numbers[:2]):
        assert list(merged.select_up_to(bound)) == [number for number in numbers if number <= bound]


@pytest.mark.usefixtures("examples")
@given(parts=st.lists(positions, max_size=3), dice=st.randoms(use_true_random=False))
def test_partitioned_positions_are_cut_before_they_are_listed(parts: Sequence[Sequence[int]], dice: Random) -> None:
    numbers = [number for part in parts for number in part]
    places = bytes(dice.choices(range(3), k=len(numbers)))
    expected = [[number for number, each in zip(numbers, places, strict=True) if each == place] for place in range(4)]
    partitioned = Positions.merge(map(Positions.pack, parts)).partition(places, [*map(len, expected)])
    cuts = [(dice.randint(0, len(each)), dice.randint(0, len(each))) for each in expected]
    cut = [each[low:high] for each, (low, high) in zip(partitioned, cuts, strict=True)]

    assert [[*map(len, cut)], [*map(len, partitioned)]] == [
        [max(0, high - low) for low, high in cuts],
        [*map(len, expected)],
    ]
    assert [list(each) for each in cut] == [each[low:high] for each, (low, high) in zip(expected, cuts, strict=True)]
    halves = [Positions.merge([each[: len(each) // 2], each[len(each) // 2 :]]) for each in partitioned]
    assert [list(each) for each in halves] == [[each[i] for i in range(len(each))] for each in halves] == expected


def test_partitioned_positions_take_a_byte_until_they_are_listed() -> None:
    places = bytes(range(4)) * 100
    first, *_ = Positions.pack(range(400)).partition(places, [100] * 4)
    assert first.held == 100
    assert list(first) == [*range(0, 400, 4)]
    assert first.held == 300


@pytest.mark.usefixtures("examples")
@given(st.lists(positions, max_size=5))
def test_positions_are_stored_and_read_again(parts: Sequence[Sequence[int]]) -> None:
    merged = Positions.merge(map(Positions.pack, parts))
    assert list(Positions.from_plain(merged.to_plain(), most=len(merged))) == list(merged)


def test_consecutive_positions_take_no_memory() -> None:
    slices = [Positions.pack([*range(first, first + 99), *range(first + 100, first + 512)]) for first in (0, 512)]
    assert Positions.merge(slices).held == 0
    assert Positions.merge([Positions.pack(range(5)), Positions.pack(range(5, 9))]) == Positions.pack(range(9))


def test_positions_of_a_lane_take_two_bytes() -> None:
    (lane,) = Positions.pack(range(10**9, 10**9 + 8_192)).distribute([range(7, 8_192, 32)])
    assert list(lane) == [*range(10**9 + 7, 10**9 + 8_192, 32)]
    assert lane.held == Positions.pack([*lane]).held == 2 * len(lane)


@pytest.mark.parametrize(
    "run", [(0, 9, "", b""), (0, 0, "", b""), (0, 0, "H", b""), (0, 0, "H", b"123"), (0, 0, "d", b"12345678")]
)
def test_malformed_positions_are_refused(run: tuple[int, int, str, bytes]) -> None:
    with pytest.raises(ValueError, match="positions|bytes"):
        Positions.from_plain([run], most=8)


def test_one_position_is_found_without_a_look_at_each_run() -> None:
    merged = Positions.pack([number + number // 100 for number in range(100_000)])
    assert len(merged.runs) == 1_000
    with count_calls() as count:
        assert [merged[index] for index in range(0, 100_000, 1_000)] == [*range(0, 101_000, 1_010)]
    assert count.calls < 100 * 100
