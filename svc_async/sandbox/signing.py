"""Signs what the service sends: the service's own reading, shared with no receiver."""

import base64
import hashlib
import hmac

import attrs

__all__ = ["Signer", "signature"]

_HEADER = "x-svc-webhooks-signature"


def signature(secret: str, message: bytes) -> str:
    """Give `sha256=` and the base64 of the HMAC-SHA256 (ASM-37); the answer to a check is the same of its token."""
    return "sha256=" + base64.b64encode(hmac.digest(secret.encode(), message, hashlib.sha256)).decode()


@attrs.frozen(kw_only=True)
class Signer:
    """Writes signature headers (WH-40b).

    Attributes:
        style: which keys sign: the consumer secret, the client secret of OAuth 2.0, or both.
        header: where the signature with the consumer secret stands.
        second_header: where the one with the client secret stands.
    """

    consumer_secret: str = attrs.field(repr=False)
    client_secret: str = attrs.field(repr=False)
    style: str = "consumer"
    header: str = _HEADER
    second_header: str = f"{_HEADER}-oauth2"

    def headers(self, message: bytes, *, secret: str | None = None) -> dict[str, str]:
        """Give the headers for a message; `secret` signs in the place of the right ones."""
        keys = {self.header: ("oauth2", self.consumer_secret), self.second_header: ("consumer", self.client_secret)}
        return {
            name: signature(right if secret is None else secret, message)
            for name, (other_style, right) in keys.items()
            if self.style != other_style
        }
