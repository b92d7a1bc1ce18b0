"""A column of values gives what each of its values gives alone."""

import re
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.users.identifiers import IDENTIFIERS, HashedIdentifier, Identifier, select_identifiers
from svc_async.users.user_columns import SEPARATOR, InvalidValue, encode_column, tokenize_value

HASH = sha256(b"x").hexdigest()
PLAIN_SAMPLES = (
    "a@b.cd",
    "@a",
    "+12125550101",
    "+1 (212)\u00a0555-01.01",
    "+49 0151 12345678",
    "+11111111111",
    "'+4930901820",
    "+4930901820.0",
    "abc",
    "7",
    "0",
    "NULL",
    "handle",
    "8.05E+11",
    "9774d56d682e549C",
    HASH,
    HASH.upper(),
    sha256(b"").hexdigest(),
    HASH[:32],
    "00000000-0000-0000-0000-000000000000",
)
ODD_SAMPLES = (
    "",
    " ",
    "A@B.CD ",
    "\tc@d.ef\n",
    "j\u00f6rg@b.cd",
    "\u2003a@b.cd",
    "\u212aelvin@b.cd",
    "\u0130s@b.cd",
    "j\u00f6rg@b\u00fccher.cd",
    "\u201da@b.cd",
    "a@b.cd\nc@d.ef",
    f" {HASH} ",
    f"{HASH}\n{HASH}",
    "\ud800@b.cd",
    "x" * 64,
)
SAMPLES = (*PLAIN_SAMPLES, *ODD_SAMPLES)
texts = st.text(max_size=8) | st.sampled_from(SAMPLES)
values = texts | st.none() | st.integers() | st.booleans() | st.lists(texts, max_size=3) | st.just(1.5) | st.just(b"a")
KINDS: list[Identifier] = [*IDENTIFIERS.values(), select_identifiers("DE")["phone_number"]]


def encode_one_by_one(identifier: Identifier, column: list[Any]) -> tuple[list[str], dict[int, InvalidValue]]:
    problems: dict[int, InvalidValue] = {}
    tokens = [tokenize_value(identifier, value, index, problems) for index, value in enumerate(column)]
    return list(map(SEPARATOR.join, tokens)), problems


def encode_at_once(identifier: Identifier, column: list[Any]) -> tuple[list[str], dict[int, InvalidValue]]:
    problems: dict[int, InvalidValue] = {}
    return list(encode_column(identifier, column, problems).write_tokens()), problems


@pytest.mark.usefixtures("examples")
@given(st.lists(values, max_size=40))
def test_a_column_of_any_values_gives_what_each_value_gives_alone(column: list[Any]) -> None:
    for identifier in KINDS:
        assert encode_at_once(identifier, column) == encode_one_by_one(identifier, column)


PLAIN = {
    "partner_user_id": "p{}",
    "svc_id": "{}",
    "email": "u{}@b.cd",
    "phone_number": "+4930{:07}",
    "handle": "@h{}",
    "device_id": "9774d56d682e{:04}",
}


@pytest.mark.usefixtures("examples")
@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.integers(0, 63), values, max_size=6),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.randoms(use_true_random=False),
)
def test_a_few_odd_values_among_plain_ones_change_no_others(
    identifier: Identifier, odd: dict[int, Any], hashed: bool, missing: float, random: Any
) -> None:
    column: list[Any] = [PLAIN[identifier.name].format(number) for number in range(64)]
    if hashed:
        column = [sha256(each.encode()).hexdigest() for each in column]
    column = [None if random.random() < missing else each for each in column]
    for index, value in odd.items():
        column[index] = value

    assert encode_at_once(identifier, column) == encode_one_by_one(identifier, column)


def test_only_values_that_are_refused_get_a_closer_look() -> None:
    looked_at: list[str] = []

    def explain(text: str) -> None:
        looked_at.append(text)

    identifier = HashedIdentifier(name="number", pattern="[0-9]{1,9}", rule="must be a number", explain=explain)
    problems: dict[int, InvalidValue] = {}
    column = [str(number) for number in range(512)]
    column[100] = column[300] = "bad"
    tokens = encode_column(identifier, column, problems).write_tokens()

    assert looked_at == ["bad", "bad"]
    assert problems == dict.fromkeys((100, 300), InvalidValue("number", "must be a number"))
    assert tokens == ["" if text == "bad" else sha256(text.encode()).hexdigest() for text in column]


@pytest.mark.parametrize(
    "place", ["{}@b.cd", "a{}a@b.cd", "a@{}.cd", "a@b{}b.cd", "a@b.{}", "a@b.c{}d", "a{}b.cd", "a@b{}cd"]
)
def test_no_address_with_a_character_beyond_ascii_is_hashed_without_a_closer_look(place: str) -> None:
    email = IDENTIFIERS["email"]
    assert isinstance(email, HashedIdentifier)
    for character in map(chr, range(0x80, 0x3000)):
        found = email.hash_all([place.format(character)], most_refused=1)
        assert found is None or found.refused == [0], hex(ord(character))


@pytest.mark.parametrize("kind", [name for name in IDENTIFIERS if name not in {"email", "partner_user_id"}])
def test_the_other_patterns_accept_no_character_beyond_ascii_and_no_blanks(kind: str) -> None:
    identifier = IDENTIFIERS[kind]
    assert isinstance(identifier, HashedIdentifier)
    plain = identifier.clean(PLAIN[kind].format(1))
    assert re.fullmatch(identifier.pattern, plain)
    for character in [*map(chr, range(0x80, 0x3000)), *" \t\n\v\f\r\x1c\x1d\x1e\x1f"]:
        for index in (0, len(plain) // 2, len(plain)):
            assert not re.fullmatch(identifier.pattern, plain[:index] + character + plain[index:])
