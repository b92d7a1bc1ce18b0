"""What holds for each kind of record of an account: how it is listed, chosen, read and deleted."""

from typing import Any

import attrs
import pytest

from tests.support.raw_client import RawClient

DATES = {"created_at", "updated_at", "deleted"}
POLL = {"duration_in_minutes": "60", "first_choice": "Prose", "second_choice": "Verse"}
CONVERSATION = {
    "first_cta": "#ReadMore",
    "first_cta_post": "I read more",
    "media_key": "7_880301",
    "thank_you_text": "Thanks",
    "title": "Read with us",
}


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of record.

    Attributes:
        path: of the list, below the account.
        key: the parameter of the path that names a record.
        size: how many the list shows, in the order of creation.
        made: the requests that create them, where the seed has none.
        gone: how many deleted ones the seed has.
        fields: besides dates and the id.
        code: of the refusal of an unknown id; by default, from its parameter.
        chosen: queries, with the positions of the records that they list; `{1}` is the id of the second one.
        others: a record that belongs to another account.
        deleted: what becomes of a deleted record.
    """

    path: str
    key: str
    size: int
    made: tuple[dict[str, str], ...] = ()
    gone: int = 0
    fields: set[str] | None = None
    code: str | None = None
    chosen: tuple[tuple[dict[str, str], list[int]], ...] = ()
    others: str = "nothing"
    deleted: str = "kept"

    @property
    def id(self) -> str:
        return "media_key" if self.key == "media_key" else "id"


KINDS = {
    "apps": Kind(
        path="account_apps",
        key="",
        size=2,
        gone=1,
        fields={"app_store_identifier", "conversion_tracking_enabled", "deep_link_pattern", "os_type"},
        chosen=(({"sort_by": "os_type-desc"}, [1, 0]),),
        deleted="",
    ),
    "account media": Kind(
        path="account_media",
        key="account_media_id",
        size=2,
        fields={"creative_type", "video_id", "media_url"},
        chosen=(
            ({"account_media_ids": "{1},nothing"}, [1]),
            ({"creative_types": "BANNER,PREROLL"}, [0]),
            ({"creative_types": "BANNER", "account_media_ids": "{1}"}, []),
            ({"sort_by": "creative_type-desc"}, [1, 0]),
        ),
        others="2wrfs",
    ),
    "custom audiences": Kind(
        path="custom_audiences",
        key="custom_audience_id",
        size=3,
        made=({"name": "Readers"}, {"name": "Another", "description": "Of the spring"}),
        fields={
            "name",
            "description",
            "audience_type",
            "audience_size",
            "targetable",
            "reasons_not_targetable",
            "targetable_types",
            "permission_level",
            "owner_account_id",
            "partner_source",
        },
        code="TAILORED_AUDIENCE_NOT_FOUND",
        chosen=(
            ({"custom_audience_ids": "{1},nothing,1nmti"}, [1]),
            ({"q": "READ"}, [1]),
            ({"sort_by": "name-asc"}, [2, 0, 1]),
            ({"permission_scope": "SHARED"}, []),
            ({"permission_scope": "OWNER", "q": "x" * 255}, []),
        ),
        others="1nmti",
    ),
    "curated categories of line items": Kind(
        path="line_item_curated_categories",
        key="line_item_curated_category_id",
        size=2,
        fields={"line_item_id", "curated_category_id"},
    ),
    "media library": Kind(
        path="media_library",
        key="media_key",
        size=6,
        chosen=(
            ({"media_type": "GIF"}, [3]),
            ({"q": "SPRING"}, [0]),
            ({"q": "window spring"}, [0]),
            ({"q": "welcome"}, [4]),
            ({"q": "walk through"}, [4]),
            ({"q": "pages.gif"}, [3]),
            ({"q": "evening"}, [5]),
            ({"q": "spri"}, []),
            ({"q": "spring evening"}, []),
            ({"q": "x" * 255}, []),
        ),
        others="3_880501",
    ),
    "poll cards": Kind(
        path="cards/poll",
        key="card_id",
        size=2,
        made=(POLL | {"name": "What next"}, POLL | {"name": "Another"}),
        chosen=(
            ({"card_ids": "{1},nothing"}, [1]),
            ({"q": "WHAT"}, [0]),
            ({"sort_by": "name-asc"}, [1, 0]),
        ),
        deleted="removed",
    ),
    "video conversation cards": Kind(
        path="cards/video_conversation",
        key="card_id",
        size=2,
        made=(CONVERSATION | {"name": "Reading"}, CONVERSATION | {"name": "Another"}),
        chosen=(
            ({"card_ids": "{1},nothing"}, [1]),
            ({"q": "READ"}, [0]),
            ({"sort_by": "name-asc", "with_deleted": "true"}, [1, 0]),
        ),
        deleted="",
    ),
}


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def path(raw: RawClient, kind: Kind) -> str:
    return f"{raw.account}/{kind.path}"


@pytest.fixture
async def ids(raw: RawClient, kind: Kind, path: str) -> list[str]:
    """The ids of the records, in the order of their creation."""
    for body in kind.made:
        await raw("POST", path, body)
    return await list_ids(raw, kind, path)


async def list_ids(raw: RawClient, kind: Kind, path: str, **query: Any) -> list[str]:
    return [record[kind.id] for record in (await raw("GET", path, query)).data]


of_kinds = pytest.mark.parametrize("kind", KINDS, indirect=True)
of_deletable = pytest.mark.parametrize("kind", [name for name in KINDS if KINDS[name].deleted], indirect=True)
of_readable = pytest.mark.parametrize("kind", [name for name in KINDS if KINDS[name].key], indirect=True)


@pytest.mark.rule(
    "ACC-08", "AM-01", "AM-03", "CA-04", "LICC-01", "ML-01", "POLL-09", "VCC-07", "GEN-04", "GEN-12", "GEN-12b"
)
@of_kinds
async def test_the_list_shows_the_records_of_the_account(raw: RawClient, kind: Kind, path: str, ids: list[str]) -> None:
    got = await raw("GET", path)
    assert got.json.keys() == {"request", "next_cursor", "data"}
    assert (len(ids), kind.others in ids) == (kind.size, False)
    assert all(record["created_at"] == "2026-06-10T12:00:00Z" for record in got.data)
    if kind.fields is not None:
        assert all(record.keys() == kind.fields | DATES | {"id"} for record in got.data)


@pytest.mark.rule("AM-01", "CA-04", "CA-05", "ML-01", "ML-01b", "POLL-09", "VCC-07", "GEN-17", "LIM-07")
@of_kinds
async def test_parameters_choose_and_sort(
    raw: RawClient, kind: Kind, path: str, ids: list[str], subtests: pytest.Subtests
) -> None:
    for query, found in kind.chosen:
        with subtests.test(query=query):
            filled = {name: value.format(*ids) for name, value in query.items()}
            assert await list_ids(raw, kind, path, **filled) == [ids[index] for index in found]


@pytest.mark.rule("ACC-08", "AM-01", "POLL-09", "VCC-07", "GEN-04b", "GEN-06", "GEN-08")
@of_kinds
async def test_the_list_is_cut_into_pages_and_counted(raw: RawClient, kind: Kind, path: str, ids: list[str]) -> None:
    counted = {} if kind.path == "media_library" else {"with_total_count": "true"}
    first = await raw("GET", path, {"count": 1, **counted})
    assert first.json.get("total_count") == (kind.size if counted else None)
    rest = await list_ids(raw, kind, path, cursor=first.json["next_cursor"])
    assert [first.data[0][kind.id], *rest] == ids


@pytest.mark.rule("AM-03", "CA-11", "LICC-02", "ML-05", "POLL-07", "VCC-06", "GEN-03")
@of_readable
async def test_one_is_read_but_not_another_s(raw: RawClient, kind: Kind, path: str, ids: list[str]) -> None:
    listed = (await raw("GET", path)).data
    got = await raw("GET", f"{path}/{ids[0]}")
    assert (got.json.keys(), got.data) == ({"request", "data"}, listed[0])
    for unknown in ("nothing", kind.others):
        got = await raw("GET", f"{path}/{unknown}")
        code = kind.code or f"{kind.key.rpartition('_')[0].upper()}_NOT_FOUND"
        assert (got.status, got.codes) == (404, [(code, kind.key)])


@pytest.mark.rule("AM-01b", "CA-10", "CARD-15", "LICC-02", "LICC-05", "ML-04", "POLL-06", "GEN-14", "GEN-14b")
@of_deletable
async def test_deletion_is_final(raw: RawClient, kind: Kind, path: str, ids: list[str]) -> None:
    one = f"{path}/{ids[0]}"
    assert (await raw("DELETE", one, {"with_deleted": "true"})).status == 400
    got = await raw("DELETE", one)
    assert (got.data[kind.id], got.data["deleted"]) == (ids[0], True)
    assert await list_ids(raw, kind, path) == ids[1:]
    assert (await raw("GET", one)).status == 404
    assert (await raw("DELETE", one)).status == 404
    if kind.path != "media_library":
        kept = ids if kind.deleted == "kept" else ids[1:]
        assert await list_ids(raw, kind, path, with_deleted="true") == kept
        again = await raw("GET", one, {"with_deleted": "true"})
        assert again.status == (200 if kind.deleted == "kept" else 404)


@pytest.mark.rule("ACC-08", "GEN-14b")
@pytest.mark.parametrize("kind", [name for name in KINDS if KINDS[name].gone], indirect=True)
async def test_what_the_seed_deleted_is_listed_on_demand(raw: RawClient, kind: Kind, path: str, ids: list[str]) -> None:
    got = (await raw("GET", path, {"with_deleted": "true"})).data
    assert [record["deleted"] for record in got] == [False] * len(ids) + [True] * kind.gone
