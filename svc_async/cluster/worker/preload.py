"""Imports what the tasks of a job need, so that a worker that starts is ready: `dask worker --preload MODULE`."""

from importlib import import_module

__all__ = ["MODULES"]

MODULES = (
    "asyncpg",
    "pyarrow.compute",
    "pyarrow.parquet",
    "svc_async.lists.audience_users",
    "svc_async.cluster.clients",
    "svc_async.cluster.encode",
    "svc_async.cluster.snapshot",
    "svc_async.cluster.worker.shard",
    "svc_async.engine.transport",
    "svc_async.handles",
    "svc_async.state.journals",
    "svc_async.state.limits.postgres_leases",
    "svc_async.state.limits.store",
)

for _name in MODULES:
    import_module(_name)
