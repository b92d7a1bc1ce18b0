import json

from svc_async.batch.packing.batch import Limits
from svc_async.batch.packing.packer import Packer
from svc_async.users.packed import RowTemplate
from tests.support.packing import NOW, Operation, encode_user, feed, read_body, read_numbers

SHORT = RowTemplate('{"e":["', '"]},{"e":["', '"]}')


def test_users_of_one_template_are_written_like_plain_ones() -> None:
    limits = Limits(operations=2, size=10**6, per_operation=3)
    short, plain = Packer(limits), Packer(limits)
    tokens = [f"{number:03}" for number in range(6)]
    feed(short, tokens, template=SHORT)
    feed(plain, [f'{{"e":["{token}"]}}' for token in tokens])
    (one,), (other,) = short.flush(NOW), plain.flush(NOW)

    assert b"".join(one.write_body().blocks) == b"".join(other.write_body().blocks)
    assert read_body(one.split_in_half()[0]) == read_body(other.split_in_half()[0])
    assert [read_body(batch) for batch in one.one_user_each(limits)] == [
        read_body(batch) for batch in other.one_user_each(limits)
    ]


def test_selected_operations_are_split_from_the_others() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=2))
    feed(packer, [encode_user(number) for number in range(5)], operation=Operation("U"))
    feed(packer, [encode_user(number) for number in range(5, 8)], range(5, 8), operation=Operation("D"), first=5)
    (batch,) = packer.flush(NOW)

    named, others = batch.split([0, 2, 3])

    assert read_numbers([named]) == list(named.positions) == [0, 1, 4, 5, 6]
    assert read_numbers([others]) == list(others.positions) == [2, 3, 7]
    assert [batch.count_users(operation) for operation in range(batch.operations)] == [2, 2, 1, 2, 1]
    assert [*map(json.loads, batch.write_users())][3] == [{"n": "5"}, {"n": "6"}]


def test_splitting_in_half_ends_at_single_rows() -> None:
    packer = Packer(Limits(operations=10, size=10**6, per_operation=3))
    feed(packer, [encode_user(number) for number in range(7)])
    pieces = packer.flush(NOW)
    while any(piece.rows > 1 for piece in pieces):
        pieces = [half for piece in pieces for half in (piece.split_in_half() if piece.rows > 1 else [piece])]

    assert read_numbers(pieces) == list(range(7))


def test_batches_of_one_user_an_operation_respect_the_limits() -> None:
    limits = Limits(operations=4, size=10**6, per_operation=5)
    packer = Packer(limits)
    feed(packer, [encode_user(number) for number in range(20)])
    (batch,) = packer.flush(NOW)

    singles = batch.one_user_each(limits)

    assert all(single.fits(limits) and single.rows == single.operations for single in singles)
    assert read_numbers(singles) == list(range(20))


def test_batches_have_one_digest_if_they_have_one_body() -> None:
    kinds = [("012", 1, "U"), ("012", 2, "U"), ("013", 1, "U"), ("012", 1, "D"), ("021", 1, "U")]
    found: set[tuple[str, bytes]] = set()
    for numbers, per_operation, name in kinds * 2:
        packer = Packer(Limits(operations=10, size=10**6, per_operation=per_operation))
        feed(packer, [encode_user(int(number)) for number in numbers], operation=Operation(name))
        (batch,) = packer.flush(NOW)
        found.add((batch.digest(), b"".join(batch.write_body().blocks)))

    assert len(found) == len(dict(found)) == len({body for _, body in found}) == len(kinds)


def test_large_bodies_are_written_in_chunks() -> None:
    packer = Packer(Limits(operations=2500, size=5_000_000, per_operation=25))
    feed(packer, [encode_user(number, 60) for number in range(20_000)])
    (batch,) = packer.flush(NOW)
    sizes = [len(block) for block in batch.write_body().blocks]

    assert len(sizes) > 10
    assert max(sizes) < 80_000
    assert len(read_body(batch)) == 800
