"""Rows of one key meet in one shard, in the order of the source, also on a real cluster."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from dask.base import compute
from dask.delayed import delayed

from svc_async.cluster.encode import choose_shards, encode_each, exchange
from svc_async.cluster.files import SourceFile
from svc_async.cluster.parts import Piece, ShardRows
from svc_async.cluster.plan import Fragment, PlannedFile, SourcePlan
from svc_async.cluster.planning import plan_source
from tests.support.cluster_jobs import open_cluster
from tests.support.plans import describe

pytestmark = pytest.mark.timeout(300)  # the shuffle imports for seconds

SHARDS = 5
ROWS = 200


def make_table(offset: int) -> str:
    """Return rows of 60 persons, one in ten of which is none, with another handle in each row."""
    persons = (f"user{number % 60}@example.com" if number % 10 < 9 else "nobody" for number in range(ROWS))
    return "\n".join(["email,handle", *(f"{person},h{offset + row}" for row, person in enumerate(persons))])


@pytest.fixture
def plan(tmp_path: Path) -> SourcePlan:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(make_table(ROWS * number))
    return plan_source(describe(tmp_path / "*.csv"), fragment_size=800, block_size=200)


Compute = Callable[[Sequence[Any]], Awaitable[Sequence[Sequence[Piece]]]]


async def compute_here(tasks: Sequence[Any]) -> Sequence[Sequence[Piece]]:
    """Compute tasks one after another, without a cluster."""
    return [list(pieces) for pieces in compute(*tasks, scheduler="synchronous")]


async def compute_on_cluster(tasks: Sequence[Any]) -> Sequence[Sequence[Piece]]:
    async with open_cluster() as client:
        found: Sequence[Sequence[Piece]] = await client.gather(client.compute([delayed(list)(task) for task in tasks]))
        return found


def read_all(found: Sequence[Sequence[Piece]], plan: SourcePlan) -> Sequence[ShardRows]:
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


@pytest.mark.parametrize(
    ("most_pieces", "compute_all"),
    [
        pytest.param(1_000, compute_here, id="as pieces"),
        pytest.param(1_000, compute_on_cluster, id="as pieces on a cluster", marks=pytest.mark.long),
        pytest.param(1, compute_on_cluster, id="by the shuffle", marks=pytest.mark.long),
    ],
)
async def test_rows_of_a_key_meet_in_one_shard_in_their_order(
    plan: SourcePlan, most_pieces: int, compute_all: Compute
) -> None:
    async def exchange_all() -> Sequence[ShardRows]:
        tasks = exchange(plan, shards=SHARDS, most_pieces=most_pieces)
        return read_all(await compute_all(tasks), plan)

    shards = await exchange_all()
    fragments = read_all(await compute_here(encode_each(plan)), plan)
    assert len(fragments) == len(plan.fragments) > SHARDS
    assert sum(map(len, shards)) == sum(map(len, fragments)) == 3 * ROWS
    by_shard = list(map(list_users, shards))
    in_order = [user for fragment in fragments for user in list_users(fragment)]
    owners = {key: shard for shard, users in enumerate(by_shard) for key, _ in users}
    assert len(owners) == 54
    assert by_shard == [[user for user in in_order if owners[user[0]] == shard] for shard in range(SHARDS)]
    assert list(map(list_users, await exchange_all())) == by_shard


async def test_source_without_rows_has_empty_shards(tmp_path: Path) -> None:
    path = tmp_path / "customers.csv"
    path.write_text("email")
    plan = plan_source(describe(path))
    found = await compute_here(exchange(plan, shards=2))
    assert list(map(len, read_all(found, plan))) == [0, 0]


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
    plan = SourcePlan(describe("customers.parquet"), (file,), tuple(parts))
    assert choose_shards(plan, workers) == shards
    assert shards % max(1, workers) == 0
