from datetime import UTC, datetime

import pytest

from svc_async.sandbox.state.store import Ids, Store


def store() -> Store:
    return Store(seed=7, now=lambda: datetime(2026, 6, 10, tzinfo=UTC))


def test_a_failed_transaction_leaves_no_trace() -> None:
    kept = store()
    row = kept["cards"].add("a", {"id": "1", "name": "before"})

    def fail() -> None:
        with kept.transaction():
            kept["cards"].change(row, name="after")
            kept["cards"].delete(kept["cards"].add("a", {"id": "2"}))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert [dict(found.fields)["name"] for found in kept["cards"]] == ["before"]
    with kept.transaction():
        kept["cards"].change(row, name="after")
    assert [dict(found.fields)["name"] for found in kept["cards"]] == ["after"]


def test_a_record_is_found_by_its_owner_and_while_it_lives() -> None:
    cards = store()["cards"]
    row = cards.add("a", {"id": "1"})
    assert cards.get("1") == cards.get("1", owner="a") == row
    assert cards.get("1", owner="b") is None
    cards.delete(row)
    assert (cards.get("1"), len(cards)) == (None, 1)
    assert cards.get("1", with_deleted=True) is not None


def test_ids_grow_are_short_and_depend_on_the_seed() -> None:
    ids = Ids(7)
    drawn = [ids.next("account", 11) for _ in range(100)]
    assert drawn == sorted(set(drawn))
    assert {len(each) for each in drawn} == {11}
    assert Ids(7).next("account", 11) == drawn[0] != Ids(8).next("account", 11)
    assert ids.secret("token") == Ids(7).secret("token") != ids.secret("other")
