"""Edits strings in the tables of a TOML file; comments and the order of lines are kept."""

from collections.abc import Iterable, Mapping

from svc_async.errors import InvalidArgument

__all__ = ["edit_table"]


def edit_table(text: str, name: str, added: Mapping[str, str], removed: Iterable[str]) -> str:
    """Return the text with settings of a table added or removed.

    Args:
        text: the file, which is TOML.
        name: the table, which is added at the end if it is not there.
        added: strings by key; a key that is there gets the new value.
        removed: keys.

    Raises:
        InvalidArgument: the library that edits such files is not installed.
    """
    try:
        import tomlkit  # noqa: PLC0415 - of the extra "cli"; profiles are read without it
    except ImportError:
        raise InvalidArgument("profile", 'can be changed with the extra "cli": pip install "svc-async[cli]"') from None
    document = tomlkit.parse(text)
    if name not in document:
        document[name] = tomlkit.table()
    table = document[name]
    for key, value in added.items():
        table[key] = value
    for key in removed:
        table.pop(key, None)
    return tomlkit.dumps(document)
