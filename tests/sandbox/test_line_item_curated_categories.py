async def test_answers(raw):
    got = await raw("GET", f"{raw.account}/line_item_curated_categories")
    assert got.status == 200, got.body

    got = await raw("GET", f"/12/accounts", {"q": "harb", "with_total_count": "true"})
    assert got.status == 200, got.body

    got = await raw.users([{"operation_type": "Update", "params": {"users": [{"email": ["aB" * 32]}]}}])

    got = await raw.users([{"operation_type": "Updte", "params": {"users": [{"email": ["aB" * 2]}]}}])
