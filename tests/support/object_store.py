"""An object store on this machine, which speaks the protocol of S3."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import attrs

if TYPE_CHECKING:
    import s3fs

__all__ = ["Bucket", "ObjectStore", "start_object_store"]


@attrs.frozen
class Bucket:
    """A bucket that only one test uses.

    Attributes:
        url: its URL, without a slash at the end.
    """

    url: str
    _system: "s3fs.S3FileSystem"

    def write(self, key: str, content: bytes) -> str:
        """Store an object and return its URL."""
        url = f"{self.url}/{key}"
        self._system.pipe_file(url, content)
        return url

    def delete(self, key: str) -> None:
        self._system.rm_file(f"{self.url}/{key}")


@attrs.frozen
class ObjectStore:
    """A server.

    Attributes:
        environment: how clients find it, and what they sign with.
    """

    environment: Mapping[str, str]

    def create_bucket(self) -> Bucket:
        import s3fs  # noqa: PLC0415 - only the group `test-long` has it

        system = s3fs.S3FileSystem(use_listings_cache=False)
        name = f"test-{uuid4().hex}"
        system.mkdir(name)
        return Bucket(f"s3://{name}", system)


@contextmanager
def start_object_store() -> Iterator[ObjectStore]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only the group `test-long` has it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        yield ObjectStore(environment)
    finally:
        server.stop()
