"""The app-only bearer token (AUTH-20 to AUTH-24d)."""

from urllib.parse import unquote

from svc_async.sandbox.server.auth import invalid_token
from svc_async.sandbox.server.decoding import form_field
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.rendering import Format

__all__ = ["OPERATIONS"]


def _invalidate(call: Call) -> Answer:
    key = call.caller.app.consumer_key
    token = call.sandbox.grants.bearers.get(key, "")
    # The token is issued percent-encoded and sent back unchanged (ASM-81): parsing the form has decoded it.
    if not token or call.params["access_token"] != unquote(token):
        raise invalid_token()
    del call.sandbox.grants.bearers[key]
    return Answer({"access_token": token})


OPERATIONS = (
    Operation(
        id="oauth2.token",
        method="POST",
        path="/oauth2/token",
        handler=lambda call: Answer(
            {"token_type": "bearer", "access_token": call.sandbox.grants.bearer(call.caller.app)}
        ),
        query=(form_field("grant_type", required=True, enum=("client_credentials",), rule="AUTH-20c"),),
        limit="bearer_tokens",
        rule="AUTH-20d",
        surface="base",
        schemes=("basic_app",),
        format=Format.CREDENTIALS,
        body="form",
    ),
    Operation(
        id="oauth2.invalidate_token",
        method="POST",
        path="/oauth2/invalidate_token",
        handler=_invalidate,
        # Unspecified: the parameters of this operation (ASM-70).
        query=(form_field("access_token", required=True, rule="ASM-70"),),
        limit="bearer_invalidations",
        rule="AUTH-24b",
        surface="base",
        schemes=("basic_app",),
        format=Format.CREDENTIALS,
        body="form",
    ),
)
