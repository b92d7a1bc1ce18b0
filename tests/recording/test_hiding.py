"""No secret and no personal value is in a recording, whatever it stands in; what a program decides by is kept."""

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.recording.exchanges import RecordedExchange
from svc_async.recording.file import Recording
from svc_async.recording.hiding import NotJson, Numbering, hide_json, hide_path, hide_value, reveal_json
from tests.support.contract import FOLDER
from tests.support.raw_client import hash_sha256

PLANTED = [
    "ada.lovelace@example.org",
    "+351912345678",
    "00351912345678",
    "@ada_l",
    "Ada Lovelace",
    "Müller, Jörg",
    hash_sha256("ada@example.org"),
    "38400000-8cf0-11bd-b23e-10b96e40000d",
    "18ce54d4x5t",
    "192.0.2.17",
    "2001:db8::17",
    "https://harbour.example/people/ada?token=hush",
    "7588892-kagSNqWge8gB1WwE3plnFsJHAZVfxWD7Vb57p0b4",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2ln",
    "DAABCgABF0HzcE0AAAoAAg",
    'quote " and \\ and \u2028',
    "\ud800 lone",
]
NAMES = [
    *("email", "phone_number", "handle", "name", "id", "user_id", "text", "message", "next_cursor", "data", "value"),
    *("status", "type", "code", "created_at", "total_count", "x", "parameter", "scope", "Not A Field", "ö"),
]
planted = st.sampled_from(PLANTED)
plain = st.none() | st.booleans() | st.integers(-999, 999) | st.sampled_from(["", "ACTIVE", "true"])
leaves = planted | plain
bodies = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | planted, inner, min_size=1, max_size=4)
    ),
    max_leaves=20,
)
numbers = st.sampled_from([351912345678, 756201191646691328, -351912345678])


def record(file: Path, **request: Any) -> str:
    """Return the file of a recording with one exchange."""
    answer = request.pop("answer", b"")
    recording = Recording(file)
    recording.open()
    given_ = {"path": "/12/accounts", "scope": {}, "hidden_segments": 0, "headers": {}, "body": None, **request}
    begun = recording.begin(at=datetime(2026, 6, 10, tzinfo=UTC), method="POST", surface="ads", **given_)
    assert begun is not None
    headers = {"Content-Type": "application/json", "Set-Cookie": "sid=hush", "Location": PLANTED[11]}
    recording.write_answer(begun, status=200, headers=headers, body=answer)
    recording.close()
    return file.read_text(encoding="ascii")


def assert_hidden(text: str, path: Path) -> None:
    path.unlink()
    found = [
        each
        for value in PLANTED
        for each in (
            value,
            json.dumps(value)[1:-1],
            json.dumps(json.dumps(value))[2:-2],
            quote(value, errors="replace"),
        )
        if each in text
    ]
    assert found == []
    assert "hush" not in text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "defect.jsonl"


@pytest.mark.long("tries a hundred bodies, with their files")
@given(sent=bodies, answered=bodies)
def test_no_planted_value_is_in_a_recording_whatever_json_it_stands_in(path: Path, sent: Any, answered: Any) -> None:
    kind = {"Content-Type": "application/json"}
    text = record(path, headers=kind, body=json.dumps(sent).encode(), answer=json.dumps(answered).encode())
    assert_hidden(text, path)


@pytest.mark.long("tries a hundred texts, with their files")
@given(before=st.text(max_size=5), value=planted, after=st.text(max_size=5))
def test_no_planted_value_is_in_a_recording_whatever_text_it_stands_in(
    path: Path, before: str, value: str, after: str
) -> None:
    text = f"{before}{value}{after}".encode("utf-8", "surrogatepass")
    assert_hidden(record(path, body=text, answer=b'{"data":' + text), path)


@pytest.mark.parametrize("value", [each for each in PLANTED if each.isascii() and "/" not in each])
def test_no_planted_value_is_in_a_path_a_query_a_form_or_a_header(path: Path, value: str) -> None:
    quoted = quote(value, safe="")
    text = record(
        path,
        path=f"/12/accounts/{quoted}/cards/{quoted}?q={quoted}&{quoted}=1&status=a,{quoted}",
        headers={
            "Authorization": f'OAuth oauth_consumer_key="{quoted}", oauth_token="hush", oauth_signature="hush"',
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Else": value,
        },
        body=f"code=123456&grant_type=authorization_code&code_verifier={quoted}".encode(),
    )
    assert "123456" not in text
    assert_hidden(text, path)


@pytest.mark.parametrize("header", ["Bearer hush", "Basic aHVzaA==", "hush", 'OAuth oauth_token="hush"', "OAuth hush"])
def test_credentials_are_in_no_recording(path: Path, header: str) -> None:
    text = record(path, headers={"Authorization": header})
    assert "hush" not in text
    assert "aHVzaA" not in text


@given(number=numbers, name=st.sampled_from(["phone_number", "id", "user_id", "x", "handle"]))
def test_a_long_number_is_hidden_and_stays_a_number(number: int, name: str) -> None:
    numbering = Numbering()
    hidden = hide_json(json.dumps({name: number, "again": str(number)}), numbering)

    assert hidden == json.dumps({name: f"#{name}-1", "again": f"{name}-1"}, separators=(",", ":"))
    assert numbering.take_digits() == {f"{name}-1": len(str(number))}
    assert json.loads(reveal_json(hidden, lambda _: str(number))) == {name: number, "again": str(number)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", "42"), ("userId", "42"), ("handle", "42"), ("oauth_verifier", "123456"), ("birthday", "1815-12-10")],
)
def test_a_short_number_and_a_time_are_hidden_where_they_are_personal(name: str, value: str) -> None:
    assert hide_value(name, value, Numbering()) == f"{name.lower()}-1"


def test_the_same_value_has_the_same_name_everywhere() -> None:
    numbering = Numbering()
    path = hide_path("/12/accounts/18ce54d4x5t/cards/5r", {"account_id": "18ce54d4x5t", "card_id": "5r"}, numbering)

    assert path == "/12/accounts/account_id-1/cards/card_id-1"
    assert hide_json('{"id":"5r","owner":"18ce54d4x5t","name":"x"}', numbering) == (
        '{"id":"card_id-1","owner":"account_id-1","name":"name-1"}'
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("created_at", "2026-06-10T12:00:00Z"),
        ("date", "Wed, 10 Jun 2026 12:00:00 GMT"),
        ("created_at", "Wed Jun 10 12:00:00 +0000 2026"),
        ("bid_amount_local_micro", "5000000000"),
        ("x-rate-limit-reset", "1781093700"),
        ("count", "1000"),
        ("event_type", "post.create"),
        ("parameter", "operations[2].params.users[0].email"),
        ("timezone", "Europe/Lisbon"),
        ("type", "https://api.example/2/problems/usage-capped"),
    ],
)
def test_what_a_program_decides_by_is_kept(name: str, value: str) -> None:
    assert hide_value(name, value, Numbering()) == value


def test_the_name_of_a_failure_is_kept_without_its_details() -> None:
    assert hide_value("detail", "CrcValidationFailed: at ada.example", Numbering()) == "CrcValidationFailed"


def list_enumerated() -> list[tuple[str, str]]:
    """Return the fields of the contract that have documented words, each with its words."""
    tables = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")) for name in ("enums", "records")}
    words = {row["id"]: row["values"] for row in tables["enums"]["enum"]}
    return [
        (field["name"].rpartition(".")[2].removesuffix("[]"), str(word))
        for record_ in tables["records"]["record"]
        for field in record_.get("field", ())
        for word in words.get(field.get("enum"), ())
    ]


def test_the_words_of_all_enumerations_are_kept() -> None:
    found = list_enumerated()
    assert len(found) > 100
    assert [(name, word) for name, word in found if hide_value(name, word, Numbering()) != word] == []


@pytest.mark.parametrize(
    "text", ["", "{", '{"a":1}', '{"a":1,"a":2}', "[1.10,1e3,-0,NaN]", "\ufeff{}", '{"a":"\\x"}', "]", "[" * 5_000]
)
def test_what_is_written_in_a_line_can_be_read_again(path: Path, text: str) -> None:
    written = record(path, answer=text.encode())
    line = msgspec.json.decode(written.splitlines()[1], type=RecordedExchange)

    assert line.answer is not None
    content = line.answer.content
    assert bytes(content.json).decode() in {text, ""}
    assert bool(content.text) is not (bytes(content.json) == text.encode())


@pytest.mark.parametrize("text", ["{", "[1,", '"a', "nope", "1 x", "}", "\x00"])
def test_a_text_that_is_no_json_is_told_apart_or_has_no_values(text: str) -> None:
    try:
        assert hide_json(text, Numbering()) in {"{", "[1,"}
    except NotJson:
        return
