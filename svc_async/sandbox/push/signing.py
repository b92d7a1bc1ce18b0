"""Signs the service's requests with code of its own, shared with no receiver."""

import base64
import hashlib
import hmac
from collections.abc import Mapping

import attrs

from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.state.grants import App

__all__ = ["Signer", "sign"]


def sign(secret: str, message: bytes) -> str:
    """Return `sha256=` and the base64 of the HMAC-SHA256 (ASM-37); the answer to a check is that of its token."""
    return "sha256=" + base64.b64encode(hmac.digest(secret.encode(), message, hashlib.sha256)).decode()


@attrs.frozen(kw_only=True)
class Signer:
    """Writes signature headers (WH-40b).

    Attributes:
        keys: the secrets by the name of their header.
    """

    consumer_secret: str = attrs.field(repr=False)
    keys: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def for_app(cls, app: App, config: SandboxConfig) -> "Signer":
        """Return the signer of an app; one without a client secret has no second header."""
        consumer = {config.signature_header: app.consumer_secret}
        client = {} if app.client_secret is None else {config.second_signature_header: app.client_secret}
        styles = {"consumer": consumer, "oauth2": client, "both": consumer | client}
        return cls(consumer_secret=app.consumer_secret, keys=styles[config.signature_style])

    def sign_headers(self, message: bytes, *, secret: str | None = None) -> dict[str, str]:
        """Return the headers for a message; `secret` replaces the right ones."""
        return {name: sign(secret or right, message) for name, right in self.keys.items()}
