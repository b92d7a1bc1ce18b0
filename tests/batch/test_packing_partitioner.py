from svc_async.batch.packing.batch import Limits
from svc_async.batch.packing.packer import Packer, Partitioner
from tests.support.packing import NOW, encode_user, pack_rows, read_numbers


def test_rows_of_one_key_are_fed_to_one_packer() -> None:
    packers = [Packer(Limits(operations=100, size=10**6, per_operation=5)) for _ in range(7)]
    partitioner = Partitioner(packers, flush_at=500)
    keys = [(number * 37) % 50 for number in range(500)]
    for first in range(0, 500, 100):
        part = keys[first : first + 100]
        partitioner.add(pack_rows([encode_user(key) for key in part], keys=part, first=first))

    assert partitioner.rows == 500

    for _, batches in partitioner.flush(NOW):
        assert batches == []
        assert partitioner.rows + sum(packer.rows + packer.coalesced for packer in packers) == 500

    assert partitioner.rows == 0

    sent = [read_numbers(packer.flush(NOW)) for packer in packers]

    assert sorted(key for lane in sent for key in lane) == list(range(50))
    assert sum(packer.coalesced for packer in packers) == 450
