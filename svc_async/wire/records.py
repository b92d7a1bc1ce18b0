"""The base class of all records, and the fields of records and mappings."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import attrs
import msgspec

__all__ = [
    "EXACT",
    "READ_ONLY",
    "Record",
    "Timestamp",
    "describe_mapping",
    "fields_of",
    "list_field_names",
    "list_shown_fields",
    "name_key",
    "to_plain_values",
    "to_shown_values",
]

_MAPPINGS: Sequence[tuple[Callable[[object], bool], str]] = (
    (is_dataclass, "dataclasses.asdict(row)"),
    (lambda row: hasattr(row, "model_dump"), "row.model_dump()"),  # of pydantic
    (lambda row: hasattr(row, "_asdict"), "row._asdict()"),  # a named tuple, or of SQLAlchemy
    (lambda row: hasattr(row, "keys"), "dict(row)"),  # a row of asyncpg or sqlite3
)
"""What makes a mapping of a row that has names for its values and is none."""


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a mapping, or those of a model that can be sent; None for any other value."""
    if isinstance(value, Mapping):
        return value
    model = type(value)
    if not attrs.has(model):
        return None
    return {name: getattr(value, name) for name in list_field_names(model)}


def name_key(key: object, position: int) -> str:
    """Return how a message names a key of an object: one that may be a value, such as an e-mail, by its position."""
    text = str(key)
    is_name = len(text) <= _LONGEST_NAME and text.isascii() and text.isidentifier()
    return text if is_name else f"[key {position}]"


_LONGEST_NAME = 60


def describe_mapping(row: object, *, tuples: str) -> str:
    """Return what to pass for a row that is no mapping, as the end of a rule; empty if its type does not say.

    Args:
        row: the row, of which no value is repeated.
        tuples: what to pass for rows without names.
    """
    if isinstance(row, type):
        return ""
    if code := next((code for is_such, code in _MAPPINGS if is_such(row)), ""):
        return f"; pass {code} for each row"
    return f"; for tuples pass {tuples}" if isinstance(row, Sequence) and not isinstance(row, str | bytes) else ""


@lru_cache(maxsize=1024)  # a caller's own models come and go
def list_field_names(model: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a model that can be sent."""
    return tuple(
        field.name
        for field in attrs.fields(model)
        if field.init and not field.name.startswith("_") and not field.metadata.get("read_only")
    )


Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
"""A datetime of the service, always with a time zone (contract GEN-12)."""

EXACT: Mapping[str, bool] = MappingProxyType({"exact": True})
"""Metadata of a field that is read as documented or not at all, because it decides what counts as done."""
READ_ONLY: Mapping[str, bool] = MappingProxyType({"read_only": True})
"""Metadata of a field that the service adds to what it was sent; it is not sent back."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@attrs.frozen(kw_only=True, slots=False)
class Record:
    """Base class of the attrs classes of records: a record of the service as of the time of the answer.

    Records are hashable: arrays are read as tuples, and fields with mappings or any JSON are compared but not hashed.

    Attributes:
        keeps_unknown: whether fields that the class lacks are kept in `extra` in any session.
        occasional: the fields that only some records have, so that nothing follows if none of them came.
    """

    keeps_unknown: ClassVar[bool] = False
    occasional: ClassVar[Collection[str]] = ()

    _extra: Mapping[str, Any] | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields whose value did not fit or came in another form, as they came; unknown ones too if they are kept.

        These are kept of posts, which have more fields than are documented, and of all records with `keep_unknown`.

        Copies, pickles and `attrs.evolve` keep them; comparisons ignore them.
        """
        return MappingProxyType(dict(self._extra)) if self._extra else _NOTHING

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can represent; those in `extra` as they came."""
        names = (field.name for field in attrs.fields(type(self)) if field.name != "_extra")
        fields = {**{name: getattr(self, name) for name in names}, **self.extra}
        return {name: to_plain_values(value) for name, value in fields.items()}

    def to_json(self) -> str:
        """Return `to_dict()` as JSON in ASCII."""
        return json.dumps(self.to_dict())

    if not TYPE_CHECKING:  # for encoders that call `dict()`, such as FastAPI's; checkers see that it is no collection

        def __iter__(self) -> Iterator[tuple[str, Any]]:
            """Yield the names and values of `to_dict()`."""
            return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, __: object) -> Any:
        """Return how pydantic takes a record, as it is, and writes it, as `to_dict()` does."""
        from pydantic_core import core_schema  # noqa: PLC0415 - only pydantic calls this

        write = core_schema.plain_serializer_function_ser_schema(
            _write, info_arg=True, return_schema=core_schema.dict_schema()
        )
        return core_schema.is_instance_schema(cls, serialization=write, ref=f"{cls.__module__}.{cls.__qualname__}")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        """Return the JSON schema of what `to_dict()` returns, for OpenAPI: each field with its type."""
        from pydantic import TypeAdapter  # noqa: PLC0415 - only pydantic calls this
        from pydantic_core import core_schema  # noqa: PLC0415 - likewise

        if handler.mode != "serialization":
            return handler(schema)  # which has none: pydantic reads no record
        fields = {
            field.name: core_schema.typed_dict_field(TypeAdapter(field.type).core_schema)
            for field in attrs.fields(attrs.resolve_types(cls))
            if field.name != "_extra"
        }
        return {**handler(core_schema.typed_dict_schema(fields)), "title": cls.__name__}

    def _repr_html_(self) -> str:
        """Return a table of the fields that a repr shows, for notebooks."""
        from svc_async.notebook import render_fields  # noqa: PLC0415 - only notebooks need it

        return render_fields(type(self).__name__, list_shown_fields(self))


# The fallback of an instance without the attribute: the decoder then has nothing to set, as it would in every record.
Record._extra = None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - its own class; frozen for instances


def list_shown_fields(value: attrs.AttrsInstance) -> dict[str, Any]:
    """Return the fields of a record or an event that its repr shows and that have a value, for people to read.

    Secrets and what people wrote are left out. Of `extra`, which may contain both, only the names are shown.
    """
    shown = {field.name: getattr(value, field.name) for field in attrs.fields(type(value)) if field.repr}
    if isinstance(value, Record) and value.extra:
        shown["extra"] = ", ".join(value.extra)
    return {name: to_shown_values(each) for name, each in shown.items() if each is not None}


def to_shown_values(value: Any) -> Any:
    """Return a value as `to_plain_values` does, without what the repr of a record leaves out."""
    return to_plain_values(value, describe=list_shown_fields)


def to_plain_values(value: Any, *, describe: Callable[[Record], Mapping[str, Any]] = Record.to_dict) -> Any:
    """Return a value, such as a record or a list of records, as values that JSON can represent.

    Args:
        value: the value.
        describe: returns the fields of a record.
    """
    if isinstance(value, Record):
        return describe(value)
    if isinstance(value, Mapping):
        return {name: to_plain_values(element, describe=describe) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_values(element, describe=describe) for element in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.value if isinstance(value, Enum) else value


def _write(record: Record, info: Any) -> Any:
    """Return `to_dict()` without what the caller of pydantic or FastAPI leaves out."""
    fields: Any = record.to_dict()
    if info.include is not None or info.exclude is not None:
        fields = _make_dict_adapter().dump_python(fields, include=info.include, exclude=info.exclude)
    return _drop_none(fields) if info.exclude_none else fields


@cache
def _make_dict_adapter() -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - only pydantic calls this

    return TypeAdapter(dict[str, Any])


def _drop_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_none(each) for name, each in value.items() if each is not None}
    return [_drop_none(each) for each in value] if isinstance(value, list) else value
