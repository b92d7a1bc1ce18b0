from tests.local import clock, service

__all__ = ["clock", "service"]
