"""Which credentials are those of a user, whom every call of the advertising API needs."""

from typing import Any

import pytest

from svc_async import (
    AccessDenied,
    AppCredentials,
    BearerToken,
    Endpoints,
    Session,
)
from svc_async.errors import Hint, Sent
from tests.support.client_calls import CALLS, bind
from tests.support.contract import OPERATIONS

KEYS = {"consumer_key": "k", "consumer_secret": "hush"}
APPS = (AppCredentials(**KEYS), BearerToken("hush"))
NOWHERE = Endpoints(base_url="http://127.0.0.1:1", ads_url="http://127.0.0.1:1", ads_sandbox_url="http://127.0.0.1:1")


def test_every_call_of_the_advertising_api_is_one_of_a_user() -> None:
    assert {OPERATIONS[name]["auth"] for name in CALLS} == {"oauth1_user"}


@pytest.mark.rule("AUTH-27")
@pytest.mark.parametrize("credentials", APPS, ids=lambda credentials: type(credentials).__name__)
async def test_an_app_without_a_user_calls_nothing_of_it(subtests: pytest.Subtests, credentials: Any) -> None:
    async with Session(credentials, endpoints=NOWHERE) as session:
        for operation in CALLS:
            with subtests.test(operation):
                with pytest.raises(AccessDenied) as caught:
                    bind(operation, session)
                assert (caught.value.hint, caught.value.sent) == (Hint.GIVE_A_USER, Sent.NO)
