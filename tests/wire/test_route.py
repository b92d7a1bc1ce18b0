from collections.abc import Callable
from typing import Any

import attrs
import pytest

from svc_async.ads.accounts import Account
from svc_async.errors import InvalidArgument
from svc_async.wire.checks import between
from svc_async.wire.route import Listing, Reply, Route, Surface

ROW = Route("POST", "/12/accounts/{account_id}/things", Account, json=True)


def test_a_row_fills_its_path_and_keeps_the_template_and_the_ids() -> None:
    request = ROW(account_id="a b")

    assert (request.path, request.template) == ("/12/accounts/a%20b/things", ROW.path)
    assert request.scope == {"account_id": "a b"}


@pytest.mark.rule("GEN-15", "GEN-16")
def test_parameters_travel_in_the_query_or_in_the_body_as_the_row_says() -> None:
    in_body = ROW(account_id="a", name="n", count=None)

    assert (in_body.query, in_body.body) == ((), b'{"name":"n"}')
    in_query = Route("POST", ROW.path, Account)(account_id="a", name="n", count=None)

    assert (in_query.query, in_query.body) == ((("name", "n"),), None)


def test_a_listing_is_a_get_of_pages_on_its_host() -> None:
    request = Listing("/12/things", Account, surface=Surface.ADS_SANDBOX, checks=(between("count", 1, 5),))(count=6)

    assert (request.method, request.surface, request.reply) == ("GET", Surface.ADS_SANDBOX, Reply.PAGE)
    assert request.problem is not None


@pytest.mark.parametrize(("method", "safe"), [("GET", True), ("PUT", True), ("POST", False), ("DELETE", False)])
def test_what_may_be_done_twice(method: str, safe: bool) -> None:
    assert Route(method, "/x", Account)().safe_to_repeat is safe


def test_a_body_does_not_show() -> None:
    assert "Ada" not in repr(ROW(account_id="a", name="Ada"))


def test_logs_and_events_show_the_template_unless_another_path_is_to_be_shown() -> None:
    request = ROW(account_id="a b")

    assert request.public_path == ROW.path
    assert attrs.evolve(request, shown_path="/12/accounts/*").public_path == "/12/accounts/*"


def test_a_request_is_changed_by_its_copies() -> None:
    request = Route("GET", "/x", Account)(a=1)
    more = request.with_params(b="x y", c=None)

    assert (more.query, request.query) == ((("a", "1"), ("b", "x%20y")), (("a", "1"),))
    assert (request.with_body(b"{}").body, request.body) == (b"{}", None)
    first, second = InvalidArgument("a", "first"), InvalidArgument("b", "second")
    assert request.with_problem(None).problem is None
    assert request.with_problem(first).problem is first
    assert request.with_problem(first).with_problem(second).problem is first


@pytest.mark.parametrize(("reply", "name"), [(Reply.PAGE, "cursor"), (Reply.META_PAGE, "pagination_token")])
def test_the_next_page_is_requested_by_its_cursor(reply: Reply, name: str) -> None:
    request = Listing("/x", Account, reply=reply)(count=5)

    assert request.at("c/1").query == (("count", "5"), (name, "c%2F1"))
    assert request.at(None) == request


@pytest.mark.rule("AUTH-20b")
def test_a_form_is_in_the_body() -> None:
    request = Route("POST", "/x/{id}", Account, form=True)(id="i", name="a b", other=None, more="&")

    assert (request.query, request.body) == ((), b"name=a%20b&more=%26")
    assert request.content_type == "application/x-www-form-urlencoded"
    assert ROW(account_id="a").content_type == "application/json"
    assert Route("GET", "/x", Account)().content_type == "application/json"


def test_parameters_of_the_header_are_not_in_the_query() -> None:
    request = Route("POST", "/x", Account, oauth=("oauth_callback",))(oauth_callback="https://é", other=1)

    assert (request.query, request.oauth) == ((("other", "1"),), {"oauth_callback": "https://é"})
    assert Route("POST", "/x", Account)(other=1).oauth is None


def test_a_row_gives_its_settings_to_its_requests() -> None:
    row = Route("POST", "/x", Account, surface=Surface.BASE, reply=Reply.BODY, wrapper="w", decides=True)
    listing = Listing("/y", Account, method="PUT", surface=Surface.BASE, reply=Reply.META_PAGE, decides=True)

    for request, expected in ((row(), (Reply.BODY, "w")), (listing(), (Reply.META_PAGE, None))):
        assert (request.reply, request.wrapper) == expected
        assert (request.surface, request.into, request.decides) == (Surface.BASE, Account, True)
    assert (row().method, listing().method, listing().path) == ("POST", "PUT", "/y")


@pytest.mark.parametrize("make", [lambda: Route("GET", "/x", Account), lambda: Listing("/x", Account)])
def test_what_a_row_does_not_say(make: Callable[[], Any]) -> None:
    request = make()()

    assert (request.method, request.surface, request.query, request.body) == ("GET", Surface.ADS, (), None)
    assert (request.scope, request.oauth, request.wrapper, request.decides, request.problem) == (
        {},
        None,
        None,
        False,
        None,
    )


def test_neither_query_nor_header_shows() -> None:
    request = Route("GET", "/x", Account, oauth=("oauth_verifier",))(oauth_verifier="hush", name="Ada")
    assert "hush" not in repr(request)
    assert "Ada" not in repr(request)


def test_a_surface_is_named_as_in_the_contract() -> None:
    assert [surface.value for surface in Surface] == ["base", "ads", "ads_sandbox"]
