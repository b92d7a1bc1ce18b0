from tests.mocked import service, session

__all__ = ["service", "session"]
