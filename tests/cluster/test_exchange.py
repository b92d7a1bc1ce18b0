"""Rows of one key meet in one shard, in the order of the source, on a real cluster."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from dask.delayed import delayed
from distributed import Client, Worker, WorkerPlugin

from svc_async.cluster.encode import EncodeSettings
from svc_async.cluster.exchange import choose_shards, encode_each, exchange
from svc_async.cluster.files import SourceFile
from svc_async.cluster.plan import Fragment, PlannedFile, SourcePlan, SourceSettings
from svc_async.cluster.planning import plan_source
from svc_async.cluster.shard_rows import ShardRows
from tests.support.object_store import Bucket, ObjectStore

pytestmark = pytest.mark.timeout(300)  # workers import for seconds

SHARDS = 5


class _Environment(WorkerPlugin):
    """Sets the variables of workers, also of one that replaces another that an earlier test has killed."""

    name = "environment of the object store"

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = dict(variables)

    def setup(self, worker: Worker) -> None:
        del worker
        os.environ.update(self.variables)


@pytest.fixture(scope="module")
def client(dask_cluster: str, object_store: ObjectStore) -> Iterator[Client]:
    with Client(dask_cluster) as client:
        client.register_plugin(_Environment(object_store.environment))
        yield client


def make_table(offset: int) -> str:
    """Return rows of 300 persons, one in ten of which is none, with another handle in each row."""
    persons = (f"user{number % 300}@example.com" if number % 10 < 9 else "nobody" for number in range(1_000))
    return "\n".join(["email,handle", *(f"{person},h{offset + row}" for row, person in enumerate(persons))])


@pytest.fixture
def plan(bucket: Bucket) -> SourcePlan:
    for number in range(3):
        bucket.write(f"customers/{number}.csv", make_table(1_000 * number).encode())
    return plan_source(f"{bucket.url}/customers/*.csv", SourceSettings(fragment_size=4_000), block_size=1_000)


def compute(client: Client, plan: SourcePlan, tasks: Sequence[Any]) -> Sequence[ShardRows]:
    found = client.gather(client.compute([delayed(list)(task) for task in tasks]))
    return [ShardRows.read([piece.read() for piece in pieces], plan) for pieces in found]


def list_users(shard: ShardRows) -> Sequence[tuple[int, str]]:
    """Return the key of each user that can be sent, and where it comes from."""
    found, first = [], 0
    for users in shard.members.slices:
        found += [
            (key, f"{shard.locate(first + index)}")
            for key, index in zip(users.users.list_keys(), users.indexes, strict=True)
        ]
        first += users.rows
    return found


@pytest.mark.parametrize("most_pieces", [1, 1_000], ids=["by the shuffle", "as pieces"])
def test_rows_of_a_key_meet_in_one_shard_in_their_order(client: Client, plan: SourcePlan, most_pieces: int) -> None:
    settings = EncodeSettings()
    shards = compute(client, plan, exchange(plan, settings, shards=SHARDS, most_pieces=most_pieces))
    fragments = compute(client, plan, encode_each(plan, settings))
    assert len(fragments) == len(plan.fragments) > SHARDS
    assert sum(map(len, shards)) == sum(map(len, fragments)) == 3_000
    by_shard = list(map(list_users, shards))
    in_order = [user for fragment in fragments for user in list_users(fragment)]
    owners = {key: shard for shard, users in enumerate(by_shard) for key, _ in users}
    assert len(owners) == 270
    assert by_shard == [[user for user in in_order if owners[user[0]] == shard] for shard in range(SHARDS)]
    again = compute(client, plan, exchange(attrs.evolve(plan), settings, shards=SHARDS, most_pieces=most_pieces))
    assert list(map(list_users, again)) == by_shard


def test_source_without_rows_has_empty_shards(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "customers.csv"
    path.write_text("email")
    plan = plan_source(str(path), SourceSettings())
    assert list(map(len, compute(client, plan, exchange(plan, EncodeSettings(), shards=2)))) == [0, 0]


@pytest.mark.parametrize(
    ("fragments", "rows", "workers", "shards"),
    [
        (0, 0, 3, 3),
        (1, 10, 3, 3),
        (1, 10, 0, 1),
        (80, 125_000, 1, 11),
        (80, 125_000, 2, 12),
        (80, 125_000, 5, 15),
        (400, 125_000, 2, 40),  # as pieces, in larger shards
        (800, 125_000, 2, 102),  # by the shuffle: the shards would become too large
        (400, 125_000, 50, 100),  # likewise: some workers would have nothing to send
        (385, 125_000, 8, 40),
    ],
)
def test_each_worker_sends_as_many_shards(fragments: int, rows: int, workers: int, shards: int) -> None:
    file = PlannedFile(source=SourceFile(path="customers.parquet", size=1, version="1"), format="parquet")
    parts = [Fragment(number=number, file=file, end=rows, group=number) for number in range(fragments)]
    plan = SourcePlan(SourceSettings(), (file,), tuple(parts))
    assert choose_shards(plan, workers) == shards
    assert shards % max(1, workers) == 0
