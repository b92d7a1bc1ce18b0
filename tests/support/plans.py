"""Jobs with files, for the plans of clusters."""

from typing import Any

from svc_async.batch.job import Job, ListKind, Operation, SourceSpec, TargetSpec
from svc_async.batch.settings import Reading

__all__ = ["describe"]


def describe(
    path: object,
    kind: ListKind = "audience",
    operation: Operation = "upload",
    reading: Reading | None = None,
    **source: Any,
) -> Job:
    """Return a job with the files of a path."""
    return Job(
        target=TargetSpec(kind=kind),
        operation=operation,
        source=SourceSpec(path=str(path), **source),
        reading=reading or Reading(),
    )
