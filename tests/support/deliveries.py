"""Deliveries of the tests."""

from svc_async.webhooks import SigningKey
from svc_async.webhooks.testing import SignedRequest, build_delivery
from tests.support.event_samples import activity

KEY = SigningKey("consumer-secret", key_id="now", app="shop")
OLD = SigningKey("former-secret", key_id="before", app="shop")
OAUTH2 = SigningKey("client-secret", header="x-svc-webhooks-signature-oauth2", key_id="oauth2", app="shop")
STRANGER = SigningKey("a-guess")


def delivery(
    uuid: str = "1", *, event_type: str = "post.create", user: str = "7", key: SigningKey = KEY
) -> SignedRequest:
    return build_delivery({"data": activity(event_type, uuid=uuid, user_id=user)}, key)
