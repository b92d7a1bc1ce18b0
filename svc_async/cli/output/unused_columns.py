"""Which columns or elements of a feed are not sent, since products have no such attribute."""

from collections.abc import Mapping, Sequence

from svc_async.batch.job import Job
from svc_async.sources.columns import select_unmapped
from svc_async.sources.source import ReplayableSource
from svc_async.users.names import quote_names, shorten_name

__all__ = ["describe_unused", "list_unused"]

_LISTED = 100
"""Names that are listed for programs."""


def describe_unused(job: Job, source: ReplayableSource) -> str | None:
    """Return a note on what is not sent of a feed that was checked; None if that is nothing."""
    names = _find_unused(job, source)
    if not names:
        return None
    what = "columns or elements" if len(names) > 1 else "column or element"
    return (
        f"Not sent: the {what} {quote_names(names)}, since products have no such attribute. "
        "--map NAME=ATTRIBUTE sends one as an attribute, and --map NAME=- leaves out this note."
    )


def list_unused(job: Job, source: ReplayableSource) -> Mapping[str, Sequence[str]]:
    """Return the first hundred names of what is not sent, ready for JSON; empty if the source is no feed."""
    if not _is_feed(job):
        return {}
    return {"unused_columns": [shorten_name(name) for name in _find_unused(job, source)[:_LISTED]]}


def _find_unused(job: Job, source: ReplayableSource) -> Sequence[str]:
    """Return the names of which the user has not said that they are ignored."""
    return select_unmapped(source.ignored, job.file.mapping) if _is_feed(job) else ()


def _is_feed(job: Job) -> bool:
    """Return whether the source has products; of users there is no unknown column, and a deletion needs only keys."""
    return job.target.kind == "catalog" and job.operation != "remove"
