"""A service whose every string holds what a terminal obeys, and which runs beside a command in this process."""

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

__all__ = ["HOSTILE", "run_hostile_service"]

HOSTILE = "\x1b]0;own\x07\x1b[2J\x9b31m\x7f\u202e\u2066\u200b\n=1+1\r\tx"
"""Sets the title, clears the screen, reverses the text, breaks the line."""

_TIME = "2026-01-01T00:00:00Z"
_ACCOUNT = {
    **dict.fromkeys(("id", "name", "business_name", "timezone", "approval_status", "industry_type"), HOSTILE),
    "created_at": _TIME,
    "updated_at": _TIME,
    "deleted": False,
}
_AUDIENCE = {
    **dict.fromkeys(("id", "name", "description", "audience_type", "permission_level", "owner_account_id"), HOSTILE),
    "targetable": False,
    "reasons_not_targetable": [HOSTILE],
    "targetable_types": [HOSTILE],
    "created_at": _TIME,
    "updated_at": _TIME,
    "deleted": False,
}
_DETAIL = {"code": HOSTILE, "message": HOSTILE, "parameter": HOSTILE, "attribute": HOSTILE}
_WEBHOOK = {"id": HOSTILE, "url": "https://hooks.example.test/svc", "valid": True, "created_at": _TIME}
_SUBSCRIPTION = {
    "subscription_id": HOSTILE,
    "event_type": HOSTILE,
    "filter": {"user_id": "7"},
    "tag": HOSTILE,
    "webhook_id": HOSTILE,
}

Script = Callable[[bytes], Any]


def _page(*records: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"data": records, "next_cursor": None, "meta": {"result_count": len(records)}}


def _refuse_operations(body: bytes) -> web.Response:
    operations = len(json.loads(body))
    payload = {"errors": [_DETAIL], "operation_errors": [[_DETAIL]] * operations}
    return web.json_response(payload, status=400)


def _refuse_products(body: bytes) -> Any:
    ids = [product["id"] for product in json.loads(body)["products"]]
    return {"data": {"products_response": [{"id": each, "status": "ERROR", "errors": [HOSTILE]} for each in ids]}}


def _refuse_keys(body: bytes) -> Any:
    keys = json.loads(body)["product_keys"]
    return {"data": {"delete_products": [{"failed_product_key": each, "message": HOSTILE} for each in keys]}}


def _form(**fields: str) -> Script:
    return lambda _: web.Response(text=urlencode(fields))


_ANSWERS: Mapping[tuple[str, str], Script] = {
    ("GET", "/12/accounts"): lambda _: _page(_ACCOUNT),
    ("GET", "/12/accounts/a"): lambda _: {"data": _ACCOUNT},
    ("GET", "/12/accounts/a/custom_audiences"): lambda _: _page(_AUDIENCE),
    ("POST", "/12/accounts/a/custom_audiences"): lambda _: {"data": _AUDIENCE},
    ("DELETE", "/12/accounts/a/custom_audiences/b"): lambda _: {"data": _AUDIENCE},
    ("POST", "/12/accounts/a/custom_audiences/b/users"): _refuse_operations,
    ("POST", "/12/accounts/a/do_not_reach_lists/b/users"): _refuse_operations,
    ("GET", "/12/product_catalogs/c/products"): lambda _: _page(),
    ("PUT", "/12/product_catalogs/c/products"): _refuse_products,
    ("DELETE", "/12/product_catalogs/c/products"): _refuse_keys,
    ("POST", "/oauth/request_token"): _form(
        oauth_token="t", oauth_token_secret="s", oauth_callback_confirmed="true", more=HOSTILE
    ),
    ("POST", "/oauth/access_token"): _form(
        oauth_token="t", oauth_token_secret="s", user_id=HOSTILE, screen_name=HOSTILE
    ),
    ("POST", "/1.1/oauth/invalidate_token"): lambda _: {"access_token": HOSTILE},
    ("GET", "/2/webhooks"): lambda _: _page(_WEBHOOK),
    ("GET", "/2/activity/subscriptions"): lambda _: _page(_SUBSCRIPTION),
    ("POST", "/2/activity/subscriptions"): lambda _: {"data": _SUBSCRIPTION},
    ("POST", "/_sandbox/events"): lambda _: {"event_type": HOSTILE, "user_id": HOSTILE, "deliveries": 1},
    ("GET", "/hook"): lambda _: {"response_token": HOSTILE},
}


def _answer_kindly(request: web.Request, body: bytes) -> web.Response:
    script = _ANSWERS.get((request.method, request.path.removeprefix("/ads")))
    if script is None:
        return _refuse(request, body)
    payload = script(body)
    return payload if isinstance(payload, web.Response) else web.json_response(payload)


def _refuse(request: web.Request, body: bytes) -> web.Response:
    del request, body
    payload = {"errors": [_DETAIL], "title": HOSTILE, "detail": HOSTILE}
    return web.json_response(payload, status=403)


@contextmanager
def run_hostile_service(*, refusing: bool) -> Generator[str]:
    """Run the service in a thread and return its URL; if it is refusing, it refuses every request."""
    answer = _refuse if refusing else _answer_kindly

    async def handle(request: web.Request) -> web.Response:
        return answer(request, await request.read())

    started, urls = threading.Event(), list[str]()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def serve() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        urls.append(f"http://{host}:{port}")
        started.set()
        await stopped.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait()
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
