import pytest

from svc_async import Session
from svc_async.handles import AccountHandle, ProductCatalogHandle
from tests.support.fake_http import service, session

__all__ = ["service", "session"]


@pytest.fixture
def account(session: Session) -> AccountHandle:
    return session.account("a")


@pytest.fixture
def catalog(session: Session) -> ProductCatalogHandle:
    return session.product_catalog("c")
