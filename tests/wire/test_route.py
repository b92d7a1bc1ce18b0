import pytest

from svc_async.ads.accounts import Account
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
