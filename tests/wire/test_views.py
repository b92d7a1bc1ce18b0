"""Records, pages and events as plain values, as JSON and in notebooks."""

import json
from typing import Any

import attrs
import pytest

from svc_async.ads.accounts import Account
from svc_async.ads.vocabulary import BatchCounts
from svc_async.events.models import Event, EventPost, MatchedPost, PostCreated
from svc_async.notebook import render_fields, render_rows
from svc_async.platform.oauth1_flow import AccessToken
from svc_async.platform.oauth2 import AppToken
from svc_async.wire.envelope import Page, Unreadable
from svc_async.wire.reading import read_as
from svc_async.wire.records import Record
from tests.support.html import HtmlReader
from tests.support.kinds import find_kinds

ACCOUNT = read_as(
    Account,
    {
        "id": "a1",
        "name": "<script>alert(1)</script>",
        "timezone": "Europe/Vienna",
        "approval_status": "ACCEPTED",
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:05Z",
        "deleted": False,
    },
)


def test_a_record_is_shown_with_its_fields_and_nothing_of_it_is_html() -> None:
    shown = HtmlReader(ACCOUNT._repr_html_())
    assert set(shown.tags) == {"div", "table", "caption", "tr", "th", "td"}
    assert shown.texts[:5] == ["Account", "id", "a1", "name", "<script>alert(1)</script>"]
    assert "business_name" not in shown.texts


def test_a_page_is_plain_values_and_a_table() -> None:
    page = Page(
        items=[ACCOUNT, attrs.evolve(ACCOUNT, name="Other")],
        next_cursor="c",
        unreadable=(Unreadable(raw={"id": 7}, problem="Account.name is missing"),),
    )
    assert json.loads(page.to_json()) == {
        "items": [ACCOUNT.to_dict(), {**ACCOUNT.to_dict(), "name": "Other"}],
        "next_cursor": "c",
        "total_count": None,
        "unreadable": [{"raw": {"id": 7}, "problem": "Account.name is missing"}],
    }
    shown = HtmlReader(page._repr_html_())
    assert shown.texts[:3] == ["2 records (Account), 1 unreadable; more pages follow", "id", "name"]
    assert "Other" in shown.texts


def test_a_page_of_plain_values_and_an_empty_page_are_shown() -> None:
    assert HtmlReader(Page[object](items=[{"a": 1}, 7])._repr_html_()).texts == [
        "2 records (dict); the last page",
        "a",
        "1",
        "7",
    ]
    assert HtmlReader(Page[int](items=[7])._repr_html_()).texts[0] == "1 record (int); the last page"
    assert HtmlReader(Page[int](items=())._repr_html_()).texts == ["0 records; the last page"]


def test_what_is_shown_is_bounded_and_on_one_line() -> None:
    fields = HtmlReader(render_fields("t", {f"f{index}": "x" * 10_000 + "\n" for index in range(1_000)}))
    assert len(fields.texts) == 1 + 2 * 40 + 1
    assert fields.texts[-1] == "960 more fields not shown"
    assert max(map(len, fields.texts)) == 200
    rows = HtmlReader(render_rows("t", [{f"c{index}": "\x1b" for index in range(50)}] * 1_000))
    assert len(rows.texts) == 1 + 12 + 20 * 12 + 1
    assert rows.texts[-2:] == ["\\x1b", "980 more records and 38 more fields not shown"]


def test_a_record_without_optional_fields_is_shown() -> None:
    assert HtmlReader(BatchCounts(success_count=0, total_count=0)._repr_html_()).texts[1:3] == ["success_count", "0"]


def test_text_is_aligned_to_the_left_and_numbers_to_the_right() -> None:
    fields = render_fields("t", {"name": "Anna", "size": 1_234_567, "deleted": False})
    assert '<td style="text-align:left">Anna</td>' in fields
    assert '<td style="text-align:right">1,234,567</td>' in fields
    assert '<td style="text-align:left">False</td>' in fields
    rows = render_rows("t", [{"name": "Anna"}, {"name": "Bo", "size": 2}])
    assert '<th scope="col" style="text-align:left">name</th><th scope="col" style="text-align:right">size</th>' in rows
    assert '<td style="text-align:right">2</td>' in rows


def hides(kind: Any) -> bool:
    fields = attrs.fields(kind)
    return any(not each.repr for each in fields if each.name != "_extra")


HIDING: list[Any] = [kind for base in (Record, Event) for kind in find_kinds(base) if hides(kind)]


def make(kind: Any) -> Any:
    """Return a value whose fields say whether its repr shows them."""
    fields = [each for each in attrs.fields(kind) if each.name != "_extra"]
    extra = {"extra": {"unknown": "hidden"}} if issubclass(kind, Record) else {}
    return kind(**{each.alias: "shown" if each.repr else "hidden" for each in fields}, **extra)


def test_the_records_with_secrets_and_the_events_are_found() -> None:
    assert {AccessToken, AppToken, EventPost, PostCreated, MatchedPost} <= {*HIDING}


@pytest.mark.parametrize("kind", HIDING)
def test_what_a_repr_leaves_out_is_not_shown_in_a_notebook(kind: Any) -> None:
    value = make(kind)
    assert "hidden" not in repr(value)
    assert "hidden" not in value._repr_html_()
    assert "hidden" not in Page[Any](items=[value])._repr_html_()


def test_a_record_within_a_record_is_shown_as_its_repr_is() -> None:
    post = EventPost(id="7", author_id="8", text="hidden", entities={"urls": ["hidden"]})
    event = PostCreated(key="k", event_type="post.create", raw={"text": "hidden"}, payload="hidden", post=post)
    shown = HtmlReader(event._repr_html_()).texts
    assert shown[:5] == ["PostCreated", "key", "k", "event_type", "post.create"]
    assert shown[-2:] == ["post", "{'id': '7', 'author_id': '8'}"]
    assert "hidden" not in shown


def test_of_what_did_not_fit_the_name_is_shown() -> None:
    account = read_as(Account, {**ACCOUNT.to_dict(), "business_name": 7, "deleted": False})
    assert account.extra == {"business_name": 7}
    assert HtmlReader(account._repr_html_()).texts[-2:] == ["extra", "business_name"]
