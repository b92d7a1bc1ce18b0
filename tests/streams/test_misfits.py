"""Events of a stream that do not fit their type."""

import json

from tests.support.stream_server import Follow, StreamServer, send_and_hold, take_keys


async def test_a_stream_gives_what_does_not_fit_and_counts_it(server: StreamServer, follow: Follow) -> None:
    events = [{"event_uuid": str(number), "event_type": "post.create", "payload": {}} for number in range(3)]
    server.scripts = [send_and_hold(b"".join(json.dumps({"data": each}).encode() + b"\r\n" for each in events))]
    async with follow() as stream:
        assert await take_keys(stream, 3) == ["0", "1", "2"]
        assert (stream.stats.events, stream.stats.misfits, stream.stats.malformed) == (3, 3, 0)
