"""Signs the service's requests with code of its own, shared with no receiver."""

import base64
import hashlib
import hmac

import attrs

__all__ = ["Signer", "sign"]


def sign(secret: str, message: bytes) -> str:
    """Return `sha256=` and the base64 of the HMAC-SHA256 (ASM-37); the answer to a check is that of its token."""
    return "sha256=" + base64.b64encode(hmac.digest(secret.encode(), message, hashlib.sha256)).decode()


@attrs.frozen(kw_only=True)
class Signer:
    """Writes the signature header (WH-40b)."""

    consumer_secret: str = attrs.field(repr=False)

    def sign_headers(self, message: bytes, *, secret: str | None = None) -> dict[str, str]:
        """Return the header for a message; `secret` replaces the right one."""
        # Unspecified: that the consumer secret signs, and no second secret in a header of its own (ASM-25, ASM-38).
        return {"x-svc-webhooks-signature": sign(secret or self.consumer_secret, message)}
