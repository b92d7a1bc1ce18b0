"""How the services of lists show themselves."""

from typing import Any, cast

import pytest

from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.products import Products
from tests.support.fake_catalog import FakeCatalog
from tests.support.fake_service import FakeService


@pytest.mark.parametrize(
    "users", [AudienceUsers(FakeService().pipeline, "a1", "c1"), Products(cast("Any", FakeCatalog()), "c1")]
)
def test_what_a_job_calls_is_not_shown(users: Any) -> None:
    assert ", cluster_runner=" not in repr(users)
