import tomllib
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from svc_async.ads.custom_audiences import AudienceUser
from svc_async.ads.dicts import DoNotReachMemberDict, MemberDict
from svc_async.ads.do_not_reach_lists import DoNotReachUser
from svc_async.errors import InvalidArgument
from svc_async.sandbox.api.ads import custom_audiences as sandbox_audience_calls
from svc_async.sandbox.state import audiences as sandbox_audiences
from svc_async.sync.user_slices import KINDS as NUMBERS_IN_STATES
from svc_async.users.identifiers import (
    IDENTIFIERS,
    HashedIdentifier,
    Identifier,
    InvalidIdentifier,
    PartnerId,
    is_hash,
    select_identifiers,
)
from svc_async.users.names import DO_NOT_REACH_USERS
from svc_async.users.user_columns import encode_column
from tests.support.errors import has


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def hash_texts(identifier: Identifier, texts: list[str]) -> list[str] | None:
    """Hash trimmed texts at once, none of which may be refused."""
    assert isinstance(identifier, HashedIdentifier)
    found = identifier.hash_all(texts, most_refused=0, trimmed=True)
    return None if found is None else found.digests.hex("\n", 32).split("\n")


def read_contract(enum: str) -> set[str]:
    path = Path(__file__).parents[1] / "contract" / "enums.toml"
    return next({*row["values"]} for row in tomllib.loads(path.read_text())["enum"] if row["id"] == enum)


@pytest.mark.rule("CAU-07", "DNR-03")
def test_the_client_the_sandbox_and_the_contract_know_the_same_kinds_of_identifiers() -> None:
    kinds = read_contract("AudienceUserKey")
    assert {*IDENTIFIERS} == {*attrs.fields_dict(AudienceUser)} == {*MemberDict.__annotations__} == kinds
    assert {*NUMBERS_IN_STATES} == {*sandbox_audiences.KEY_ORDER} == kinds
    assert kinds - sandbox_audience_calls.HASHED == {
        name for name, each in IDENTIFIERS.items() if isinstance(each, PartnerId)
    }
    assert tuple(IDENTIFIERS) == sandbox_audiences.KEY_ORDER  # the first that a row has is its key

    of_lists = read_contract("DoNotReachUserKey")
    assert {*DO_NOT_REACH_USERS.keys} == {*attrs.fields_dict(DoNotReachUser)} == of_lists
    assert {*DoNotReachMemberDict.__annotations__} == of_lists


@pytest.mark.rule("CAU-08")
def test_published_phone_vector() -> None:
    token = IDENTIFIERS["phone_number"].tokenize("+11234567890")

    assert token.startswith("1fa6b8d9")
    assert token.endswith("4231")


@pytest.mark.parametrize(
    ("kind", "raw", "normal"),
    [
        ("email", "  Ann.Lee@Example.COM\t", "ann.lee@example.com"),
        ("email", "a+b@sub.example.org", "a+b@sub.example.org"),
        ("email", "jörg@exämple.de", "jörg@exämple.de"),
        ("email", "O'Neil@my_host.EXAMPLE.org\xa0", "o'neil@my_host.example.org"),
        ("email", "用户@例子.公司", "用户@例子.公司"),
        ("email", "jo\u0308rg@xn--mller-kva.de", "jo\u0308rg@xn--mller-kva.de"),
        ("handle", " @Some_One ", "some_one"),
        ("handle", "SOMEONE", "someone"),
        ("svc_id", " 12345 ", "12345"),
        ("phone_number", "+1 (123) 456-78.90", "+11234567890"),
        ("device_id", "AEBE52E7-03EE-455A-B3C4-E57283966239", "aebe52e7-03ee-455a-b3c4-e57283966239"),
        ("device_id", "9774d56d682e549C", "9774d56d682e549C"),
    ],
)
def test_raw_values_are_normalised_and_hashed(kind: str, raw: str, normal: str) -> None:
    identifier = IDENTIFIERS[kind]

    assert identifier.tokenize(raw) == hashed(normal)
    assert hash_texts(identifier, [raw.strip()] * 2) == [hashed(normal)] * 2


@pytest.mark.parametrize("kind", ["email", "handle", "svc_id", "phone_number", "device_id"])
def test_a_hash_is_not_hashed_again(kind: str) -> None:
    digest = hashed("x")
    identifier = IDENTIFIERS[kind]

    assert identifier.tokenize(f" {digest.upper()} ") == digest
    assert hash_texts(identifier, [digest.upper(), digest]) == [digest, digest]


BAD = {
    "email": [
        "plain",
        "@example.org",
        "a@",
        "a@b",
        "a@b..org",
        "a@.org",
        "a@b.",
        "a b@c.org",
        "a@b@c.org",
        "a@b.org,c@d.org",
        "Ann <a@b.org>",
        "a@b.org\nc@d.org",
        "a@b.org^+4930123456",
        "a@b.org|x",
        "a@b.org/x",
        "a@b.org?subject=x",
        "'a@b.org'",
        "a@b.org\u200b",
        "\ufeffa@b.org",
        "a\xad@b.org",
        "a@b\u2060.org",
        "a@b.org\u202c",
    ],
    "handle": ["@", "two words", "@@twice", "ünder", "a" * 51],
    "svc_id": ["12a", "-1", "1.5", "٣", "1" * 21],
    "phone_number": [
        "030 123456",
        "0049301234567",
        "+0123456789",
        "+12",
        "+1234567890123456",
        "+1123abc7890",
        "+49 (0)30 901820",
    ],
    "device_id": ["aebe52e703ee455ab3c4e57283966239", "123", "aebe52e7-03ee-455a-b3c4"],
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_without_being_repeated(kind: str, value: str) -> None:
    identifier = IDENTIFIERS[kind]

    assert hash_texts(identifier, [value]) is None

    with pytest.raises(InvalidIdentifier) as caught:
        identifier.tokenize(value)

    assert len(value) == 1 or value not in str(caught.value)


@pytest.mark.parametrize("kind", IDENTIFIERS)
def test_blank_text_is_no_identifier(kind: str) -> None:
    identifier = IDENTIFIERS[kind]

    assert identifier.tokenize(" \t") == ""

    assert encode_column(identifier, [None, "", " \t", []], {}).write_tokens() == [""] * 4


@pytest.mark.rule("CAU-08")
def test_partner_ids_are_escaped_and_never_hashed() -> None:
    partner = IDENTIFIERS["partner_user_id"]

    assert partner.tokenize('a"b\\c\nü😀') == 'a\\"b\\\\c\\n\\u00fc\\ud83d\\ude00'

    digest = hashed("x").upper()

    assert partner.tokenize(digest) == digest


@pytest.mark.parametrize("kind", ["email", "partner_user_id"])
def test_invalid_unicode_is_refused(kind: str) -> None:
    with pytest.raises(InvalidIdentifier):
        IDENTIFIERS[kind].tokenize("a\ud800@example.org")


def test_a_hash_is_distinguished_from_other_text() -> None:
    assert is_hash("A" * 64)
    assert not is_hash("g" * 64)
    assert not is_hash("a" * 63)
    assert not is_hash(None)


def test_national_numbers_need_a_region() -> None:
    with pytest.raises(InvalidIdentifier):
        IDENTIFIERS["phone_number"].tokenize("030 901820")
    german = select_identifiers("DE")["phone_number"]

    assert german.tokenize("030 901820") == hashed("+4930901820")
    assert german.tokenize("+49 (0)30 901820") == hashed("+4930901820")
    assert german.tokenize("+11234567890") == IDENTIFIERS["phone_number"].tokenize("+11234567890")

    for impossible in ("12", "nonsense"):
        with pytest.raises(InvalidIdentifier):
            german.tokenize(impossible)


def test_an_unknown_region_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="phone_region")):
        select_identifiers("XX")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "phonenumbers", None)
    with pytest.raises(InvalidArgument, match=r"svc-async\[phone\]"):
        select_identifiers("DE")


def test_patterns_never_match_a_hash() -> None:
    # A hash that looked like a plain value would be hashed twice.
    for identifier in IDENTIFIERS.values():
        if isinstance(identifier, HashedIdentifier):
            assert identifier.tokenize("1" * 64) == "1" * 64
