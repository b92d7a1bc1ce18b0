"""The keywords of a call that runs a job, as one value."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import attrs

from svc_async.batch.cluster.calls import ClusterClient
from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.settings import BatchSettings, Reading
from svc_async.batch.sync.settings import SyncObservers, SyncSettings
from svc_async.value_rules import refuse_unknown

__all__ = ["JobCall", "read_options"]

T = TypeVar("T", bound=attrs.AttrsInstance)


@attrs.frozen(kw_only=True)
class JobCall:
    """The keywords of a call as values; what the method does not take has its default."""

    settings: BatchSettings
    observers: SyncObservers
    reading: Reading = attrs.field(factory=Reading)
    sync: SyncSettings = attrs.field(factory=SyncSettings)
    journal: JournalPath | None = None
    cluster: ClusterClient | None = None
    shards: int | None = None


def read_options(call: str, options: Mapping[str, Any], known: Collection[str]) -> JobCall:
    """Return the keywords of a call as values.

    Args:
        call: the name of the method, for messages.
        options: the keywords.
        known: those that the method takes.

    Raises:
        TypeError: the method does not take one of them.
        InvalidArgument: a value breaks its rule.
    """
    refuse_unknown(call, options, known)

    def pick(kind: type[T]) -> T:
        return kind(**{name: options[name] for name in attrs.fields_dict(kind) if name in options})

    return JobCall(
        settings=pick(BatchSettings),
        observers=pick(SyncObservers),
        reading=pick(Reading),
        sync=pick(SyncSettings),
        journal=options.get("journal"),
        cluster=options.get("cluster"),
        shards=options.get("shards"),
    )
