"""The words of a dialect are found in linear time, however hostile the JSON is."""

import json
from collections.abc import Callable

from tests.support.bounded_process import check_linear
from tests.support.dialects import ACME


def read(body: bytes) -> Callable[[], object]:
    return lambda: (ACME.read_json(body), ACME.serve_json(body))


def read_one_array(size: int) -> Callable[[], object]:
    return read(json.dumps({"a": ["x", "PROMOTED_NOTES", "ALL_ON_ACME"] * size}).encode())


def read_free_text(size: int) -> Callable[[], object]:
    return read(json.dumps({"name": ["PROMOTED_NOTES"] * size}, separators=(",", ":")).encode())


def read_many_names(size: int) -> Callable[[], object]:
    return read(json.dumps({f"n{number}": "PROMOTED_NOTES" for number in range(size)}, separators=(",", ":")).encode())


def read_names(size: int) -> Callable[[], object]:
    return read(json.dumps([{"acme_id": 1, "note_mode": "acme_id"}] * size).encode())


def read_quotes(size: int) -> Callable[[], object]:
    return read(json.dumps({"a": ['\\"PROMOTED_NOTES"' * size, "PROMOTED_NOTES"] * 3}).encode())


def read_blanks(size: int) -> Callable[[], object]:
    return read((b'{"a":' + b" " * 300 + b'"PROMOTED_NOTES"}') * size)


def read_no_json(size: int) -> Callable[[], object]:
    return read(b'"PROMOTED_NOTES",' * size + b"\\" * size + b'"acme_id"' * size)


def read_scopes(size: int) -> Callable[[], object]:
    return read(b'{"scope":"note.read ' + b"x " * size + b'"}' + b'"scope":' * size)


def test_the_words_of_hostile_json_are_changed_in_linear_time() -> None:
    check_linear(read_one_array, read_free_text, read_many_names, read_names)
    check_linear(read_quotes, read_blanks, read_no_json, read_scopes)
