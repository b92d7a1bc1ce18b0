"""However a person is written, and in whatever container, it is the same person, and nobody else."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import idna
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import parquet

from svc_async.sources.detect import open_source
from svc_async.sources.rows import from_arrow
from svc_async.users.encoding import MemberEncoder
from svc_async.users.identifiers import IDENTIFIERS, InvalidIdentifier
from svc_async.users.user_columns import SEPARATOR, UserColumns
from tests.support.files import read_rows

Values = Sequence[str | Sequence[str]]

LETTERS = "abiksxz\u00e9\u00f6\u00e5\u0142\u1ea1\u03b4\u03c9\u0436\u0439\u7528\u6237\u05d0\uac00"
"""Some have two normal forms: é, ö, å, ạ, й, and the syllable of Hangul."""
words = st.text(LETTERS, min_size=1, max_size=6)
host_labels = st.text("abkxz\u00e9\u00f6\u00e5\u1ea1", min_size=1, max_size=6) | st.sampled_from(
    ["stra\u00dfe", "\u7528"]
)
PEOPLE: dict[str, st.SearchStrategy[str]] = {
    "partner_user_id": st.from_regex(r"[A-Za-z]{1,4}-[1-9][0-9]{0,5}", fullmatch=True),
    "svc_id": st.integers(1, 10**19).map(str),
    "email": st.builds("{}@{}.{}".format, words, host_labels, st.sampled_from(["org", "\u516c\u53f8", "co.uk"])),
    "phone_number": st.integers(1_000_000, 9_999_999).map("+4930{}".format),
    "handle": st.from_regex(r"[a-z]{2,9}_[0-9]{1,3}", fullmatch=True),
    "device_id": st.integers(2**64, 2**127).map(lambda number: str(UUID(int=number))),
}
kinds = st.sampled_from([*PEOPLE])


def hash_normal(kind: str, person: str) -> str:
    """Return what is to be sent of a person who is written in lower case and NFC."""
    if kind == "partner_user_id":
        return person
    local, at, host = person.rpartition("@")
    normal = f"{local}@{idna.encode(host, uts46=True).decode()}" if at else person
    return sha256(normal.encode()).hexdigest()


@st.composite
def spellings(draw: st.DrawFn, kind: str, person: str) -> str:
    """Write a person otherwise."""
    if kind in {"email", "handle", "device_id"}:
        changes: list[Callable[[str], str]] = [str.lower, str.upper, str.title]
        change = draw(st.sampled_from(changes))
        person = "".join(each if each == "\u00df" else change(each) for each in person)
    person = unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])), person)
    if kind == "email" and draw(st.booleans()):
        local, _, host = unicodedata.normalize("NFC", person).rpartition("@")
        person = f"{local}@{idna.encode(host, uts46=True).decode()}"
    if kind == "handle":
        person = draw(st.sampled_from(["", "@"])) + person
    if kind == "phone_number":
        places = draw(st.lists(st.integers(1, len(person) - 1), max_size=3))
        for place in places:
            person = person[:place] + draw(st.sampled_from(" -.\u2011\u00a0\u200b")) + person[place:]
        person = draw(st.sampled_from(["", "'", "\u202a"])) + person
    blanks = st.text(" \t\u00a0\u3000", max_size=2)
    return draw(blanks) + person + draw(blanks)


def encode_csv(kind: str, values: Values, folder: Path) -> UserColumns:
    text = io.StringIO()
    csv.writer(text).writerows([[kind], *([each] for each in values)])
    return encode_file(text.getvalue().encode(), folder)


def encode_json_lines(kind: str, values: Values, folder: Path) -> UserColumns:
    return encode_file("".join(json.dumps({kind: each}) + "\n" for each in values).encode(), folder)


def encode_parquet(kind: str, values: Values, folder: Path) -> UserColumns:
    content = io.BytesIO()
    parquet.write_table(pa.table({kind: values}), content)
    return encode_file(content.getvalue(), folder)


def encode_file(content: bytes, folder: Path) -> UserColumns:
    path = folder / "file"
    path.write_bytes(content)
    with closing(open_source(path)) as source:
        rows = source.rows()
        return MemberEncoder().for_rows(rows.columns).hash(read_rows(rows))


def encode_arrow(kind: str, values: Values, _: Path) -> UserColumns:
    batches: Any = from_arrow(pa.table({kind: values})).batches
    return MemberEncoder().for_rows([kind]).hash([row for batch in batches for row in zip(*batch, strict=True)])


def encode_mappings(kind: str, values: Values, _: Path) -> UserColumns:
    return MemberEncoder().hash([{kind: each} for each in values])


CONTAINERS: list[Callable[[str, Values, Path], UserColumns]] = [
    encode_csv,
    encode_json_lines,
    encode_parquet,
    encode_arrow,
    encode_mappings,
]


@pytest.mark.usefixtures("examples")
@given(data=st.data())
def test_a_person_is_one_person_however_it_is_written(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, encode = data.draw(kinds), data.draw(st.sampled_from(CONTAINERS))
    most = 1 if encode is encode_csv else 3
    rows = data.draw(st.lists(st.lists(PEOPLE[kind], min_size=1, max_size=most, unique=True), min_size=1, max_size=5))
    is_hashed = kind != "partner_user_id" and data.draw(st.booleans())
    written = [
        [
            hash_normal(kind, each).upper() if is_hashed else data.draw(spellings(kind, each))
            for each in data.draw(st.permutations(row))
        ]
        for row in rows
    ]
    values = [row[0] for row in written] if encode is encode_csv else written

    found = encode(kind, values, tmp_path_factory.getbasetemp())

    assert found.invalid == {}
    tokens = [{*each.split(SEPARATOR)} for each in found.columns[kind].write_tokens()]
    assert tokens == [{hash_normal(kind, each) for each in row} for row in rows]


STRANGE = (
    "\u212a\u0130\u0131\u017f\uff4b\uff21\u2019\u201d\uff1b\u037e\u1fef"
    "\u00aa\u00b2\u2460\ufb01\u0663\uff17\u200b\u3002\uff0e\u00ad"
)
"""Characters that resemble others, or become others when they are normalised."""


def tokenize(kind: str, text: str) -> str | None:
    try:
        return IDENTIFIERS[kind].tokenize(text)
    except InvalidIdentifier:
        return None


@pytest.mark.usefixtures("examples")
@given(data=st.data())
def test_another_character_makes_another_person_or_none(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    person = data.draw(PEOPLE[kind])
    places = st.integers(0, len(person) - 1)
    resembling = [
        (place, each)
        for place, at in enumerate(person)
        for each in STRANGE
        if at in unicodedata.normalize("NFKC", each).lower()
    ]
    any_character = st.tuples(places, st.characters(exclude_categories=["Cs"]))
    place, character = data.draw(st.sampled_from(resembling) | any_character if resembling else any_character)
    other = person[:place] + character + person[place + 1 :]
    same = [person.strip("@"), other.strip("@")]
    if kind == "phone_number":  # a digit of any script is that digit
        same = [re.sub("[-. ()]", "", "".join(str(unicodedata.decimal(at, at)) for at in each)) for each in same]
    is_other_case = kind != "partner_user_id" and character.isascii() is person[place].isascii()
    assume(len(set(map(str.lower, same) if is_other_case else same)) == 2)
    assume(kind != "phone_number" or unicodedata.category(character) not in {"Cf", "Pd", "Zs"})

    token = tokenize(kind, other)
    assert token is None or token != tokenize(kind, person)
    if token is not None and kind != "partner_user_id":
        forms = {unicodedata.normalize(form, other) for form in ("NFC", "NFD", "NFKC")}
        assert {tokenize(kind, each) for each in forms} == {token}
