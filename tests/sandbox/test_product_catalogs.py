import pytest

from svc_async.sandbox import Sandbox, SandboxConfig
from tests.support.raw_client import RawClient, open_raw_client

PATH = "/12/product_catalogs"
ME, OTHER, ANOTHERS = "756201191646691328", "913311844217532416", "2mb9xk41"


@pytest.mark.rule("PC-01", "PC-03", "GEN-03", "GEN-04")
async def test_a_catalog_is_made_and_listed(raw: RawClient) -> None:
    made = (await raw("POST", PATH, {"name": "Shop", "user_id": ME})).data
    assert (made.keys(), made["name"]) == ({"id", "name"}, "Shop")
    got = await raw("GET", PATH)
    assert (got.data, got.json["next_cursor"]) == ([made], None)
    assert (await raw("GET", PATH, {"user_id": ME})).data == [made]
    assert (await raw("GET", PATH, {"user_id": OTHER})).data == []


@pytest.mark.rule("PC-01", "GEN-11")
async def test_the_parameters_are_checked(raw: RawClient) -> None:
    assert (await raw("POST", PATH)).codes == [("MISSING_PARAMETER", "name")]
    assert (await raw("POST", PATH, {"name": "n", "user_id": OTHER})).codes == [("INVALID_PARAMETER", "user_id")]
    for method in ("GET", "POST"):
        got = await raw(method, PATH, {"user_id": "anna"} | ({} if method == "GET" else {"name": "n"}))
        assert (got.status, got.codes, got.rule) == (400, [("INVALID_PARAMETER", "user_id")], "PC-01")


@pytest.mark.rule("PC-01b")
async def test_a_user_has_one_catalog(raw: RawClient) -> None:
    await raw("POST", PATH, {"name": "Shop"})
    got = await raw("POST", PATH, {"name": "Second"})
    assert (got.status, got.rule) == (400, "PC-01b")
    async with (
        Sandbox(config=SandboxConfig(catalogs_per_user=None)) as sandbox,
        open_raw_client(sandbox) as other,
    ):
        for name in ("Shop", "Second"):
            assert (await other("POST", PATH, {"name": name})).status == 200
        assert len((await other("GET", PATH)).data) == 2


@pytest.mark.rule("PC-01")
async def test_a_catalog_is_renamed_by_its_user_only(raw: RawClient) -> None:
    made = (await raw("POST", PATH, {"name": "Shop"})).data
    assert (await raw("PUT", f"{PATH}/{made['id']}", {"name": "Books"})).data == made | {"name": "Books"}
    assert (await raw("PUT", f"{PATH}/{made['id']}")).codes == [("MISSING_PARAMETER", "name")]
    got = await raw("PUT", f"{PATH}/{ANOTHERS}", {"name": "Mine"})
    assert (got.status, got.codes) == (404, [("PRODUCT_CATALOG_NOT_FOUND", "product_catalog_id")])


@pytest.mark.rule("PC-04")
async def test_deletion_is_permanent_and_answers_the_catalog(raw: RawClient) -> None:
    made = (await raw("POST", PATH, {"name": "Shop"})).data
    assert (await raw("DELETE", f"{PATH}/{made['id']}")).data == made
    assert (await raw("GET", PATH)).data == []
    assert (await raw("DELETE", f"{PATH}/{made['id']}")).status == 404
    assert (await raw("GET", f"{PATH}/{made['id']}/products")).status == 404
    assert (await raw("POST", PATH, {"name": "Again"})).data["id"] != made["id"]


@pytest.mark.rule("PC-02")
@pytest.mark.parametrize("config", [SandboxConfig(closed_gates=frozenset({"early_access"}))])
async def test_all_of_it_is_in_early_access(raw: RawClient) -> None:
    gated = [operation for operation in raw.sandbox.operations if operation.path.startswith(PATH)]
    assert len(gated) == 10
    for operation in gated:
        path = operation.path.format(product_catalog_id="a", product_set_id="b")
        got = await raw(operation.method, path)
        assert (got.status, got.codes) == (403, [("UNAUTHORIZED_CLIENT_APPLICATION", None)])
        assert (got.rule, got.basis) == ("ASM-22", "assumed")
    assert (await raw("GET", raw.account)).status == 200
