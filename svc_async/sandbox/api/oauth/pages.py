"""The consent page of an authorization, and the browser that shows it.

A browser is identified by a cookie. Entering the name of a user of the seed logs that user in; the sandbox asks for no
password. A form carries a seal that only its own browser knows, so that no other site can submit it.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from functools import partial
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlencode

import attrs

from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.decoding import Param, form_field
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.rendering import PAGE_HEADERS, Format, render_page
from svc_async.sandbox.state.grants import Grants

__all__ = [
    "CALLBACK",
    "DECISION",
    "Browser",
    "Consent",
    "find_browser",
    "page_operation",
    "read_decision",
    "redirect",
    "show_page",
]

_COOKIE = "svc_sandbox_session"

page_operation = partial(Operation, limit=None, surface="base", schemes=("none",), format=Format.HTML)

CALLBACK = (
    "in the sandbox, that of the first app is Sandbox.callback_url, which `svc-async sandbox` prints as CALLBACK_URL"
)
"""Where an address is found to which users may return; for the refusal of another one."""

DECISION: tuple[Param, ...] = (
    form_field("seal", required=True, rule="ASM-77"),
    form_field("decision", required=True, enum=("approve", "deny"), rule="ASM-77"),
    form_field("screen_name", clearable=True, rule="ASM-77"),
)
"""The fields that the form of the page adds to its subject."""


@attrs.frozen
class Browser:
    """A user's browser.

    Attributes:
        user_id: the logged-in user; empty if there is none.
    """

    _grants: Grants
    session: str
    user_id: str

    def seal(self, subject: str) -> str:
        """Return the proof that this browser was shown the page about a subject."""
        key = self._grants.ids.secret("seal").encode()
        return hmac.new(key, f"{self.session} {subject}".encode(), hashlib.sha256).hexdigest()

    def log_in(self, user_id: str) -> None:
        """Log a user in."""
        self._grants.sessions[self.session] = user_id


@attrs.frozen(kw_only=True)
class Consent:
    """What a page asks the user to allow.

    Attributes:
        action: where its form is sent.
        subject: hidden fields of the form, which are sent back with it.
        log_in: whether the user must log in even if logged in already.
        screen_name: prefills the field (AUTH-12d).
    """

    app: str
    permissions: Iterable[str]
    action: str
    subject: Mapping[str, str]
    log_in: bool = False
    screen_name: str = ""


def find_browser(call: Call) -> Browser:
    """Find the calling browser by its cookie; return a new one if it has none."""
    try:
        cookie = SimpleCookie(call.headers.get("Cookie", "")).get(_COOKIE)
    except CookieError:
        cookie = None
    sessions = call.sandbox.grants.sessions
    if cookie is None or cookie.value not in sessions:
        session = call.sandbox.grants.secret("session")
        sessions[session] = ""
        return Browser(call.sandbox.grants, session, "")
    return Browser(call.sandbox.grants, cookie.value, sessions[cookie.value])


def show_page(call: Call, browser: Browser, consent: Consent, *, alert: str = "") -> Answer:
    """Answer with the page."""
    users = {row.id: row.fields["screen_name"] for row in call.sandbox.store["users"]}
    asks = consent.log_in or not browser.user_id
    hidden = {**consent.subject, "seal": browser.seal(_encode_subject(consent.subject))}
    content = "\n".join(
        [
            f'<p role="alert">{escape(alert)}</p>' if alert else "",
            f"<p><strong>{escape(consent.app)}</strong> wants to:</p>",
            f"<ul>{''.join(f'<li>{escape(permission)}</li>' for permission in consent.permissions)}</ul>",
            f'<form method="post" action="{escape(consent.action)}">',
            *(f'<input type="hidden" name="{escape(n)}" value="{escape(v)}">' for n, v in hidden.items()),
            _render_login(users.values(), consent.screen_name)
            if asks
            else f"<p>You are @{escape(users[browser.user_id])}.</p>",
            '<button name="decision" value="approve">Approve</button>',
            '<button name="decision" value="deny" formnovalidate>Deny</button>',
            "</form>",
        ]
    )
    cookie = f"{_COOKIE}={browser.session}; Path=/; HttpOnly; SameSite=Lax{'; Secure' if call.secure else ''}"
    return Answer(render_page(f"Let {consent.app} in?", content), headers={**PAGE_HEADERS, "Set-Cookie": cookie})


def _render_login(names: Iterable[str], screen_name: str) -> str:
    options = "".join(f'<option value="{escape(name)}">' for name in names)
    return (
        '<label for="screen_name">Username (the sandbox asks for no password)</label>'
        '<input id="screen_name" name="screen_name" list="users" autocomplete="username" required '
        f'value="{escape(screen_name)}"><datalist id="users">{options}</datalist>'
    )


def read_decision(call: Call, consent: Consent) -> Answer | str:
    """Return the user's decision: the id of the approving user, empty if denied, or the page once more.

    Raises:
        Refusal: the form does not come from the page that was shown.
    """
    browser = find_browser(call)
    origin = call.headers.get("Origin")
    foreign = origin is not None and origin.partition("://")[2] != call.headers.get("Host")
    if foreign or not hmac.compare_digest(
        browser.seal(_encode_subject(consent.subject)).encode(), call.params["seal"].encode()
    ):
        problem = Problem("FORBIDDEN", "This form was not shown to you by this page. Go back to the app and try again.")
        raise Refusal(403, problem, rule="ASM-77", basis=Basis.ASSUMED)
    if call.params["decision"] == "deny":
        return ""
    name = call.params["screen_name"]
    if name is None and browser.user_id and not consent.log_in:
        return browser.user_id
    user = next(
        (row for row in call.sandbox.store["users"] if row.fields["screen_name"] == (name or "").removeprefix("@")),
        None,
    )
    if user is None:
        return show_page(call, browser, consent, alert="There is no such user.")
    browser.log_in(user.id)
    return user.id


def redirect(url: str, **added: str) -> Answer:
    """Redirect the browser to a URL, with additional query parameters."""
    address, mark, fragment = url.partition("#")
    joined = f"{address}{'&' if '?' in address else '?'}{urlencode(added)}{mark}{fragment}"
    text = render_page("Going back to the app", f'<p><a href="{escape(joined)}">Go on</a></p>')
    return Answer(text, status=303, headers={**PAGE_HEADERS, "Location": joined})


def _encode_subject(subject: Mapping[str, str]) -> str:
    return urlencode(sorted(subject.items()))
