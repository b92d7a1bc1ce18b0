"""Measures one signature, in microseconds and against authlib."""

import json
import statistics
from collections.abc import Callable, Sequence

from authlib.oauth1 import ClientAuth

from benchmarks.fake_transport import CREDENTIALS
from benchmarks.measure import Bound, Figure, Pairs, Scale, at_most, measure_cost, measure_pairs
from svc_async.auth.oauth1 import OAuth1Signer
from svc_async.clock import SystemClock

__all__ = ["measure"]

_POST = "https://ads.example.com/12/accounts/18ce54d4x5t/custom_audiences/1nmth/users"
_GET = "https://ads.example.com/12/accounts/18ce54d4x5t/line_item_curated_categories"
_QUERY = (
    ("line_item_ids", "8u94t%2C8u95t%2C8u96t"),
    ("count", "1000"),
    ("cursor", "gc-ddf4a"),
    ("sort_by", "created_at-desc"),
    ("with_deleted", "true"),
)
_BODY = json.dumps([{"operation_type": "Update", "params": {"users": [{"email": ["0" * 64]}]}}] * 2_500).encode()


def measure(scale: Scale) -> list[Figure]:
    """Measure a POST with a large body and a GET with five parameters."""
    url = f"{_GET}?{'&'.join(f'{name}={value}' for name, value in _QUERY)}"
    signer = OAuth1Signer(CREDENTIALS, SystemClock())
    authlib = ClientAuth(
        CREDENTIALS.consumer_key, CREDENTIALS.consumer_secret, CREDENTIALS.token, CREDENTIALS.token_secret
    )
    times = scale.pick(200, 5_000)
    post = _measure_signing(
        lambda: signer.header("POST", _POST),
        lambda: authlib.prepare("POST", _POST, {"Content-Type": "application/json"}, _BODY),
        times,
        scale,
    )
    get = _measure_signing(
        lambda: signer.header("GET", _GET, _QUERY),
        lambda: authlib.prepare("GET", url, {}, b""),
        times,
        scale,
    )
    return [
        *_make_figures(f"signature, POST of {len(_BODY):,} bytes", at_most(10), post, times),
        *_make_figures("signature, GET with five parameters", at_most(30), get, times),
    ]


def _measure_signing(ours: Callable[[], object], floor: Callable[[], object], times: int, scale: Scale) -> Pairs:
    def repeat(sign: Callable[[], object]) -> Callable[[], float]:
        def run() -> None:
            for _ in range(times):
                sign()

        return lambda: measure_cost(run)

    return measure_pairs(repeat(ours), repeat(floor), scale)


def _make_figures(job: str, target: Bound, pairs: Pairs, times: int) -> Sequence[Figure]:
    microseconds = 1e6 * statistics.median(pairs.ours) / times
    return [
        Figure(job=job, value=microseconds, unit="µs", target=target),
        pairs.report_cost(f"{job}, against authlib", floor="authlib"),
    ]
