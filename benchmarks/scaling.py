"""What large jobs cost, on paper and simulated: `python -m benchmarks.scaling`.

The unit costs below were measured (`python -m benchmarks.cluster`, see docs/scaling.md). The simulation runs the tasks
of a job over workers, each with one processor: fragments are encoded, then shards are sent, where a request waits for
its turn at the limit of its account. Nothing of the SDK runs in it.
"""

import argparse
import heapq
from collections import deque

import attrs

__all__ = ["Costs", "estimate", "simulate"]

_SHARDS = 102
"""Of 100 million rows: each has 32 MiB."""


@attrs.frozen(kw_only=True)
class Costs:
    """Unit costs; `latency` and `commits` are assumed, the others are measured or documented.

    Attributes:
        encode: CPU microseconds to read, hash and divide a row.
        send: CPU microseconds of the rest: the exchange, packing, sending, the journal.
        row_size: bytes of a row in the exchange.
        users: users of one request.
        latency: seconds from a request to its answer.
        requests_a_minute: the limit of an account, with headroom.
        commits: transactions for one request at most: its intent, its settlement, a lease.
        start: CPU seconds until a worker has imported what it needs.
    """

    encode: float = 0.33
    send: float = 0.6
    row_size: int = 34
    users: int = 62_500
    latency: float = 1.0
    requests_a_minute: float = 1_455.0
    commits: float = 3.0
    start: float = 2.7


@attrs.frozen(kw_only=True)
class Job:
    """A job: so many lists, each of an account of its own, with so many rows.

    Attributes:
        accounts: how many lists.
        rows: rows of each.
        shards: shards of each.
        workers: worker processes, each with one processor.
        shards_at_once: shards that a worker sends at once.
    """

    accounts: int
    rows: int
    shards: int
    workers: int
    shards_at_once: int = 8


def estimate(job: Job, costs: Costs) -> dict[str, float]:
    """Return what a job costs on paper."""
    rows = job.accounts * job.rows
    requests = job.accounts * job.shards * -(-job.rows // job.shards // costs.users)
    cpu = rows * (costs.encode + costs.send) / 1e6
    at_the_limit = requests / job.accounts / costs.requests_a_minute * 60
    return {
        "rows": rows,
        "requests": requests,
        "CPU seconds": cpu,
        "minutes of CPU on the workers": cpu / job.workers / 60,
        "minutes at the limit of an account": at_the_limit / 60,
        "GB through the exchange": rows * costs.row_size / 1e9 if job.shards > 1 else 0.0,
        "MB of rows in a worker": min(job.shards_at_once, job.shards * job.accounts)
        * job.rows
        / job.shards
        * costs.row_size
        / 1e6,
        "transactions": requests * costs.commits,
    }


def simulate(job: Job, costs: Costs) -> dict[str, float]:
    """Return when a simulated job has encoded and sent everything."""
    shard_rows = job.rows / job.shards
    encode = job.accounts * job.shards * shard_rows * costs.encode / 1e6 / job.workers + costs.start
    waiting = deque((account, shard) for shard in range(job.shards) for account in range(job.accounts))
    processors = [encode] * job.workers
    events: list[tuple[float, int]] = []
    turns = [encode] * job.accounts
    transactions = 0.0
    for worker in range(job.workers):
        for _ in range(job.shards_at_once):
            heapq.heappush(events, (encode, worker))
    finished = encode
    while waiting:
        now, worker = heapq.heappop(events)
        account, _ = waiting.popleft()
        end, rows = now, shard_rows
        while rows > 0:
            part = min(rows, costs.users)
            rows -= part
            ready = processors[worker] = max(processors[worker], now) + part * costs.send / 1e6
            turns[account] = max(turns[account] + 60 / costs.requests_a_minute, ready)
            end = max(end, turns[account] + costs.latency)
            transactions += costs.commits
        finished = max(finished, end)
        heapq.heappush(events, (end, worker))
    return {
        "minutes until all is encoded": encode / 60,
        "minutes until all is sent": finished / 60,
        "transactions a second while sending": transactions / max(finished - encode, 1e-9),
    }


def main() -> None:
    """Print both for some jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8, 32])
    options = parser.parse_args()
    costs = Costs()
    for workers in options.workers:
        for name, job in {
            "100 million rows for one list": Job(
                accounts=1, rows=100_000_000, shards=-(-_SHARDS // workers) * workers, workers=workers, shards_at_once=1
            ),
            "1,000 accounts of 100,000 rows": Job(accounts=1_000, rows=100_000, shards=1, workers=workers),
        }.items():
            print(f"{name}, {workers} workers")
            for what, number in {**estimate(job, costs), **simulate(job, costs)}.items():
                print(f"  {number:>16,.1f}  {what}")


if __name__ == "__main__":
    main()
