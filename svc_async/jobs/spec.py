"""Jobs as values: which rows go from where to which list, and with which settings.

A spec holds no session and no credentials, so it can be written to a journal, and sent to another process and run
there. `to_plain` and `from_plain` convert it from and to values for JSON.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, get_args

import attrs
import msgspec

from svc_async.batch.settings import BatchSettings
from svc_async.batch.sync.settings import SyncSettings
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import BadIdentifiers
from svc_async.value_rules import TEXT, instance_of, one_of, or_none

__all__ = [
    "JobSpec",
    "ListKind",
    "Operation",
    "SourceSpec",
    "SyncSpec",
    "TargetSpec",
    "UploadSpec",
    "from_plain",
    "to_plain",
]

_FORMAT = 1
"""The version of the encoding; it changes whenever an older version would misread a spec."""

ListKind = Literal["audience", "do_not_reach_list", "catalog"]
Operation = Literal["upload", "remove"]

_REQUIRED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "audience": {"account_id": "account_id", "list_id": "custom_audience_id"},
        "do_not_reach_list": {"account_id": "account_id", "list_id": "do_not_reach_list_id"},
        "catalog": {"list_id": "product_catalog_id"},
    }
)
"""The fields that a target of each kind needs, and the names of what they hold."""
_TIMES: Mapping[tuple[str, str], Collection[str]] = MappingProxyType(
    {("audience", "upload"): ("effective_at", "expires_at"), ("do_not_reach_list", "upload"): ("expires_at",)}
)
"""The times that rows of a job may have."""
_TITLES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("audience", "upload"): "Upload to an audience",
        ("audience", "remove"): "Removal from an audience",
        ("audience", "sync"): "Sync of an audience",
        ("do_not_reach_list", "upload"): "Upload to a do-not-reach list",
        ("do_not_reach_list", "remove"): "Removal from a do-not-reach list",
        ("catalog", "upload"): "Upload to a catalog",
        ("catalog", "remove"): "Deletion from a catalog",
        ("catalog", "sync"): "Sync of a catalog",
    }
)


@attrs.frozen(kw_only=True)
class SourceSpec:
    """The file that rows come from.

    Attributes:
        path: its path, absolute if another process is to find it; `-` is standard input.
        format: its format; detected from the content if None.
        mapping: from names of columns to the service's keys.
        encoding: its encoding, if it is not Unicode.
        empty: what stands for no value in it, such as `n/a`.
        header: the names of its columns, if it is a CSV file without a header.
    """

    path: str = attrs.field(validator=TEXT)
    format: str | None = None
    mapping: Mapping[str, str] = attrs.field(factory=dict)
    encoding: str | None = None
    empty: tuple[str, ...] = ()
    header: tuple[str, ...] | None = None


@attrs.frozen(kw_only=True)
class TargetSpec:
    """The list that rows go to.

    Attributes:
        kind: what kind of list it is.
        list_id: the id of the audience, do-not-reach list or catalog.
        account_id: the account of the list; a catalog has none.
    """

    kind: ListKind = attrs.field(validator=one_of(get_args(ListKind)))
    list_id: str | None = attrs.field(default=None, validator=or_none(TEXT))
    account_id: str | None = attrs.field(default=None, validator=or_none(TEXT))

    def check(self) -> None:
        """Check that no id is missing.

        Raises:
            InvalidArgument: names the ids that are.
        """
        missing = [name for field, name in _REQUIRED[self.kind].items() if getattr(self, field) is None]
        if missing:
            first, *others = missing
            raise InvalidArgument(first, ", and so must ".join(["must be given", *others]))


_SOURCE = instance_of(SourceSpec, "a SourceSpec")
_TARGET = instance_of(TargetSpec, "a TargetSpec")


@attrs.frozen(kw_only=True)
class UploadSpec:
    """An upload of rows to a list, or their removal.

    Attributes:
        target: the list.
        source: the file.
        operation: whether its rows are uploaded or removed. Products are removed by their `product_key`.
        effective_at: when members of an audience become members; now if None.
        expires_at: when members cease to be members; in 13 months if None.
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent with its other identifiers.
        settings: how rows are sent.

    Raises:
        InvalidArgument: the list has no such operation or times.
    """

    target: TargetSpec = attrs.field(validator=_TARGET)
    source: SourceSpec = attrs.field(validator=_SOURCE)
    operation: Operation = attrs.field(default="upload", validator=one_of(get_args(Operation)))
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"
    settings: BatchSettings = attrs.field(factory=BatchSettings)

    def __attrs_post_init__(self) -> None:
        known = _TIMES.get((self.target.kind, self.operation), ())
        for name in ("effective_at", "expires_at"):
            if getattr(self, name) is not None and name not in known:
                raise InvalidArgument(name, f"must not be given for this job: {self.title}")

    @property
    def title(self) -> str:
        """What the job does, in a few words."""
        return _TITLES[self.target.kind, self.operation]


@attrs.frozen(kw_only=True)
class SyncSpec:
    """A sync of a list with a file.

    Attributes:
        target: the list.
        source: the file with all rows that the list is to have.
        state: the file that keeps the state of the list between syncs; the shared state of the session if None.
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent with its other identifiers.
        settings: how rows are sent.
        sync: what the sync may do.

    Raises:
        InvalidArgument: a list of this kind cannot be synced.
    """

    target: TargetSpec = attrs.field(validator=_TARGET)
    source: SourceSpec = attrs.field(validator=_SOURCE)
    state: str | None = None
    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"
    settings: BatchSettings = attrs.field(factory=BatchSettings)
    sync: SyncSettings = attrs.field(factory=SyncSettings)

    def __attrs_post_init__(self) -> None:
        if (self.target.kind, "sync") not in _TITLES:
            raise InvalidArgument("kind", "must be audience or catalog: other lists cannot be synced")

    @property
    def title(self) -> str:
        """What the job does, in a few words."""
        return _TITLES[self.target.kind, "sync"]


JobSpec = UploadSpec | SyncSpec

_SPECS: Mapping[str, type[JobSpec]] = MappingProxyType({"upload": UploadSpec, "sync": SyncSpec})


def to_plain(spec: JobSpec) -> dict[str, Any]:
    """Return a spec as plain values, ready for JSON."""
    job = "sync" if isinstance(spec, SyncSpec) else "upload"
    return {"format": _FORMAT, "job": job, **msgspec.to_builtins(spec)}


def from_plain(plain: object) -> JobSpec:
    """Return the spec that plain values describe.

    Raises:
        InvalidArgument: they describe none that this version can run.
    """
    if not isinstance(plain, Mapping) or plain.get("job") not in _SPECS:
        raise InvalidArgument("spec", "must be a job that `to_plain` has encoded")
    if plain.get("format") != _FORMAT:
        raise InvalidArgument("spec", f"is of format {plain.get('format')}, but this version runs format {_FORMAT}")
    try:
        return msgspec.convert(dict(plain), _SPECS[plain["job"]])
    except msgspec.ValidationError as error:
        raise InvalidArgument("spec", f"cannot be read: {error}") from None
