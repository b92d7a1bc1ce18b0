import traceback

import pytest

from svc_async import Endpoints, InvalidArgument
from svc_async.wire.base_urls import proxy_url
from svc_async.wire.route import Surface
from tests.support.errors import has


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://API.Example.test/", "https://api.example.test"),
        ("https://api.example.test:443/v/", "https://api.example.test/v"),
        ("https://api.example.test:8443", "https://api.example.test:8443"),
        ("http://127.0.0.1:80/ads", "http://127.0.0.1/ads"),
        ("http://[::1]:9/ads", "http://[::1]:9/ads"),
        ("http://localhost:1234", "http://localhost:1234"),
    ],
)
def test_urls_are_kept_in_the_form_that_is_signed(given: str, kept: str) -> None:
    assert Endpoints(base_url=given, ads_url=given).ads_url == kept


@pytest.mark.rule("AUTH-10")
@pytest.mark.parametrize("url", ["http://api.example.test", "http://10.0.0.1", "ftp://localhost", "ws://127.0.0.1"])
def test_plain_http_is_for_loopback_only(url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="ads_url")):
        Endpoints(base_url="https://a.example.test", ads_url=url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.test",
        "https://",
        "https://u:p@a.example.test",
        "https://:p@a.example.test",
        "https://@a.example.test",
        "https://a.example.test?x=1",
        "https://a.example.test#x",
        "https://a:x",
        "https://a:0",
        "https://a.example.test/x y",
        "https://a.example.test/é",
        "https://é.example.test",
        5,
    ],
)
def test_what_is_no_base_url_is_refused(url: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="base_url")):
        Endpoints(base_url=url, ads_url="https://a.example.test")  # type: ignore[arg-type]  # wrong on purpose


def test_a_call_to_the_sandbox_host_says_when_there_is_none() -> None:
    endpoints = Endpoints(base_url="https://a.example.test", ads_url="https://b.example.test")

    assert endpoints.of(Surface.ADS) == "https://b.example.test"
    with pytest.raises(InvalidArgument, check=has(parameter="ads_sandbox_url")):
        endpoints.of(Surface.ADS_SANDBOX)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://proxy.example.test:3128", "http://proxy.example.test:3128"),
        ("https://user:pass@proxy.example.test", "https://user:pass@proxy.example.test"),
        ("proxy.example.test:3128", "http://proxy.example.test:3128"),
    ],
)
def test_a_proxy_without_a_scheme_is_an_http_proxy(given: str, kept: str) -> None:
    assert proxy_url(given) == kept


@pytest.mark.parametrize(
    "url", ["socks5://u:hush@proxy.example.test:1080", "http://", "http://u:hush@a:x", "https//u:hush@a:1", " ", "a b"]
)
def test_what_is_no_http_proxy_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="proxy")) as caught:
        proxy_url(url)

    assert "hush" not in str(caught.value)
    frames = [frame for frame, _ in traceback.walk_tb(caught.tb) if frame.f_globals["__name__"] != __name__]
    assert [name for frame in frames for name, value in frame.f_locals.items() if "hush" in repr(value)] == []
