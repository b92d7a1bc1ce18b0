"""A real Dask cluster for the tests: workers in processes of their own, one cluster a run."""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import LocalCluster

__all__ = ["start_dask_cluster"]


@contextmanager
def start_dask_cluster(workers: int = 2) -> Iterator[str]:
    """Yield the address of the scheduler."""
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",  # several processes of a run have a cluster each
        silence_logs=False,
    ) as cluster:
        yield str(cluster.scheduler_address)
