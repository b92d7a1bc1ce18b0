"""Media: what was uploaded, with the facts that rules ask about.

The upload itself is no call of the advertising API; the seed world brings the uploads.
"""

from svc_async.sandbox.server.operations import Call, not_found
from svc_async.sandbox.server.params import invalid, refuse
from svc_async.sandbox.state.store import Row, Store

__all__ = ["add_upload", "has_ratio", "kept_media", "refuse_other_types", "uploaded"]


def add_upload(store: Store, account_id: str, **facts: object) -> Row:
    """Keep an upload: its `media_key`, `media_type`, `file_name`, `width`, `height` and what else there is."""
    fields = {"media_category": None, "duration": None, **facts}
    return store["uploads"].add(account_id, fields, key=str(facts["media_key"]))


def uploaded(call: Call, media_key: str, parameter: str) -> Row:
    """Find an upload of the account.

    Raises:
        Refusal: there is none.
    """
    # Unspecified: what a key that names nothing is answered with (ASM-102).
    upload = call.store["uploads"].get(media_key, owner=call.account)
    if upload is None:
        raise not_found("MEDIA_NOT_FOUND", parameter)
    return upload


def kept_media(call: Call, media_key: str, parameter: str) -> Row:
    """Find the upload of what the account keeps in its media library.

    Raises:
        Refusal: the library has no such medium.
    """
    if call.store["media_library"].get(media_key, owner=call.account) is None:
        raise not_found("MEDIA_NOT_FOUND", parameter)
    return uploaded(call, media_key, parameter)


def refuse_other_types(upload: Row, types: tuple[str, ...], parameter: str, *, rule: str) -> None:
    """Refuse a medium of another type.

    Raises:
        Refusal: it is of another.
    """
    if upload.fields["media_type"] not in types:
        refuse(invalid(rule, f"must name media of type {' or '.join(types)}", parameter))


def has_ratio(upload: Row, width: float, height: float, *, tolerance: float) -> bool:
    """Tell whether a medium is as wide for its height as it should be."""
    found: float = upload.fields["width"] / upload.fields["height"]
    return abs(found - width / height) <= tolerance
