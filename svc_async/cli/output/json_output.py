"""The JSON that commands print with `--json`: one shape for all of them, for results, items and errors.

    {"version": 1, "command": "accounts list", "result": …, "error": null, "exit_code": 0}

A command prints one such object, on one line of ASCII, when it ends. One that follows something prints a line for each
item before that, whose `exit_code` is null.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["JSON_VERSION", "JsonOutput", "describe_end", "output", "show_item", "show_json"]

JSON_VERSION = 1
"""It changes when a field changes its meaning or goes; fields may be added."""


@attrs.define
class JsonOutput:
    """What the running command prints.

    Attributes:
        command: its name, such as `accounts list`.
        result: what it found or did, if it has said so.
        error: why it did not do it completely, if that is so.
    """

    command: str = ""
    result: object = None
    error: Mapping[str, Any] | None = None

    def begin(self, command: str) -> None:
        """Begin with a command that has said nothing yet."""
        self.command, self.result, self.error = command, None, None

    def finish(self, exit_code: int) -> None:
        """Print how the command ended."""
        _print(describe_end(self.command, self.result, self.error, exit_code=exit_code))


output = JsonOutput()


def describe_end(
    command: str, result: object, error: Mapping[str, Any] | None, *, exit_code: int | None
) -> Mapping[str, Any]:
    """Return the shape of what is printed; the exit code of an item is None."""
    return {"version": JSON_VERSION, "command": command, "result": result, "error": error, "exit_code": exit_code}


def show_json(result: object, *, error: Mapping[str, Any] | None = None) -> None:
    """Set the result, which is printed when the command ends."""
    output.result, output.error = result, error


def show_item(item: object) -> None:
    """Print an item at once: the reader may be waiting for it."""
    _print(describe_end(output.command, item, None, exit_code=None))


def _print(value: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")  # not with rich, which exits when the pipe is closed
    sys.stdout.flush()
