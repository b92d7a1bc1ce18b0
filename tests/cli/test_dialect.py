"""`svc-async dialect check`: mistakes have their lines, and what has none is used with a sandbox."""

import pytest

from tests.support.command import Command
from tests.support.dialects import ACME, ACME_FILE


async def test_a_file_is_compared_with_the_contract_and_used(command: Command) -> None:
    ended = await command("dialect", "check", str(ACME_FILE), "--json")
    found = ended.result
    assert (ended.code, found["name"], found["mistakes"]) == (0, "acme", [])
    assert {(each["section"], each["word"], each["written"]) for each in found["mapped"]} >= {
        ("names", "svc_id", "acme_id"),
        ("values", "ALL_ON_SVC", "ALL_ON_ACME"),
    }
    assert {"section": "names", "word": "third_cta_post"} in found["left"]
    assert not any(each["word"] in ACME.names for each in found["left"])
    assert found["unknown"] == [{"section": "values", "word": "post.read", "line": 29, "proposal": "post.create"}]
    assert len(found["calls"]) > 5
    assert all(found["calls"].values())


async def test_mistakes_are_named_with_their_lines(command: Command) -> None:
    (command.folder / "a.toml").write_text('name = "a"\n[names]\nsvc_id = "name"\n[values]\nA = 1\n')
    ended = await command("dialect", "check", "a.toml", "--json")
    assert ended.code == 2
    assert [each["line"] for each in ended.result["mistakes"]] == [3, 5]


@pytest.mark.parametrize("name", ["none.toml", "."])
async def test_a_file_that_cannot_be_read_is_wrong_usage(command: Command, name: str) -> None:
    assert (await command("dialect", "check", name)).code == 2


async def test_a_call_that_fails_is_named(command: Command) -> None:
    # Its values have blanks, which a scope cannot have.
    (command.folder / "a.toml").write_text('name = "a"\n[values]\n"follow.read" = "may follow"\n')
    ended = await command("dialect", "check", "a.toml", "--json")
    assert ended.code == 1
    assert [call for call, worked in ended.result["calls"].items() if not worked] == ["login"]
