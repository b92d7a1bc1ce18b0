import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.errors import InvalidArgument
from svc_async.wire.hmac_sha256 import SIGNATURE_HEADER, SigningKey, crc_answer, crc_token, is_signature, sign, verify
from tests.support.errors import has

KEY = SigningKey("test")
BODY = b'{"test_number":1,"test_string":"two"}'
SIGNATURE = "sha256=YWHphPn/JFq43jkF0y4/w8R/SelmLjvpunhVFY8JhlI="


@pytest.mark.rule("WH-35", "WH-40c")
@pytest.mark.parametrize(
    ("message", "signature"),
    [(BODY, SIGNATURE), (b"test=1&other_test=2", "sha256=25Cu3iwbbiqBTwQRzcKJZwisjf736V2Q8UaTlkfLSoc=")],
)
def test_the_published_vectors(message: bytes, signature: str) -> None:
    assert sign(KEY, message) == signature
    assert verify(KEY, message, signature)


@pytest.mark.rule("WH-35")
@pytest.mark.usefixtures("examples")
@given(st.text(alphabet="ABCxyz019+/=_-", min_size=1, max_size=256))
def test_a_crc_answer_is_the_keyed_hash_of_the_token(token: str) -> None:
    expected = base64.b64encode(hmac.new(b"test", token.encode(), hashlib.sha256).digest()).decode()
    assert json.loads(crc_answer(KEY, token)) == {"response_token": f"sha256={expected}"}


@pytest.mark.rule("WH-40c")
@pytest.mark.usefixtures("examples")
@given(st.binary(max_size=100), st.binary(max_size=100))
def test_only_the_signed_bytes_verify(signed: bytes, other: bytes) -> None:
    assert verify(KEY, other, sign(KEY, signed)) == (signed == other)
    assert not verify(SigningKey("test2"), signed, sign(KEY, signed))


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "sha256=",
        SIGNATURE.removeprefix("sha256="),
        SIGNATURE.replace("sha256", "SHA256"),
        SIGNATURE.rstrip("="),
        SIGNATURE + "=",
        SIGNATURE + "\n",
        f" {SIGNATURE}",
        SIGNATURE.replace("I=", "J="),
        SIGNATURE.replace("/", "_"),
        "sha256=" + base64.b64encode(bytes(31)).decode(),
        "sha256=" + base64.b64encode(bytes(33)).decode(),
        "sha256=" + hmac.new(b"test", BODY, hashlib.sha256).hexdigest(),
        "sha256=" + "\u0661" * 43 + "=",
        "sha256=" + "\udce9" * 43 + "=",
    ],
)
def test_what_is_written_otherwise_does_not_verify(signature: str) -> None:
    assert not verify(KEY, BODY, signature)


def test_a_forged_event_is_not_signed_as_a_crc_token() -> None:
    for forged in ('{"data":{}}', "{", '"', "a b", "a.b", "a\n", "", "a" * 257, "\u00e9", "\ud800"):
        with pytest.raises(InvalidArgument, check=has(parameter="crc_token")):
            crc_answer(KEY, forged)


@pytest.mark.parametrize("token", [None, b"abc", 5])
def test_what_is_no_token_is_not_signed(token: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="crc_token")):
        crc_answer(KEY, token)


@pytest.mark.parametrize(
    ("call", "arguments", "parameter"),
    [
        (crc_answer, ("test", "abc"), "key"),
        (sign, ("test", BODY), "key"),
        (sign, (KEY, BODY.decode()), "message"),
        (sign, (KEY, None), "message"),
        (verify, ("test", BODY, SIGNATURE), "key"),
        (verify, (KEY, BODY.decode(), SIGNATURE), "message"),
        (verify, (KEY, {}, ""), "message"),
        (verify, (KEY, BODY, SIGNATURE.encode()), "signature"),
        (verify, (KEY, BODY, None), "signature"),
        (is_signature, (None,), "text"),
        (crc_token, ("crc_token=abc",), "raw_query"),
        (crc_token, (None,), "raw_query"),
        (lambda key_id: SigningKey("test", key_id=key_id), (7,), "key_id"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(
    call: Callable[..., object], arguments: tuple[Any, ...], parameter: str
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
        call(*arguments)


@pytest.mark.parametrize("view", [bytearray, memoryview])
def test_other_views_of_bytes_are_signed_alike(view: Callable[[bytes], Any]) -> None:
    assert sign(KEY, view(BODY)) == SIGNATURE
    assert verify(KEY, view(BODY), SIGNATURE)


@pytest.mark.parametrize(
    ("query", "token"),
    [
        (b"crc_token=abc", "abc"),
        (b"nonce=1&crc_token=abc", "abc"),
        (b"crc_token=a%2Bb%2F%3D&nonce=1", "a+b/="),
        (b"crc_token=a+b", "a+b"),
        (b"crc%5Ftoken=abc", "abc"),
        (b"crc_token=ab==", "ab=="),
        (b"crc_token=" + b"a" * 256, "a" * 256),
    ],
)
def test_the_token_is_the_decoded_value_of_the_parameter(query: bytes, token: str) -> None:
    assert crc_token(query) == token


@pytest.mark.parametrize("query", [b"", b"nonce=1", b"crc_token=a&crc_token=a", b"crc_token=a&crc%5ftoken=b", b"&&"])
def test_a_query_holds_exactly_one_token(query: bytes) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="crc_token")):
        crc_token(query)


@pytest.mark.parametrize("query", [b"crc_token", b"crc_token=", b"crc_token=%7B%7D", b"crc_token=\xff", b"crc_token=%"])
def test_a_token_of_another_alphabet_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="crc_token")):
        crc_token(query)


@pytest.mark.parametrize("secret", ["", " test", "test\n", None, b"test"])
def test_a_key_needs_a_secret(secret: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="secret")) as caught:
        SigningKey(secret)
    assert "test" not in str(caught.value)


@pytest.mark.parametrize("header", ["", "x y", "x:", "\u00e9"])
def test_a_key_needs_the_name_of_a_header(header: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="header")):
        SigningKey("test", header=header)


@pytest.mark.rule("WH-40b")
def test_the_header_is_the_documented_one_and_a_key_never_shows_its_secret() -> None:
    assert KEY.header == SIGNATURE_HEADER == "x-svc-webhooks-signature"
    assert "'test'" not in repr(KEY)


@pytest.mark.parametrize("app", ["", "a\nb", "\u202e", 5])
def test_the_name_of_an_app_can_be_printed(app: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="app")):
        SigningKey("test", app=app)


def test_the_names_of_a_key_are_optional() -> None:
    assert (KEY.app, KEY.key_id) == (None, None)
    assert SigningKey("test", app="my app", key_id="7").app == "my app"


def test_the_form_of_a_signature_is_recognised() -> None:
    assert is_signature(SIGNATURE)
    assert is_signature("sha256=" + "A" * 43 + "=")
    assert not is_signature("sha1=abc")
    assert not is_signature(SIGNATURE + "=")
