import re
import sys
import tomllib
from hashlib import new, sha256
from pathlib import Path
from unittest.mock import Mock

import attrs
import phonenumbers
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

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
from svc_async.users.phone_numbers import find_unassigned
from svc_async.users.user_columns import InvalidValue, encode_column
from tests.support.errors import has


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def encode(identifier: Identifier, *texts: object) -> list[str]:
    """Encode a column, none of whose values may be refused."""
    problems: dict[int, InvalidValue] = {}
    tokens = encode_column(identifier, texts, problems).write_tokens()
    assert problems == {}
    return list(tokens)


def find_rule(identifier: Identifier, text: str) -> str:
    """Return the rule that a text breaks, alone and in a column of others that break it."""
    with pytest.raises(InvalidIdentifier) as caught:
        identifier.tokenize(text)
    problems: dict[int, InvalidValue] = {}
    encode_column(identifier, [text, text], problems)
    assert problems == dict.fromkeys((0, 1), InvalidValue(identifier.name, str(caught.value)))
    return str(caught.value)


@pytest.fixture
def no_phonenumbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the extra `phone` missing."""
    monkeypatch.setitem(sys.modules, "phonenumbers", None)


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
@pytest.mark.usefixtures("no_phonenumbers")  # nobody can have the published number
def test_published_phone_vector() -> None:
    token = IDENTIFIERS["phone_number"].tokenize("+11234567890")

    assert token.startswith("1fa6b8d9")
    assert token.endswith("4231")


@pytest.mark.rule("CAX-06", "CAX-07", "CAX-08")
@pytest.mark.parametrize(
    ("kind", "raw", "normal"),
    [
        ("email", "  Ann.Lee@Example.COM\t", "ann.lee@example.com"),
        ("email", "a+b@sub.example.org", "a+b@sub.example.org"),
        ("email", "O'Neil@my_host.EXAMPLE.org\xa0", "o'neil@my_host.example.org"),
        ("email", "JÖRG@Müller.de", "jörg@xn--mller-kva.de"),
        ("email", "jo\u0308rg@mu\u0308ller.de", "jörg@xn--mller-kva.de"),
        ("email", "jörg@XN--MLLER-KVA.de", "jörg@xn--mller-kva.de"),
        ("email", "用户@例子.公司", "用户@xn--fsqu00a.xn--55qx5d"),
        ("email", "a@my_host.straße.de", "a@my_host.xn--strae-oqa.de"),
        ("email", "a@STRAẞE.de", "a@xn--strae-oqa.de"),
        ("email", "ΟΔΟΣ@ΟΔΟΣ.gr", "οδος@xn--pxavbq.gr"),
        ("handle", " @Some_One ", "some_one"),
        ("handle", "SOMEONE", "someone"),
        ("svc_id", " 12345 ", "12345"),
        ("phone_number", "+1 (212) 555-01.01", "+12125550101"),
        ("phone_number", "+33.1.23.45.67.00", "+33123456700"),
        ("phone_number", "\u202a+49\u2011151\u201312345678\u202c", "+4915112345678"),
        ("phone_number", "\uff0b\uff14\uff19 151 123\u0664\u0665678", "+4915112345678"),
        ("phone_number", "+49\u200b 151\u2009123\u221245678", "+4915112345678"),
        ("phone_number", "'+4915112345678", "+4915112345678"),
        ("phone_number", "+39 06 1234 5678", "+390612345678"),
        ("device_id", "AEBE52E7-03EE-455A-B3C4-E57283966239", "aebe52e7-03ee-455a-b3c4-e57283966239"),
        ("device_id", "9774d56d682e549C", "9774d56d682e549C"),
    ],
)
def test_raw_values_are_normalised_and_hashed(kind: str, raw: str, normal: str) -> None:
    identifier = IDENTIFIERS[kind]

    assert identifier.tokenize(raw) == hashed(normal)
    assert encode(identifier, raw, raw.strip()) == [hashed(normal)] * 2


@pytest.mark.parametrize("kind", ["email", "handle", "svc_id", "phone_number", "device_id"])
def test_a_hash_is_not_hashed_again(kind: str) -> None:
    digest = hashed("x")
    identifier = IDENTIFIERS[kind]

    assert identifier.tokenize(f" {digest.upper()} ") == digest
    assert encode(identifier, digest.upper(), digest) == [digest, digest]


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
        "\u201da@b.org",
        "a@b.org\uff1b",
        "\uff41@b.org",
        "a\uff20b.org",
        "a@\uff42.org",
        "a@b\u3002org",
        "o\u2019neil@b.org",
        "\u212aelvin@b.org",
        "a@\u212aelvin.org",
        "\u0130s@b.org",
        "I\u0307s@b.org",
        "\u017fam@b.org",
        "\u263a@b.org",
        "a@ü_b.org",
        "a@ü-.org",
        "ü@b",
    ],
    "handle": ["@", "two words", "@@twice", "ünder", "a" * 51, "\u212aelvin", "\uff20ann"],
    "svc_id": ["12a", "-1", "1.5", "٣", "1" * 21],
    "phone_number": [
        "030 123456",
        "0049301234567",
        "+0123456789",
        "+12",
        "+1234567890123456",
        "+1123abc7890",
        "+49 (0)30 901820",
        "+49 0151 12345678",
        "+44 020 7946 0958",
        "+11111111111",
        "+49 151 1",
        "+999 123 4567",
        "''+4930901820",
    ],
    "device_id": ["aebe52e703ee455ab3c4e57283966239", "123", "aebe52e7-03ee-455a-b3c4"],
    "partner_user_id": ["a\ud800"],
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_without_being_repeated(kind: str, value: str) -> None:
    rule = find_rule(IDENTIFIERS[kind], value)

    assert len(value) == 1 or value not in rule


EXPORTED = ["NULL", "None", "nan", "#N/A", "(null)", "undefined", "#REF!", "<NA>", "NaT", "nil", "#¡VALOR!", r"\N"]
NOTHINGS = {
    "partner_user_id": [
        *(*EXPORTED, "0", "000", "-1", "0.0", "-", "--", "00000000-0000-0000-0000-000000000000"),
        *(hashed(""), "D41D8CD98F00B204E9800998ECF8427E"),
    ],
    "svc_id": ["0", "NULL", "00", "#N/A", hashed(""), hashed("NULL"), hashed("0")],
    "email": ["n/a", "-", *EXPORTED, hashed("").upper(), hashed("null"), hashed("None")],
    "phone_number": ["NULL", *EXPORTED, hashed(""), hashed("undefined")],
    "handle": ["None", "@nan", "0", *EXPORTED, hashed("nan"), hashed("")],
    "device_id": [
        *("00000000-0000-0000-0000-000000000000", "0" * 16, hashed("00000000-0000-0000-0000-000000000000"), "n/a"),
        *("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "f" * 16, hashed("")),
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NOTHINGS.items() for text in texts])
def test_a_text_that_stands_for_no_value_is_nobody_and_the_reason_says_what_to_do(kind: str, text: str) -> None:
    assert "empty=" in find_rule(IDENTIFIERS[kind], text)


def test_texts_for_no_value_are_found_among_the_values_of_a_column() -> None:
    device, handle = IDENTIFIERS["device_id"], IDENTIFIERS["handle"]
    for identifier, nothing, values in [
        (device, NOTHINGS["device_id"][0], [f"aebe52e7-03ee-455a-b3c4-e5728396{number:04x}" for number in range(600)]),
        (device, hashed(""), [hashed(str(number)) for number in range(1, 601)]),
        (handle, "none", [f"ann_{number}" for number in range(600)]),
    ]:
        expected = encode(identifier, *values)
        for index in (0, 300, 599):
            problems: dict[int, InvalidValue] = {}
            column = [*values[:index], nothing, "?", *values[index:]]
            tokens = encode_column(identifier, column, problems).write_tokens()
            assert list(problems) == [index, index + 1]
            assert list(tokens) == [*expected[:index], "", "", *expected[index:]]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("handle", "handle"), ("partner_user_id", "Partner User-ID"), ("handle", "@Handle")],
)
def test_a_header_that_is_repeated_is_nobody(kind: str, text: str) -> None:
    assert "header" in find_rule(IDENTIFIERS[kind], text)


@pytest.mark.parametrize("kind", [name for name in IDENTIFIERS if name != "partner_user_id"])
def test_other_hashes_are_named(kind: str) -> None:
    for algorithm in ("md5", "sha1", "sha512"):
        text = new(algorithm, b"a", usedforsecurity=False).hexdigest()
        assert find_rule(IDENTIFIERS[kind], text.upper()) == find_rule(IDENTIFIERS[kind], text)
        assert "MD5" in find_rule(IDENTIFIERS[kind], text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("phone_number", "+491512345678.0"),
        ("phone_number", "4.42079E+11"),
        ("svc_id", "805.0"),
        ("partner_user_id", "8.05E+11"),
        ("phone_number", "+49 151 2345678,00"),
        ("phone_number", "'491512345678.0"),
        ("partner_user_id", "805,0"),
    ],
)
def test_a_number_that_a_spreadsheet_has_rounded_fails_with_this_reason(kind: str, text: str) -> None:
    assert "spreadsheet" in find_rule(IDENTIFIERS[kind], text)
    if kind == "phone_number":
        assert "spreadsheet" in find_rule(select_identifiers("DE")[kind], text.replace("+49", "0"))


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
    assert partner.tokenize(" p 1\t") == "p 1"


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

    assert german.tokenize("+12125550101") == IDENTIFIERS["phone_number"].tokenize("+12125550101")

    for impossible in ("12", "nonsense"):
        with pytest.raises(InvalidIdentifier):
            german.tokenize(impossible)


@pytest.mark.parametrize(
    "text",
    [
        "030 901820",
        "+49 (0)30 901820",
        "'030/901820",
        "030 901820 ext. 12",
        "\u202a030\u2011901820",
        "0049 30 901820",
        "49 30 901820",
        "030 901820 x12",
        "\uff0b49 30 901820",
        "\u0660\u0663\u0660 901820",
    ],
)
def test_a_number_of_the_region_is_written_in_e164(text: str) -> None:
    assert encode(select_identifiers("DE")["phone_number"], text) == [hashed("+4930901820")]


@pytest.mark.parametrize(
    "text",
    [
        "030 12345 Max",
        "030 901820.0",
        "+49 0151 12345678",
        "Tel. 030 901820",
        "030 901820 Jo",
        "0049 0151 12345678",
        "030 901820 Max ext. 12",
        "030 901820 Max 12",
        "0800 FLOWERS",
        "+11111111111",
    ],
)
def test_neither_words_nor_zeros_make_a_number_of_somebody_else(text: str) -> None:
    find_rule(select_identifiers("DE")["phone_number"], text)


@pytest.mark.usefixtures("no_phonenumbers")
def test_without_the_extra_only_zeros_of_calls_within_the_country_are_found() -> None:
    phone = IDENTIFIERS["phone_number"]

    for number in ("+11111111111", "+390612345678", "+4915112345678", "+2250123456789"):
        assert encode(phone, number) == [hashed(number)]
    for code in (31, 32, 33, 34, 41, 43, 44, 45, 46, 47, 48, 49, 61, 64, 90, 91):
        assert "zero" in find_rule(phone, f"+{code} 0123 456789")


def list_examples() -> list[str]:
    regions = [(code, region) for code, each in phonenumbers.COUNTRY_CODE_TO_REGION_CODE.items() for region in each]
    found = [
        phonenumbers.example_number_for_non_geo_entity(code)
        if region == phonenumbers.REGION_CODE_FOR_NON_GEO_ENTITY
        else phonenumbers.example_number_for_type(region, kind)
        for code, region in regions
        for kind in phonenumbers.PhoneNumberType.values()
    ]
    return sorted({phonenumbers.format_number(each, phonenumbers.PhoneNumberFormat.E164) for each in found if each})


def is_possible(number: str) -> bool:
    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return False
    written = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
    return phonenumbers.is_valid_number(parsed) and written == number


EXAMPLES = list_examples()
edits = st.lists(st.tuples(st.integers(1, 15), st.sampled_from(["", *"0123456789", "00"])), max_size=5)


@pytest.mark.usefixtures("examples")
@given(st.sampled_from(EXAMPLES), edits)
def test_a_number_is_accepted_if_and_only_if_the_library_accepts_it(
    number: str, changes: list[tuple[int, str]]
) -> None:
    for place, digits in changes:
        number = number[:place] + digits + number[place + 1 :]
    assume(re.fullmatch(r"\+[1-9][0-9]{6,14}", number))

    assert bool(find_unassigned([number])) is not is_possible(number)


@pytest.mark.long("all of them")
def test_patterns_accept_nearly_all_numbers_that_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = Mock(side_effect=phonenumbers.parse)
    monkeypatch.setattr(phonenumbers, "parse", parse)

    assert not find_unassigned(EXAMPLES)
    assert parse.call_count < len(EXAMPLES) / 50


def test_an_unknown_region_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="phone_region")):
        select_identifiers("XX")


@pytest.mark.usefixtures("no_phonenumbers")
def test_the_missing_extra_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"svc-async\[phone\]"):
        select_identifiers("DE")


@pytest.mark.parametrize(
    "pattern",
    ["[0-9a-f]{64}", "[a-z0-9_]+", "[0-9]{1,64}", "[0-9A-F]{64}", "b[0-9a-f]+", ".*", "[0-9a-f]{63}7", "[0-9a-f-]{64}"],
)
def test_a_kind_whose_raw_form_may_be_a_hash_is_refused(pattern: str) -> None:
    # It would be sent unhashed.
    with pytest.raises(InvalidArgument, check=has(parameter="pattern")):
        HashedIdentifier(name="loyalty_card", pattern=pattern, rule="must be a card")


def test_patterns_never_match_a_hash() -> None:
    # A hash that looked like a plain value would be hashed twice.
    for identifier in IDENTIFIERS.values():
        if isinstance(identifier, HashedIdentifier):
            assert identifier.tokenize("1" * 64) == "1" * 64
