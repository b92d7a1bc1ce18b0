from tests.support.fake_http import service, session

__all__ = ["service", "session"]
