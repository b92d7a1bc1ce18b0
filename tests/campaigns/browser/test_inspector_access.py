"""The inspector for everybody: by keyboard only, with a screen reader, in any colours; and closed to other pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig
from tests.support.inspector_page import InspectorPage
from tests.support.raw_client import RawClient
from tests.support.v2_client import RecordingReceiver, V2Client


async def find_faults(page: InspectorPage) -> list[str]:
    """Return what axe-core finds that is serious or critical."""
    found = await Axe().run(page.page)
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found.response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("config", [SandboxConfig(rate_rules={"global_reads": RateRule(1, 900, "user")})])
async def test_axe_finds_nothing_serious(
    page: InspectorPage, raw: RawClient, v2: V2Client, hook: RecordingReceiver
) -> None:
    assert await find_faults(page) == []
    raw.sandbox.faults.on("GET", "*/line_items").do(Fault.http(503))
    for path in ("/12/accounts", "/12/accounts", "/12/nothing", f"{raw.account}/line_items", raw.account):
        await raw("GET", path)
    await raw("GET", raw.account, authorization="OAuth x")
    await v2.subscribe("post.create", webhook_id=await v2.register(hook))
    await raw.sandbox.trigger("post.create")
    hook.ack = lambda: (500, {}, b"")
    await raw.sandbox.trigger("post.create")
    async with v2.stream("/2/activity/stream"):
        for text in ("no such call here", "fault: http(503)", "activity_stream.connect"):
            await page.rows().filter(has_text=text).click()
            await expect(page.detail().locator("h2")).to_be_visible()
            assert await find_faults(page) == []
            if page.is_narrow:
                await page.page.get_by_role("button", name="Back to the list").click()
        for name in ("Deliveries", "Limits", "Faults", "State"):
            await page.go_to(name)
            if name == "Deliveries":
                await page.rows("deliveries").first.click()
                await expect(page.detail("deliveries").locator("h2")).to_be_visible()
            if name == "State":
                await expect(page.page.locator("#panel-state table").first).to_be_visible()
            assert await find_faults(page) == []
    for button in ("open-fault", "open-event", "open-clock", "open-reset"):
        await page.page.locator(f"#{button}").click()
        assert await find_faults(page) == []
        await page.press("Escape")


async def test_everything_is_done_by_keyboard(page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await raw("GET", "/12/nothing")
    await expect(page.rows()).to_have_count(2)
    await page.tab_to("requests-list")
    await page.press("ArrowDown", "ArrowDown", "Enter")
    await expect(page.detail().locator("h2")).to_contain_text(raw.account)
    assert await page.get_focused() == "requests-detail"
    await page.tab_to("Arm a fault for this call")
    await page.press("Enter")
    await expect(page.dialog).to_be_visible()
    assert await page.get_focused() == "fault-kind"
    await page.tab_to("fault-status")
    await page.page.keyboard.type("500")
    await page.press("Enter")
    await expect(page.outcome).to_contain_text("Armed: http(500)")
    assert await page.get_focused() == "Arm a fault for this call"
    assert (await raw("GET", raw.account)).status == 500
    await page.press("Escape")
    assert await page.get_focused() == "requests-list"
    await expect(page.rows()).to_have_count(3)
    await page.press("Home")
    await expect(page.rows().first).to_have_attribute("aria-selected", "true")
    await page.page.locator("#tab-requests").focus()
    await page.press("ArrowLeft")
    assert await page.get_focused() == "tab-state"
    await expect(page.page.locator("#panel-state")).to_be_visible()
    await page.press("ArrowLeft")
    await page.tab_to("Disarm")
    await page.press("Enter")
    await expect(page.page.get_by_text("No fault is armed")).to_be_visible()
    assert await page.get_focused() == "Arm a fault"
    for name, wanted in (("clock", "The clock shows"), ("reset", "The sandbox is as new")):
        await page.page.locator(f"#open-{name}").focus()
        await page.press("Enter")
        await page.tab_to(name.title() if name == "reset" else "Advance")
        await page.press("Enter")
        await expect(page.outcome).to_contain_text(wanted)
        assert await page.get_focused() == f"open-{name}"


async def test_new_rows_keep_focus_and_selection(wide_page: InspectorPage, raw: RawClient) -> None:
    page = wide_page
    for _ in range(3):
        await raw("GET", raw.account)
    await expect(page.rows()).to_have_count(3)
    await page.tab_to("requests-list")
    await page.press("ArrowDown", "ArrowDown")
    selected = await page.page.locator("#requests-list").get_attribute("aria-activedescendant")
    assert selected == "requests-1"
    await raw("GET", raw.account)
    await expect(page.rows()).to_have_count(4)
    assert await page.get_focused() == "requests-list"
    assert await page.page.locator("#requests-list").get_attribute("aria-activedescendant") == selected
    await page.tab_to("Arm a fault for this call")
    await raw("GET", raw.account)
    await expect(page.rows()).to_have_count(5)
    assert await page.get_focused() == "Arm a fault for this call"


async def test_the_focus_is_visible(page: InspectorPage) -> None:
    for name in ("open-fault", "tab-requests"):
        await page.tab_to(name)
        outline = await page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


async def test_a_list_is_no_live_region(wide_page: InspectorPage) -> None:
    live = await wide_page.page.evaluate("[...document.querySelectorAll('[role=status],[aria-live]')].map((e) => e.id)")
    assert live == ["connection", "outcome"]


@pytest.mark.parametrize(("motion", "animation"), [("reduce", "none"), ("no-preference", "pulse")])
async def test_nothing_moves_for_those_who_do_not_want_it(
    wide_page: InspectorPage, motion: Any, animation: str
) -> None:
    await wide_page.page.emulate_media(reduced_motion=motion)
    script = """() => {
        const element = document.getElementById("connection");
        element.dataset.state = "lost";
        return getComputedStyle(element, "::before").animationName;
    }"""
    assert await wide_page.page.evaluate(script) == animation


# --- another page on this machine

ATTACK = """<!doctype html><title>Elsewhere</title><body><script>
const sandbox = SANDBOX;
const read = [];
const tries = [
  fetch(sandbox + "credentials").then((answer) => answer.text()),
  fetch(sandbox + "inspector/request?number=0").then((answer) => answer.text()),
  fetch(sandbox + "faults", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"kind":"hang"}'}),
  fetch(sandbox + "faults", {method: "POST", mode: "no-cors", body: '{"kind":"hang"}'}),
  fetch(sandbox + "reset", {method: "POST", mode: "no-cors"}),
  navigator.sendBeacon(sandbox + "reset"),
  new Promise((done) => {
    const source = new EventSource(sandbox + "inspector/feed");
    source.addEventListener("hello", (message) => done(read.push(message.data)));
    source.onerror = () => done(source.close());
  }),
  ...["script", "img", "iframe"].map((tag) => new Promise((done) => {
    const element = document.createElement(tag);
    element.onerror = element.onload = done;
    element.src = sandbox + {script: "inspector/main.js", img: "inspector/icon.svg", iframe: "inspector/"}[tag];
    document.body.append(element);
  }).then(({type, target}) => { if (type === "load" && target.tagName !== "IFRAME") read.push(target.src); })),
  new Promise((done) => {
    const frame = Object.assign(document.createElement("iframe"), {name: "frame", onload: done});
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: sandbox + "reset", target: "frame"});
    document.body.append(frame, form);
    form.submit();
  }),
];
for (const each of tries) {
  Promise.resolve(each).then((text) => { if (typeof text === "string") read.push(text); }, () => {});
}
Promise.allSettled(tries).then(() => { document.title = "Done"; window.read = read; });
</script>"""


@asynccontextmanager
async def serve(html: str) -> AsyncIterator[str]:
    """Serve a page on a port of its own, so that it is of another origin."""

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_page_of_another_origin_reads_nothing_and_does_nothing(
    browser: Any, sandbox: Sandbox, raw: RawClient, host: str
) -> None:
    await raw("GET", raw.account)
    armed = sandbox.faults.on().do(Fault.latency(0))
    url = sandbox.base_url.replace("127.0.0.1", host)
    async with serve(ATTACK.replace("SANDBOX", f'"{url}/_sandbox/"')) as elsewhere:
        page = await browser.new_page()
        await page.goto(elsewhere)
        await expect(page).to_have_title("Done")
        assert await page.evaluate("window.read") == []
        frames = [await frame.evaluate("document.body.innerText") for frame in page.frames[1:]]
        await page.close()
    assert not [text for text in frames if "Sandbox inspector" in text]
    assert (sandbox.faults.armed, len(sandbox.requests)) == ([armed], 1)
