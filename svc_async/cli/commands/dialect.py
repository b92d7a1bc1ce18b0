"""`svc-async dialect`: the words of another platform in place of the contract's."""

import re
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path

import attrs
from cyclopts import App

from svc_async.auth.credentials import AppCredentials
from svc_async.cli.exit_codes import Exit, explain
from svc_async.cli.options import JsonFlag
from svc_async.cli.output.console import count, print_error, say, show_json, show_list
from svc_async.cli.signals import run_coroutine
from svc_async.engine.retry import Retries
from svc_async.errors import SvcError
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from svc_async.webhooks import WebhookReceiver
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.dialect import Dialect
from svc_async.wire.dialect_file import SECTIONS, ContractWords, Lines, find_mistakes, read_text
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = ["app"]

app = App(name="dialect")

_PLACEHOLDER = re.compile("svc|post(?!al|er)", re.IGNORECASE)
"""The placeholders of the contract for the words of a brand, even inside longer words."""
_HOOK = "https://hooks.example.test/dialect"
_COLUMNS = {"Section": attrgetter("section"), "Word": attrgetter("word"), "Written": attrgetter("written")}


@attrs.frozen
class _Word:
    """A word of the contract that the file has, or leaves as it is."""

    section: str
    word: str
    written: str | None


@app.command
def check(file: Path, *, as_json: JsonFlag = False) -> int:
    """Check the file of a dialect, and use it: a sandbox speaks it, and a session and a receiver understand it.

    It lists the words that the file maps, those that it leaves although they contain `svc` or `post`, and those that
    the contract does not have.

    Exit codes: 0 the calls worked, 1 one failed, 2 the file has mistakes or cannot be read.

    Args:
        file: The file: TOML with a name and the tables paths, pages, headers, names and values.
        as_json: Print only JSON.
    """
    content = read_text(file)
    mistakes = find_mistakes(content)
    if mistakes:
        for each in mistakes:
            print_error(f"line {each.line}: {each.rule}")
        if as_json:
            error = {"type": "UnusableFile", "message": f"the file has {count(len(mistakes), 'mistake')}"}
            show_json({"mistakes": [attrs.asdict(each) for each in mistakes]}, error=error)
        return Exit.USAGE
    dialect = Dialect(**tomllib.loads(content))
    mapped, left = _compare(dialect)
    unknown = [*_find_unknown(dialect, content)]
    failures = run_coroutine(_use(dialect))
    if as_json:
        show_json(
            {
                "name": dialect.name,
                "mapped": [attrs.asdict(each) for each in mapped],
                "left": [{"section": each.section, "word": each.word} for each in left],
                "unknown": unknown,
                "calls": {call: failure is None for call, failure in failures.items()},
                "mistakes": [],
            }
        )
    else:
        show_list([*mapped, *left], _COLUMNS)
        for word in unknown:
            proposal = f"; is it {word['proposal']}?" if word["proposal"] else ""
            say(f"line {word['line']}: {word['word']} is not a word of the contract's {word['section']}{proposal}")
        say(f"{count(len(mapped), 'word')} mapped, {len(left):,} left as the contract writes them.")
        worked = sum(failure is None for failure in failures.values())
        say(f"{worked} of {len(failures)} calls worked with a sandbox that speaks {dialect.name}.")
    for call, failure in failures.items():
        if failure is not None:
            print_error(f"{call}: {explain(failure)}")
    return Exit.DONE if not any(failures.values()) else Exit.FAILURE


def _compare(dialect: Dialect) -> tuple[Sequence[_Word], Sequence[_Word]]:
    """Return the words that are mapped, and those that are left although they may contain words of a brand."""
    contract = ContractWords.load()
    mapped = [_Word(section, *pair) for section in SECTIONS for pair in sorted(getattr(dialect, section).items())]
    left = [
        _Word(section, word, None)
        for section in SECTIONS
        for word in sorted(getattr(contract, section) - getattr(dialect, section).keys())
        if _PLACEHOLDER.search(word)
    ]
    return mapped, left


def _find_unknown(dialect: Dialect, content: str) -> Iterator[Mapping[str, object]]:
    """Yield the names and values that the contract does not have: other calls may have them."""
    contract, lines = ContractWords.load(), Lines(content)
    known = {"names": contract.names, "values": contract.values | contract.other_values}
    for section, words in known.items():
        for word in getattr(dialect, section).keys() - words:
            proposal = next(iter(get_close_matches(word, words, n=1)), None)
            yield {"section": section, "word": word, "line": lines.find(section, word), "proposal": proposal}


async def _use(dialect: Dialect) -> Mapping[str, SvcError | None]:
    """Use the main parts of the platform with a sandbox that speaks a dialect; return how each call ended."""
    async with Sandbox(dialect=dialect, clock=VirtualClock(mode="jump")) as sandbox:
        calls = _Calls(sandbox, dialect.on_one_host())
        return {name: await calls.try_(call) for name, call in calls.list().items()}


@attrs.frozen
class _Calls:
    """Calls of a session of the sandbox's app and user."""

    sandbox: Sandbox
    dialect: Dialect

    async def try_(self, call: Callable[[Session], Awaitable[object]]) -> SvcError | None:
        try:
            async with Session.sandbox(self.sandbox, retries=Retries.none()) as session:
                await call(session)
        except SvcError as error:
            return error
        return None

    def list(self) -> Mapping[str, Callable[[Session], Awaitable[object]]]:
        """Return the calls by their names."""
        sandbox = self.sandbox
        account, catalog = sandbox.account_id, sandbox.add_catalog()
        people = [{"email": "ada@example.org", "svc_id": "17"}, {"phone_number": "+12125550101"}]
        product = {
            "id": "1",
            "title": "Book",
            "description": "A book",
            "availability": "in stock",
            "condition": "new",
            "price": "9.00 EUR",
            "link": "https://shop.example/1",
            "image_link": "https://shop.example/1.jpg",
            "brand": "Harbour",
        }
        return {
            "accounts.list": lambda session: session.accounts.list().collect(),
            "placements.list": lambda session: session.placements.list().collect(),
            "cards.list": lambda session: session.account(account).cards.list().collect(),
            "line_items.update": lambda session: session.account(account).line_items.update("9cqi0", name="Renamed"),
            "posts.create": lambda session: session.account(account).posts.create(
                as_user_id=int(sandbox.user_id), text="Hello"
            ),
            "audience users.upload": lambda session: (
                session.account(account).custom_audience(sandbox.audience_id).users.upload(people)
            ),
            "products.upsert": lambda session: session.product_catalog(catalog).products.upsert([product]),
            "webhook": self._receive,
            "stream": self._follow,
            "login": self._log_in,
        }

    async def _receive(self, session: Session) -> None:
        receiver = WebhookReceiver(
            keys=[SigningKey(self.sandbox.app["consumer_secret"])], dialect=self.dialect, clock=self.sandbox.clock
        )
        receiver.on("post.create")(lambda _, __: None)
        self.sandbox.deliver_to(_HOOK, receiver)
        async with receiver:
            webhook = await session.webhooks.ensure(_HOOK)
            await session.activity.subscriptions.create(
                event_type="post.create", user_id=self.sandbox.user_id, webhook_id=webhook.id
            )
            await self.sandbox.trigger("post.create")
            await self.sandbox.clock.sleep(60)
        if receiver.stats.handled != 1:
            raise SvcError("the event that was delivered is not a post.create to the receiver")

    async def _follow(self, session: Session) -> None:
        await session.activity.subscriptions.create(event_type="like.create", user_id=self.sandbox.user_id)
        async with session.activity.stream() as stream:
            await self.sandbox.trigger("like.create")
            await anext(stream)

    async def _log_in(self, _: Session) -> None:
        endpoints = Endpoints(base_url=self.sandbox.base_url, ads_url=self.sandbox.ads_url)
        async with Session(
            AppCredentials(**self.sandbox.app), endpoints=endpoints, clock=self.sandbox.clock, dialect=self.dialect
        ) as session:
            pending = session.oauth2.authorization_url(scopes=["follow.read"], redirect_uri=self.sandbox.callback_url)
            await session.oauth2.exchange(pending, redirect=self.sandbox.approve_oauth2(pending.url))
