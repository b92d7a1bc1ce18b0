"""A dialect changes whole words of JSON, queries, paths and headers, and nothing else."""

import json
import tomllib
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.wire.dialect import FREE_TEXT, Dialect
from svc_async.wire.dialect_file import find_mistakes
from svc_async.wire.envelope import Answer
from svc_async.wire.route import Reply, Request, Surface
from tests.support.contract_words import WORDS, list_words
from tests.support.dialects import ACME, ACME_FILE, EVERY_WORD, translate

NAMES = [*ACME.names, "id", "data", "scope", "parameter", "product_type", *sorted(FREE_TEXT)[::6], 'a"svc_id', "\\"]
TEXTS = [*ACME.values, *ACME.names, '"svc_id"', '\\"svc_id\\":', "post.read post.create", "é", "x", "", "svc_id\\"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)
WRITERS: Any = st.sampled_from(
    [
        lambda value: json.dumps(value, separators=(",", ":")),
        json.dumps,
        lambda value: json.dumps(value, indent=2, separators=(" ,", " : ")),
        lambda value: json.dumps(value, ensure_ascii=False),
    ]
)


def invert(words: Any) -> dict[str, str]:
    return {other: word for word, other in words.items()}


def test_the_words_are_those_of_the_contract_and_of_the_records() -> None:
    words = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    assert {section: set(found) for section, found in words.items()} == list_words()


@given(JSON, WRITERS)
def test_json_is_changed_as_plain_values_would_be_however_it_is_written(value: Any, write: Any) -> None:
    written = ACME.write_json(write(value).encode())
    assert json.loads(written) == translate(value, ACME.names, ACME.values)


@given(JSON, WRITERS)
def test_what_is_written_and_read_is_the_same_to_the_byte(value: Any, write: Any) -> None:
    body = write(value).encode()
    assert ACME.read_json(ACME.write_json(body)) == body


@given(JSON, WRITERS)
def test_every_word_may_be_another_one(value: Any, write: Any) -> None:
    body = write(value).encode()
    written = EVERY_WORD.write_json(body)
    assert json.loads(written) == translate(value, EVERY_WORD.names, EVERY_WORD.values)
    assert EVERY_WORD.read_json(written) == EVERY_WORD.serve_json(written) == body


@given(JSON, WRITERS)
def test_to_a_server_of_a_dialect_the_words_of_the_contract_mean_nothing(value: Any, write: Any) -> None:
    swapped = ({**ACME.names, **invert(ACME.names)}, {**ACME.values, **invert(ACME.values)})
    assert json.loads(ACME.serve_json(write(value).encode())) == translate(value, *swapped)


@pytest.mark.parametrize("scope", ["post.read", "post.read users.read post.create", ["post.read", "x"], "", None])
def test_a_scope_is_words_in_one_text_or_in_several(scope: Any) -> None:
    body = json.dumps({"scope": scope}).encode()
    written = json.loads(ACME.write_json(body))
    assert written == translate({"scope": scope}, ACME.names, ACME.values)
    assert ACME.read_json(json.dumps(written).encode()) == body


def test_what_has_no_word_of_the_dialect_is_not_copied() -> None:
    body = b'{"data":[{"id":"a","name":"PROMOTED_NOTES","text":"\\"acme_id\\":1"}]}'
    assert ACME.read_json(body) is body


REQUEST: Request[Any] = Request(method="POST", surface=Surface.ADS, template="/12/x", path="/12/x")


def make_request(**parts: Any) -> Request[Any]:
    return attrs.evolve(REQUEST, **parts)


def test_a_request_is_written_as_a_whole() -> None:
    written = ACME.write_request(
        make_request(
            path="/12/accounts/18ce/posts/7%2F8/name",
            query=(("post_mode", "a"), ("placements", "ALL_ON_SVC%2CX"), ("name", "ALL_ON_SVC"), ("q", "svc_id")),
            oauth={"svc_auth_access_type": "read"},
            body=b'{"svc_id":1}',
        )
    )
    assert written.path == "/12/accounts/18ce/notes/7%2F8/name"
    assert written.query == (
        ("note_mode", "a"),
        ("placements", "ALL_ON_ACME%2CX"),
        ("name", "ALL_ON_SVC"),
        ("q", "svc_id"),
    )
    assert written.oauth == {"acme_auth_access_type": "read"}
    assert written.body == b'{"acme_id":1}'


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"query": (("note_mode", "x"),)}, "note_mode"),
        ({"query": (("placements", "X%2CALL_ON_ACME"),)}, "placements"),
        ({"body": b'{"a":[{"acme_id" : 1}]}'}, "acme_id"),
        ({"body": b'{"product_type":["X", "PROMOTED_NOTES"]}'}, "product_type"),
        ({"body": b"scope=note.read+x", "content_type": "application/x-www-form-urlencoded"}, "scope"),
    ],
)
def test_a_word_of_the_platform_that_a_caller_passes_is_refused_with_its_field(part: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ACME.write_request(make_request(**part))
    assert caught.value.parameter == field


def test_free_text_is_neither_changed_nor_refused() -> None:
    body = json.dumps(dict.fromkeys(FREE_TEXT, "PROMOTED_NOTES") | {"keywords": ["ALL_ON_ACME", "ALL_ON_SVC"]}).encode()
    assert ACME.write_request(make_request(body=body)).body == body
    assert ACME.read_json(body) == body


def test_an_answer_keeps_what_came() -> None:
    answer = Answer(status=200, headers=CIMultiDict({"X-Acme-Webhooks-Signature": "s"}), body=b'{"acme_id":1}')
    read = ACME.read_answer(make_request(), answer)
    assert (read.body, read.received) == (b'{"svc_id":1}', b'{"acme_id":1}')
    assert read.headers["x-svc-webhooks-signature"] == "s"
    same = Answer(status=200, headers={"Date": "d"}, body=b"{}")
    assert ACME.read_answer(make_request(), same) is same


def test_a_form_is_read_and_written() -> None:
    form = b"acme_id=1&scope=note.read+users.read&name=ALL_ON_ACME"
    assert ACME.read_form(form) == b"svc_id=1&scope=post.read%20users.read&name=ALL_ON_ACME"
    answer = ACME.read_answer(make_request(reply=Reply.FORM), Answer(status=200, headers={}, body=form))
    assert answer.body == b"svc_id=1&scope=post.read%20users.read&name=ALL_ON_ACME"
    assert ACME.write_form(b"\xff=1") == b"\xff=1"


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("/12/accounts/a/note", "/12/accounts/a/post"),
        ("/12/accounts/a/cards", "/12/accounts/a/cards"),
        ("/12/accounts/a/post", None),
        ("/i/oauth2/authorize", "/2/oauth2/authorize"),
        ("/2/oauth2/authorize", None),
        ("/oauth/allow", "/oauth/authorize"),
    ],
)
def test_a_server_of_the_dialect_has_its_paths_only(path: str, ours: str | None) -> None:
    assert ACME.serve_path(path) == ours


CARDS = "/12/accounts/{account_id}/cards"
TILES = Dialect(
    name="tiles",
    paths={
        f"{CARDS}/{{card_id}}": "/tiles/{card_id}/of/{account_id}",
        f"{CARDS}/poll/{{card_id}}": "/p/{account_id}/{card_id}",
    },
)


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/12/accounts/a/cards/5", "/tiles/5/of/a"),
        ("/12/accounts/a/cards/poll", "/12/accounts/a/cards/poll"),
        ("/12/accounts/a/cards/poll/5", "/p/a/5"),
        ("/12/accounts/a/else", "/12/accounts/a/else"),
    ],
)
def test_a_path_is_that_of_the_template_with_the_fewest_ids(path: str, written: str) -> None:
    assert TILES.write_request(make_request(path=path)).path == written
    assert TILES.serve_path(written) == path


@pytest.mark.parametrize("path", ["/12/accounts/a/cards/5", "/tiles/poll/of/a"])
def test_a_path_that_no_request_has_is_not_served(path: str) -> None:
    assert TILES.serve_path(path) is None


@attrs.frozen
class Placement:
    product_type: str


Box = TypeVar("Box")


@attrs.frozen
class Boxed(Generic[Box]):
    product_type: Box


@pytest.mark.parametrize("model", [Placement, Boxed[str]])
def test_an_answer_is_read_in_our_words_for_a_model_of_the_caller(model: Any) -> None:
    answer = Answer(status=200, headers={}, body=b'{"data":{"product_type":"PROMOTED_NOTES"}}')
    assert b"PROMOTED_POSTS" in ACME.read_answer(make_request(into=model), answer).body


def test_a_page_may_stand_on_another_host() -> None:
    url = ACME.write_url("/2/oauth2/authorize?scope=post.read%20x&state=s", "https://api.acme.example")
    assert url == "https://login.acme.example/i/oauth2/authorize?scope=note.read%20x&state=s"
    assert (
        ACME.write_url("/oauth/authorize?a=b", "https://api.acme.example") == "https://api.acme.example/oauth/allow?a=b"
    )
    assert ACME.on_one_host().pages["/2/oauth2/authorize"] == "/i/oauth2/authorize"


def test_the_digest_is_that_of_the_words() -> None:
    words = {"names": ACME.names, "values": ACME.values}
    one, other = Dialect(name="a", **words), Dialect(name="b", **words)
    assert one == other
    assert one.digest == other.digest != ACME.digest


GOOD = ACME_FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("added", "key"),
    [
        ('[names]\nsvc_id = "name"', "names.svc_id"),
        ('[names]\nsvc_id = "payload"', "names.svc_id"),
        ('[names]\nsvc_id = "a"\npost_mode = "a"', "names.post_mode"),
        ('[names]\nsvc_id = "note"\nnote = "b"', "names.svc_id"),
        ("[names]\nsvc_id = 1", "names.svc_id"),
        ('[names]\nsvc_id = "a b"', "names.svc_id"),
        ('[names]\n"a b" = "c"', "names.a b"),
        ('[values]\nALL_ON_SVC = "A,B"', "values.ALL_ON_SVC"),
        ('[values]\nALL_ON_SVC = "ACTIVE"', "values.ALL_ON_SVC"),
        ('[headers]\nx-unknown = "x-a"', "headers.x-unknown"),
        ('[paths]\n"/12/nothing" = "/12/a"', "paths./12/nothing"),
        ('[paths]\n"/12/accounts/{account_id}/post" = "/12/a/{id}"', "paths./12/accounts/{account_id}/post"),
        (
            '[paths]\n"/12/accounts/{account_id}/post" = "/12/accounts/{account_id}/cards"',
            "paths./12/accounts/{account_id}/post",
        ),
        ('[pages]\n"/oauth/authorize" = "http://acme.example/x"', "pages./oauth/authorize"),
        ('[words]\na = "b"', "words"),
        ("names = 1", "names"),
    ],
)
def test_a_mistake_is_named_with_its_line(added: str, key: str) -> None:
    content = f'# a comment\nname = "x"\n{added}\n'
    (mistake,) = find_mistakes(content)
    assert mistake.rule.startswith(f"{key} ")
    last = max(number for number, line in enumerate(content.split("\n"), 1) if line)
    assert mistake.line == (last - 1 if key == "words" or "note = " in added else last)


@pytest.mark.parametrize(
    "line",
    [
        'names.svc_id = "name"',
        'names = {post_mode = "a", svc_id = "name"}',
        '["names"]\n\'svc_id\' = "name"',
        '[names]\n"svc\\u005fid" = "name"',
        '[names]\npost_mode = "a"\n[names.svc_id]',
        "[[names]]",
        "[words.more]",
    ],
)
def test_a_mistake_is_named_with_its_line_however_it_is_written(line: str) -> None:
    for end in ("\n", "\r\n"):
        content = f'# a comment\nname = "x"\n\n{line}\n\n[headers]\n'.replace("\n", end)
        assert [mistake.line for mistake in find_mistakes(content)] == [4 + line.count("\n")]


def test_a_file_that_is_not_toml_names_its_line(tmp_path: Path) -> None:
    assert [mistake.line for mistake in find_mistakes('name = "x"\n[names\n')] == [2]
    assert [mistake.line for mistake in find_mistakes("")] == [1]
    path = tmp_path / "a.toml"
    for content in (b"\xff", b"#" * 300_000, b"name = 1"):
        path.write_bytes(content)
        with pytest.raises(UnusableFile) as caught:
            Dialect.load(path)
        assert caught.value.parameter == "dialect"
    with pytest.raises(UnusableFile):
        Dialect.load(tmp_path)


def test_the_file_of_the_example_has_no_mistake() -> None:
    assert not find_mistakes(GOOD)
    assert ACME.name == "acme"


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ({"names": {"svc_id": "a", "post_mode": "a"}}, "dialect.names.post_mode"),
        ({"values": {"ALL_ON_SVC": "ACTIVE"}}, "dialect.values.ALL_ON_SVC"),
    ],
)
def test_words_that_are_given_in_python_keep_the_rules_of_a_file(words: Any, parameter: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Dialect(name="x", **words)
    assert caught.value.parameter == parameter
