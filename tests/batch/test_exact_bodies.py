"""Given rows always become the same bytes: the constants below were computed when they were first sent."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.settings import JobSizes
from svc_async.errors import ErrorDetail
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.members import Members
from svc_async.users.tables import Rows
from tests.support.fake_service import FakeService, Outcome, adds_up, make_error
from tests.support.user_operations import hash_value

LIMITS = Limits(operations=300, size=140_000)
SIZES = JobSizes(partition_rows=700)
FOUR = ("email", "phone_number", "handle", "svc_id")
COUNT = 3_000


def make_person(number: int) -> tuple[str, str, str, str]:
    return f"Ann{number}@Example.org", f"+4366{number:09}", f"@Ann_{number}", f"{10**9 + number}"


def leave_out(number: int, row: tuple[str, ...]) -> tuple[str | None, ...]:
    """Return a row with some of its values, at least one."""
    kept = number * 7 % 15 + 1
    return tuple(value if kept >> place & 1 else None for place, value in enumerate(row))


def make_member(number: int) -> Mapping[str, object]:
    """Return a member with other keys than those of other slices."""
    row = dict(zip(FOUR, make_person(number), strict=True))
    return {name: row[name] for name in FOUR[: number // 512 % 4 + 1]}


def make_repeated(number: int) -> tuple[str]:
    """Return a row that equals an earlier one in three of ten cases."""
    return make_person(number if number % 10 < 7 else number // 10)[:1]


PEOPLE = [make_person(number) for number in range(COUNT)]
MEMBERS: Mapping[str, Members] = {
    "one e-mail": Rows(("email",), [row[:1] for row in PEOPLE]),
    "hashes": Rows(("email",), [(sha256(b"%d" % number).hexdigest().upper(),) for number in range(COUNT)]),
    "four": Rows(FOUR, PEOPLE),
    "four with gaps": Rows(FOUR, [leave_out(number, row) for number, row in enumerate(PEOPLE)]),
    "one bad row in 512": Rows(
        FOUR, [row if number % 512 != 99 else ("no address", *row[1:]) for number, row in enumerate(PEOPLE)]
    ),
    "repeated": Rows(("email",), [make_repeated(number) for number in range(COUNT)]),
    "several values": Rows(
        FOUR,
        [
            row if number // 512 != 2 else ((row[0], f"second{number}@example.org"), *row[1:])
            for number, row in enumerate(PEOPLE)
        ],
    ),
    "partner ids": Rows(
        ("partner_user_id", "email"),
        [(f"p\u00e4{number}" if number % 3 else None, row[0]) for number, row in enumerate(PEOPLE)],
    ),
    "other keys in each slice": [make_member(number) for number in range(COUNT)],
}
SHORT = {"one e-mail", "four with gaps", "repeated", "other keys in each slice"}
CASES = pytest.mark.parametrize(
    ("name", "per_operation"),
    [
        *(pytest.param(name, 1, marks=pytest.mark.long) for name in MEMBERS),
        *(pytest.param(name, 25, marks=() if name in SHORT else pytest.mark.long) for name in MEMBERS),
    ],
)
"""All members, one or many an operation; in the short tier those that are quick and differ most."""
REFUSALS: Mapping[int, Outcome] = {
    1: make_error(400, operation_errors={index: (ErrorDetail(code="NO", message="no"),) for index in (0, 3, 4)}),
    4: make_error(413),
    5: make_error(413),
}
DIGESTS: Mapping[tuple[str, int], str] = {
    ("one e-mail", 1): "993aecc6a40178d15dd3a704cf5500654e3cdfaa4adc5128c529ea4b7bf90adb",
    ("one e-mail", 25): "15722309fd4a7bd98f0ee0006e2285e6fb1dace252b312a4a37855aa5181fa08",
    ("hashes", 1): "a27ac5d7165682da36268e105fd091178f4ce19a4f0c9ce319c0171ea0c75450",
    ("hashes", 25): "4f55332533771101fba9bedcee0ff48b1e39ae1b383443748e1e1c1a1ce393b0",
    ("four", 1): "0699a7c5dd05190019c4caad9052689f046535910300ca61e7ce4c3162a64897",
    ("four", 25): "3a8d837366943207dd9fe6104ee0f06be59f3f85db121ad42c1d79bede8c8e20",
    ("four with gaps", 1): "ce782bda97e1aee96066b51a347c83ae373eed44c4212cb08a0a3ed5fb8ff048",
    ("four with gaps", 25): "4291637f53f35179d1be96e89c969134b54ddad7255310309fb6502ab90e3e8b",
    ("one bad row in 512", 1): "451ad4d31a7b6d9733bef5449a974e94cd711535821b96eb576b28cae1ec8706",
    ("one bad row in 512", 25): "d9a34503afa70d02d97e72f1d8a0ce17382977d19e4c1c02925f1215305013a7",
    ("repeated", 1): "3a5a3948c8c50dfe3603b6a0fbffe69f06a3f9ea160d65a5e79916e8b6bd43bd",
    ("repeated", 25): "2de640bcdc1138e135553a5b5740ef87a7cfdf2d5faba2c3361b11799fc5a0af",
    ("several values", 1): "f91b17a9b2ef9e9a6dae3d0e3cd26d359c3265e34123218b56eb7dfdc4556232",
    ("several values", 25): "2257060479cd465bf073465159a6452e8681c7f0530359e8e765d5878905f3ea",
    ("partner ids", 1): "5c56087888874092c1154e512ef536f4b69652afcdba982d30a38ddcbdfd15fc",
    ("partner ids", 25): "a416c7caa5b91e696ae8244d68c3aeabb99be11ced5078f227b5e858b874f143",
    ("other keys in each slice", 1): "646335a16e7181a46473368a09edebfee1ebecb2f5ace043c902476245a2a452",
    ("other keys in each slice", 25): "d527a1f40baa450a903f3b56ca9b06dfc30adaba90402c73bd99d60db35c4dec",
}
DIGESTS_AFTER_REFUSALS: Mapping[tuple[str, int], str] = {
    ("one e-mail", 1): "3ed2105e12c8200cdbf01b38a326a57ea7781df96c93ab6df4f89d79850a61a3",
    ("one e-mail", 25): "8f5aca4d94ebea3b1ef661682b5c27df0afcecd144345960e0f827a47b1b4130",
    ("hashes", 1): "6c5868bd84557479d9c31a4b7076c94580270a753a4caceb21845350cf6b6916",
    ("hashes", 25): "54bc760949137f0ee6459865520e29c513b03497d2414b902ea00d8110c1ca25",
    ("four", 1): "a987b9f9850f7a7496ce60b41e1e326123fca53631e726ddf0fe6228f3433988",
    ("four", 25): "eff4259249dd2c19048b968440084c33b821f63eaaa0733c84d8bb94cedc775c",
    ("four with gaps", 1): "de74fad0054673803c4ea75ba86d468124e89e39f19feb7a81618474fe497653",
    ("four with gaps", 25): "7ba792fc2dd1f5b042025a4287fa07858aa0386155c0c80848f931114ae7c781",
    ("one bad row in 512", 1): "4ca69b5daf69175c3eee9f8d211897f13fd6b14f9b3008a4729d90ab54c0e5f4",
    ("one bad row in 512", 25): "646342450735aa327218300f31405b3a7614a9d154830dc02696454cc12a19e8",
    ("repeated", 1): "1c66f97f3d453a7a632281eb6dd0fc21daee2be44f6f5d919c013f92a4290e33",
    ("repeated", 25): "b29cc1d69fab14e84526f4fe4f36e895bac7e872c49b7e88cd5a600d6e04fce1",
    ("several values", 1): "6c37e11b0b2c89944f5c9ceb85b1cbeb798fc0468c5396da488c0d1eb1bc4a26",
    ("several values", 25): "0b319b6d390bd82d0f3f4d629764f8a7a338f2be27c9cc5e73933c76764f608a",
    ("partner ids", 1): "ecb6ed257ce05d9af2d822c9d1f655ac40535fbee1e83674e7586c18d6a85c91",
    ("partner ids", 25): "dff793aa11b4e820f332cc98843031a05866820500a8b50a5fb14c918b11ace7",
    ("other keys in each slice", 1): "eb63decb8a657b2921c201ea9534112328696f0a234d35029371635a37f6a581",
    ("other keys in each slice", 25): "f64ad7a3f499f299c38e2361ce97e62bdf821d0e16e295fa4f93552b379c27cd",
}


async def upload(service: FakeService, members: Members, **settings: Any) -> Sequence[bytes]:
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=LIMITS, sizes=SIZES)
    report = await users.upload(members, **settings)
    assert adds_up(report)
    assert report.read == COUNT
    assert report.accepted + report.in_doubt == len(service.users)
    return service.bodies


def digest(bodies: Sequence[bytes]) -> str:
    return sha256(b"\n".join(bodies)).hexdigest()


@CASES
async def test_bodies_of_one_lane_are_the_same_byte_for_byte(
    service: FakeService, name: str, per_operation: int
) -> None:
    bodies = await upload(service, MEMBERS[name], concurrency=1, users_per_operation=per_operation)
    assert digest(bodies) == DIGESTS[name, per_operation]


@CASES
async def test_what_is_left_of_a_refused_body_is_the_same_byte_for_byte(
    service: FakeService, name: str, per_operation: int
) -> None:
    service.script |= REFUSALS
    bodies = await upload(service, MEMBERS[name], concurrency=1, users_per_operation=per_operation)
    assert digest(bodies) == DIGESTS_AFTER_REFUSALS[name, per_operation]


@pytest.mark.parametrize(
    ("name", "per_operation"),
    [
        ("repeated", 25),
        *(pytest.param(name, per, marks=pytest.mark.long) for name in MEMBERS for per in (1, 25)),
    ],
)
async def test_many_lanes_send_the_same_users(name: str, per_operation: int) -> None:
    one, many = FakeService(), FakeService()
    await upload(one, MEMBERS[name], concurrency=1, users_per_operation=per_operation)
    await upload(many, MEMBERS[name], concurrency=32, users_per_operation=per_operation)
    assert {*map(str, many.users)} == {*map(str, one.users)}


async def test_many_lanes_keep_the_order_of_a_key(service: FakeService) -> None:
    rows = [(str(number * 37 % 211 + 1), f"user{number}@example.org") for number in range(COUNT)]
    await upload(service, Rows(("svc_id", "email"), rows), concurrency=32)
    contents: dict[str, list[str]] = {}
    for svc_id, email in rows:
        contents.setdefault(hash_value(svc_id), []).append(hash_value(email))
    sent: dict[str, list[str]] = {}
    for user in service.users:
        sent.setdefault(user["svc_id"][0], []).append(user["email"][0])
    assert sent == contents
