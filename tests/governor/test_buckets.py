"""The buckets in use: which requests share them, and when one that is idle is forgotten."""

from svc_async.governor.fair_queue import Bucket
from svc_async.governor.limits import BucketTable, Limit, Scope
from svc_async.governor.window_store import WindowStore
from tests.support.rate_limits import build_request, card_list

APP = Limit("all", 5, 60.0, Scope.APP, frozenset({"GET"}), ".*")
USER = Limit("own", 5, 60.0, Scope.USER, frozenset({"GET"}), ".*")
TOTAL = Limit("total", 5, 60.0, Scope.USER, frozenset({"GET"}), ".*", with_total_count=True)
LIST = build_request("GET", "/12/x")


def make_table(*limits: Limit, busy: set[str] | None = None) -> BucketTable[object]:
    """Return a table whose buckets are idle, apart from those with these scopes."""

    def is_idle(bucket: Bucket[object]) -> bool:
        return busy is not None and bucket.scope not in busy

    return BucketTable(limits, headroom=1.0, windows=WindowStore(), is_idle=is_idle, on_change=lambda _: None)


def fill(table: BucketTable[object], count: int) -> None:
    for number in range(count):
        table.classify(LIST, f"u{number}")


def test_idle_buckets_are_forgotten_when_there_are_more_than_a_thousand() -> None:
    table = make_table(USER, busy={"user u3"})
    fill(table, 1_001)
    assert len(list(table)) == 1_001

    table.classify(LIST, "u0")
    assert len(list(table)) == 1_001, "it is known"
    table.classify(LIST, "another")

    assert [bucket.scope for bucket in table] == ["user u3", "user another"]


def test_a_bucket_that_was_forgotten_is_made_anew() -> None:
    table = make_table(USER, busy=set())
    before = table.classify(LIST, "u0")
    fill(table, 1_001)
    table.classify(LIST, "another")

    assert table.classify(LIST, "u0").buckets != before.buckets
    assert [bucket.scope for bucket in table] == ["user another", "user u0"]


def test_after_a_sweep_that_found_few_idle_buckets_the_next_is_at_twice_as_many() -> None:
    busy = {f"user u{number}" for number in range(1_001)}
    table = make_table(USER, busy=busy)
    fill(table, 1_001)
    table.classify(LIST, "another")  # sweeps in vain: 1,001 stay
    for number in range(1_000):
        table.classify(LIST, f"more{number}")
    assert len(list(table)) == 2_002
    table.classify(LIST, "the last one")
    assert len(list(table)) == 2_003
    table.classify(LIST, "one too many")

    assert len(list(table)) == 1_002


def test_after_a_sweep_that_found_many_idle_buckets_the_next_is_above_a_thousand_again() -> None:
    table = make_table(USER, busy=set())
    fill(table, 1_001)
    table.classify(LIST, "another")
    assert len(list(table)) == 1

    fill(table, 1_000)
    assert len(list(table)) == 1_001
    table.classify(LIST, "yet another")

    assert len(list(table)) == 1


def test_kinds_are_kept_for_4096_endpoints_users_and_accounts() -> None:
    table = make_table(APP)
    first = table.classify(LIST, "u0")
    fill(table, 4_096)
    assert table.classify(LIST, "u0") is first

    table.classify(LIST, "one too many")

    again = table.classify(LIST, "u0")
    assert again is not first
    assert again.buckets == first.buckets


def test_a_kind_is_one_endpoint_user_and_account_with_or_without_the_total_count() -> None:
    table = make_table(USER, TOTAL)
    requests = [
        card_list(),
        card_list("a2"),
        card_list(total=True),
        build_request("POST", "/12/x"),
        build_request("GET", "/12/x"),
    ]
    kinds = [table.classify(request, user) for request in requests for user in ("ann", "bob")]

    assert len(set(kinds)) == len(kinds)
    assert [table.classify(request, user) for request in requests for user in ("ann", "bob")] == kinds
    assert [(kind.account, kind.is_read) for kind in kinds[::2]] == [
        ("a1", True),
        ("a2", True),
        ("a1", True),
        ("", False),
        ("", True),
    ]
    assert [[bucket.name for bucket in kind.buckets] for kind in kinds[::2]] == [
        ["own"],
        ["own"],
        ["own", "total"],
        ["POST /12/x"],
        ["own"],
    ]


def test_a_limit_that_is_not_in_the_table_is_unknown_and_of_the_account() -> None:
    table = make_table()

    (bucket,) = table.classify(card_list("a1"), "ann").buckets

    assert (bucket.name, bucket.scope) == ("GET /12/accounts/{account_id}/cards", "account a1")
    assert (bucket.window.limit, bucket.window.documented, bucket.window.reserve) == (None, False, 0)


def test_other_values_of_the_total_count_are_none() -> None:
    table = make_table(USER, TOTAL)
    request = build_request("GET", "/12/x", query=[("with_total_count", "false"), ("count", "true")])

    assert [bucket.name for bucket in table.classify(request, "ann").buckets] == ["own"]
