"""`svc-async sandbox`: serve a sandbox."""

import asyncio
import shlex
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.panel import Panel
from rich.text import Text

from svc_async.cli.exit_codes import Exit, Interrupted
from svc_async.cli.options import JsonFlag, check_port, describe_listening
from svc_async.cli.output.console import say, show, show_item, stderr, terminal
from svc_async.cli.signals import run_coroutine
from svc_async.errors import InvalidArgument
from svc_async.sandbox import Sandbox, SandboxConfig
from svc_async.wire.dialect import Dialect

__all__ = ["sandbox"]

_PAIR = "is written URL=URL, such as https://hooks.example.test/svc=http://127.0.0.1:9000/svc"
_CATALOGS = 2
"""Its own, and one that a program creates."""


def sandbox(
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    seed: int = 7,
    server_name: Annotated[list[str] | None, Parameter(negative=())] = None,
    forward: Annotated[list[str] | None, Parameter(negative=())] = None,
    dialect: Path | None = None,
    open_: Annotated[bool, Parameter(name="--open", negative=())] = False,
    as_json: JsonFlag = False,
) -> int:
    """Serve a sandbox until interrupted (Ctrl-C, exit code 0).

    Args:
        host: The address to listen on. Clients accept http:// on loopback only.
        port: The port; 0 takes a free one.
        seed: Decides ids, keys and tokens.
        server_name: A name under which others reach this server, such as that of its container; requests to other names
            are refused, except to localhost, the host and the address of the connection. Repeatable.
        forward: URL=URL delivers what is sent to a webhook, such as https://hooks.example.test/svc, to a receiver on
            this machine, such as http://127.0.0.1:9000/svc. Repeatable.
        dialect: A file of words that the sandbox speaks in place of the contract's; `svc-async dialect check` tries it.
        open_: Open the inspector in a browser: a page that shows each request, its answer and the rule that decided.
        as_json: Print only JSON.
    """
    check_port(port)
    names = frozenset(name.lower() for name in server_name or ())
    config = SandboxConfig(hosts=names, catalogs_per_user=_CATALOGS)
    words = None if dialect is None else Dialect.load(dialect)
    running = Sandbox(host=host, port=port, seed=seed, config=config, dialect=words)
    try:
        forwarded = dict(_forward(running, pair) for pair in forward or ())
        run_coroutine(_serve(running, forwarded, opens=open_, as_json=as_json))
    except Interrupted:
        pass
    except OSError as error:
        raise InvalidArgument("sandbox", describe_listening(error, host, port)) from None
    if not as_json:
        say("The sandbox is closed.")
    return Exit.DONE


def _forward(sandbox: Sandbox, pair: str) -> tuple[str, str]:
    url, _, rest = pair.partition("=http://")
    target = f"http://{rest}"
    if not rest:
        raise InvalidArgument("--forward", f"{_PAIR}: the URL of the receiver must begin with http://")
    try:
        sandbox.deliver_to(url, target)
    except ValueError as error:
        raise InvalidArgument("--forward", f"{_PAIR}: {error}") from None
    return url, target


async def _serve(sandbox: Sandbox, forwarded: Mapping[str, str], *, opens: bool, as_json: bool) -> None:
    async with sandbox:
        catalog_id = sandbox.add_catalog()
        if as_json:
            show_item(
                {
                    "base_url": sandbox.base_url,
                    "ads_url": sandbox.ads_url,
                    "ads_sandbox_url": sandbox.ads_sandbox_url,
                    "inspector_url": sandbox.inspector_url,
                    "credentials": dict(sandbox.credentials),
                    "callback_url": sandbox.callback_url,
                    "user_id": sandbox.user_id,
                    "account_id": sandbox.account_id,
                    "custom_audience_id": sandbox.audience_id,
                    "do_not_reach_list_id": sandbox.do_not_reach_list_id,
                    "product_catalog_id": catalog_id,
                    "environment": dict(_variables(sandbox, catalog_id)),
                }
            )
        else:
            if not terminal.quiet:
                stderr().print(_panel(sandbox, catalog_id))
            for url, target in forwarded.items():
                stderr().print(
                    f"Deliveries to {url} are forwarded to {target}. To watch, run these in shells of their own, with\n"
                    "the variables below:\n"
                    f"  svc-async webhook listen --port {urlsplit(target).port or 80}\n"
                    f"  svc-async webhook register {url} --event post.create --user {sandbox.user_id}\n"
                    f"  svc-async trigger post.create --url {sandbox.base_url}"
                )
            for name, value in _variables(sandbox, catalog_id).items():
                show(f"export {name}={shlex.quote(value)}")
            sys.stdout.flush()
        if opens and not await asyncio.to_thread(webbrowser.open, sandbox.inspector_url):
            say(f"No browser was found; open {sandbox.inspector_url}")
        await asyncio.Event().wait()


def _variables(sandbox: Sandbox, catalog_id: str) -> Mapping[str, str]:
    credentials = sandbox.credentials
    return {
        "SVC_BASE_URL": sandbox.base_url,
        "SVC_ADS_URL": sandbox.ads_url,
        "SVC_ADS_SANDBOX_URL": sandbox.ads_sandbox_url,
        "SVC_CONSUMER_KEY": credentials["consumer_key"],
        "SVC_CONSUMER_SECRET": credentials["consumer_secret"],
        "SVC_ACCESS_TOKEN": credentials["token"],
        "SVC_ACCESS_TOKEN_SECRET": credentials["token_secret"],
        "SVC_CLIENT_ID": sandbox.app["client_id"],
        "SVC_CLIENT_SECRET": sandbox.app["client_secret"],
        "CALLBACK_URL": sandbox.callback_url,  # this and the next ones are for programs that read them
        "ACCOUNT_ID": sandbox.account_id,
        "AUDIENCE_ID": sandbox.audience_id,
        "LIST_ID": sandbox.do_not_reach_list_id,
        "CATALOG_ID": catalog_id,
    }


def _panel(sandbox: Sandbox, catalog_id: str) -> Panel:
    rows = {
        "main API": sandbox.base_url,
        "ads API": sandbox.ads_url,
        "its sandbox": sandbox.ads_sandbox_url,
        "inspector": sandbox.inspector_url,
        "callback URL": sandbox.callback_url,
        "user": sandbox.user_id,
        "account": sandbox.account_id,
        "audience": sandbox.audience_id,
        "do-not-reach": sandbox.do_not_reach_list_id,
        "catalog": catalog_id,
    }
    text = Text()
    for name, value in rows.items():
        text.append(f"{name:<14}", "dim").append(f"{value}\n", "bold")
    text.append("\nSet the variables below in another shell, and try there\n", "dim")
    text.append("  svc-async accounts list\n", "cyan")
    text.append(
        f"  svc-async audience upload FILE --account {sandbox.account_id} --audience {sandbox.audience_id}\n", "cyan"
    )
    text.append("\nIts state is in memory. Ctrl-C stops it.", "dim")
    return Panel(text, title="The sandbox is open", title_align="left", border_style="green", expand=False)
