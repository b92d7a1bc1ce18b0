"""The classes that an answer can be read into, besides the records of this SDK, and their fields."""

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from traceback import walk_tb
from typing import Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from svc_async.errors import InvalidArgument

__all__ = [
    "Misfit",
    "ModelField",
    "check_model",
    "find_code_of_caller",
    "is_pydantic",
    "list_model_fields",
    "read_pydantic",
]

_KINDS = (
    "must be the class of one record: of attrs, a dataclass, a msgspec.Struct, a pydantic BaseModel, a TypedDict or "
    "dict; `iterate` reads several records, and without `into` the answer is plain values"
)
_UNRESOLVED = "must have annotations that can be resolved: define it, and what it names, at the top of a module"


class Misfit(Exception):
    """A value does not fit its type; the message names fields and rules, never values."""


@attrs.frozen
class ModelField:
    """One field of a model.

    Attributes:
        name: its name in Python.
        key: its name in JSON.
        kind: its type.
        is_required: whether an object must have it.
    """

    name: str
    key: str
    kind: Any
    is_required: bool


def check_model(model: object) -> None:
    """Check that an answer can be read into a class.

    Raises:
        InvalidArgument: it is no class of a kind that is supported, or its annotations cannot be resolved.
    """
    kind: Any = get_origin(model) or model
    if kind in _OBJECTS:
        return
    try:
        is_model = isinstance(kind, type) and (_is_complete(kind) or list_model_fields(kind) is not None)
    except NameError:
        raise InvalidArgument("into", _UNRESOLVED) from None
    if not is_model:
        raise InvalidArgument("into", _KINDS)


def _is_complete(kind: type[Any]) -> bool:
    """Return whether a class is one of attrs or pydantic.

    Raises:
        NameError: what its annotations name does not exist.
    """
    if is_pydantic(kind):
        if not getattr(kind, "__pydantic_complete__", True):
            try:
                cast(Any, kind).model_rebuild()
            except AttributeError:  # it is BaseModel itself
                return False
        return True
    if not attrs.has(kind):
        return False
    attrs.resolve_types(kind)
    return True


_OBJECTS: Sequence[Any] = (dict, Mapping)


def is_pydantic(kind: Any) -> bool:
    """Return whether a class validates JSON by itself, as the models of pydantic do."""
    return isinstance(kind, type) and callable(getattr(kind, "model_validate_json", None))


def read_pydantic(kind: Any, text: str) -> Any:
    """Return a model of pydantic from JSON.

    Raises:
        Misfit: it does not fit; the message has the names of fields and the types of errors, as pydantic calls them.
    """
    try:
        return kind.model_validate_json(text)
    except ValueError as error:
        list_errors = getattr(error, "errors", None)
        if list_errors is None:
            raise
        details = list_errors(include_url=False, include_context=False, include_input=False)
    raise Misfit("; ".join(dict.fromkeys(_describe_all(kind, details[:3]))))


def _describe_all(kind: Any, details: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Describe errors of pydantic; their messages may contain values, and so may the names of keys inside a field."""
    fields = kind.model_fields.items()
    names = [each for name, field in fields for each in (name, field.alias, field.validation_alias)]
    for each in details:
        place, problem = each["loc"], each["type"]
        field = f"{kind.__name__}.{place[0]}" if place and place[0] in names else kind.__name__
        is_missing = problem == "missing" and len(place) == 1
        yield f"{field} is missing" if is_missing else f"{field} does not fit ({problem})"


@lru_cache(maxsize=1024)  # a caller's own models come and go
def list_model_fields(kind: type[Any]) -> tuple[ModelField, ...] | None:
    """Return the fields of a dataclass, a msgspec.Struct or a TypedDict; None for any other class."""
    if issubclass(kind, msgspec.Struct):
        found = msgspec.structs.fields(kind)
        return tuple(ModelField(each.name, each.encode_name, each.type, each.required) for each in found)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        none = dataclasses.MISSING
        return tuple(
            ModelField(each.name, each.name, hints[each.name], each.default is none and each.default_factory is none)
            for each in dataclasses.fields(kind)
            if each.init
        )
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        hints = get_type_hints(kind, include_extras=True)
        return tuple(_list_key(kind, name, hint) for name, hint in hints.items())
    return None


def _list_key(kind: Any, name: str, hint: Any) -> ModelField:
    """Return a key of a TypedDict; postponed annotations hide from it whether the key is required."""
    marker = get_origin(hint)
    if marker in {Required, NotRequired}:
        return ModelField(name, name, get_args(hint)[0], marker is Required)
    return ModelField(name, name, hint, name in kind.__required_keys__)


def find_code_of_caller(error: Exception) -> str | None:
    """Return the function and the line of a caller's class in which an error was raised, unless it is a ValueError.

    The error itself is not chained: its text, such as that of a KeyError, and its frames may hold what came.
    """
    if isinstance(error, ValueError | RecursionError):
        return None
    found = None
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _READERS:
            found = f"{module}.{frame.f_code.co_qualname}, line {line}"
    return found


_READERS = sys.stdlib_module_names | {__name__.partition(".")[0], "attr", "cattrs", "pydantic", "None"}
"""Where errors say only that a value is of another type; code that attrs generates is of no module."""
