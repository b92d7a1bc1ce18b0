"""How many shards a worker sends at once: few large ones, and as many small ones as there is memory for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from svc_async.cluster.worker.shard import RowMemory


@pytest.mark.parametrize(
    ("size", "shards", "at_once"),
    [
        pytest.param(5, 12, 6, id="small"),
        pytest.param(20, 10, 5, id="all rows in an equal share"),
        pytest.param(40, 6, 2, id="large"),
        pytest.param(90, 3, 1, id="together larger than the memory"),
        pytest.param(200, 3, 1, id="larger than the memory"),
    ],
)
def test_so_many_shards_are_sent_at_once(size: int, shards: int, at_once: int) -> None:
    memory = RowMemory(size=100, shards=2, small_shards=6)
    lock, all_there = threading.Lock(), threading.Barrier(at_once)
    held = most = 0

    def send(_: int) -> None:
        nonlocal held, most
        with memory.hold(size):
            with lock:
                held += 1
                most = max(most, held)
            all_there.wait(30)
            with lock:
                held -= 1

    with ThreadPoolExecutor(shards) as pool:
        list(pool.map(send, range(shards)))

    assert most == at_once
