"""What a call has proved itself with is in nothing that is said about it."""

import html
import json
from base64 import b64encode
from urllib.parse import quote

import pytest

from svc_async.wire.redaction import NO_SECRETS, Secrets, find_secrets

SECRET = "a+b/c=&é~long"
QUOTED = quote(SECRET, safe="")
HEADERS = {
    "Bearer": f"Bearer {SECRET}",
    "Basic": f"Basic {b64encode(f'key:{QUOTED}'.encode()).decode()}",
    "OAuth": f'OAuth oauth_consumer_key="key", oauth_token="{QUOTED}", oauth_signature="abcdef"',
}
FORMS = {
    "plain": SECRET,
    "JSON": json.dumps(SECRET)[1:-1],
    "JSON of others": json.dumps(SECRET)[1:-1].replace("/", "\\/").replace("+", "\\u002B").replace("&", "\\u0026"),
    "URL": quote(SECRET, safe=""),
    "URL in lower case": quote(SECRET, safe="").lower(),
    "HTML": html.escape(SECRET).replace("+", "&#43;").replace("=", "&#x3D;"),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_removed_however_it_is_escaped(header: str, form: str) -> None:
    secrets = find_secrets(header)
    assert secrets.hide(f"bad token <{form}>, key".encode()).decode() == "bad token <…>, key"
    assert secrets.hide_headers({"WWW-Authenticate": f"Bearer {form}"}) == {"www-authenticate": "Bearer …"}
    assert header not in secrets.hide(header.encode()).decode()
    assert "long" not in repr(secrets)


@pytest.mark.parametrize("name", ["refresh_token", "code", "code_verifier", "client_secret", "token", "oauth_verifier"])
def test_secret_parameters_are_removed(name: str) -> None:
    form = f"grant_type=x&{name}={quote(SECRET, safe='')}".encode()
    for secrets in (find_secrets("", form=form), find_secrets("", [(name, quote(SECRET, safe=""))])):
        assert secrets.hide(f"{name} {SECRET} is x".encode()).decode() == f"{name} … is x"


def test_what_is_too_short_or_no_secret_stays() -> None:
    assert find_secrets("Bearer short", [("q", "long words"), ("token", "tiny")]) == Secrets([])
    text = b"long words"
    assert NO_SECRETS.hide(text) is text
