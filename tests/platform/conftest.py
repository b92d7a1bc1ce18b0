from tests.support.scripted_server import clock, service

__all__ = ["clock", "service"]
