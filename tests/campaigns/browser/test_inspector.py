"""What a person does with the inspector: looks for a request, arms a fault, triggers an event, resets."""

import re
from typing import Any

import aiohttp
import pytest
from playwright.async_api import expect

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig
from tests.support.inspector_page import InspectorPage
from tests.support.raw_client import RawClient, hash_sha256
from tests.support.v2_client import HOOK_URL, RecordingReceiver, V2Client

USERS = [{"operation_type": "Update", "params": {"users": [{"email": [hash_sha256("anna@example.com")]}]}}]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\N{RIGHT-TO-LEFT OVERRIDE}\"'--></title>"


async def test_every_request_appears(page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await raw.send_users(USERS)
    await raw("GET", raw.account, {"with_deleted": "TRUE"})
    await raw("GET", "/12/nothing")
    await raw("GET", raw.account, authorization="")
    raw.sandbox.faults.on("POST").once().do(Fault.drop_connection())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await raw.send_users(USERS)
    await expect(page.rows()).to_have_count(6)
    texts = await page.rows().all_inner_texts()
    for text, wanted in zip(
        reversed(texts),
        ("200", "custom_audience_users.batch", "with_deleted must be true or false", "404", "401", "no answer"),
        strict=True,
    ):
        assert wanted in text
    assert await page.count_pixels_too_wide() <= 0


async def test_a_request_says_what_was_sent_and_why_it_was_refused(page: InspectorPage, raw: RawClient) -> None:
    await raw.send_users([{"operation_type": "Update", "params": {"users": [{"email": ["anna@example.com"]}]}}])
    await page.rows().first.click()
    detail = page.detail()
    await expect(detail).to_contain_text("must hold SHA256 hashes")
    await expect(detail).to_contain_text("CAU-08")
    await expect(detail.get_by_role("region", name="Request body")).to_contain_text('"anna@example.com"')
    await expect(detail.get_by_role("region", name="Answer")).to_contain_text("operation_errors")
    await detail.get_by_text("Request headers").click()
    await expect(detail).to_contain_text('oauth_signature="***"')
    assert await page.count_pixels_too_wide() <= 0
    if page.is_narrow:
        await page.page.get_by_role("button", name="Back to the list").click()
        await expect(page.rows().first).to_be_visible()


async def test_a_fault_that_is_armed_by_a_click_strikes(page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await page.rows().first.click()
    await page.detail().get_by_role("button", name="Arm a fault for this call").click()
    await expect(page.dialog.get_by_label("Path")).to_have_value(f"/ads{raw.account}")
    await page.dialog.get_by_label("Status").fill("502")
    await page.dialog.get_by_role("button", name="Arm").click()
    await expect(page.outcome).to_have_text(f"Armed: http(502), the first request, GET /ads{raw.account}")
    assert [(await raw("GET", raw.account)).status for _ in range(2)] == [502, 200]
    await page.go_to("Faults")
    await expect(page.page.locator("#panel-faults")).to_contain_text("Struck 1 time, of 2 matching requests")
    await page.page.get_by_role("button", name=re.compile("Disarm http")).click()
    await expect(page.page.get_by_text("No fault is armed")).to_be_visible()
    assert raw.sandbox.faults.armed == []


async def test_a_fault_that_makes_no_sense_is_explained(wide_page: InspectorPage, raw: RawClient) -> None:
    page = wide_page
    await page.page.get_by_role("button", name="Arm a fault").first.click()
    await page.dialog.get_by_label("Status").fill("599")
    await page.dialog.get_by_role("button", name="Arm").click()
    await expect(page.dialog.get_by_role("alert")).to_have_text("status is no status that HTTP knows")
    await page.dialog.get_by_label("What happens").select_option("latency")
    await page.dialog.get_by_label("Which requests").select_option("Each of them")
    await page.dialog.get_by_role("button", name="Arm").click()
    await expect(page.dialog).to_have_count(0)
    assert [str(armed) for armed in raw.sandbox.faults.armed] == ["latency(5) on * *, before: struck 0 times"]
    page.problems = [text for text in page.problems if "400 (Bad Request)" not in text]  # Chromium's own line


async def test_a_fault_takes_texts_and_objects(wide_page: InspectorPage, raw: RawClient) -> None:
    page = wide_page
    await page.page.get_by_role("button", name="Arm a fault").first.click()
    await page.dialog.get_by_label("What happens").select_option("operation_errors")
    messages = page.dialog.get_by_label("Messages by position")
    await expect(messages).to_have_value('{"0":"injected"}')
    await messages.fill("no")
    await page.dialog.get_by_role("button", name="Arm").click()
    await expect(page.dialog.get_by_role("alert")).to_have_text("messages is not JSON")
    await messages.fill('{"0": "no such person"}')
    await page.dialog.get_by_label("Code").fill("ODD")
    await page.dialog.get_by_role("button", name="Arm").click()
    await expect(page.dialog).to_have_count(0)
    (errors,) = (await raw.send_users(USERS)).json["operation_errors"]
    assert [(error["code"], error["message"]) for error in errors] == [("ODD", "no such person")]


async def test_an_event_that_is_triggered_by_a_click_is_delivered(
    page: InspectorPage, v2: V2Client, hook: RecordingReceiver
) -> None:
    await v2.subscribe("post.create", webhook_id=await v2.register(hook))
    await page.page.locator("#open-event").click()
    await page.dialog.get_by_label("Payload").fill('{"text": "Hello"}')
    await page.dialog.get_by_role("button", name="Trigger").click()
    await expect(page.outcome).to_have_text("post.create happened: 1 delivery")
    assert (hook.events[0]["data"]["payload"]["text"], hook.verified) == ("Hello", [True])
    await page.go_to("Deliveries")
    await page.rows("deliveries").first.click()
    await expect(page.detail("deliveries")).to_contain_text("delivered")
    await expect(page.detail("deliveries")).to_contain_text(hook.headers[0]["x-svc-webhooks-signature"])


async def test_an_event_for_an_invalid_webhook_is_not_announced_as_delivered(
    page: InspectorPage, v2: V2Client, hook: RecordingReceiver
) -> None:
    webhook_id = await v2.register(hook)
    await v2.subscribe("post.create", webhook_id=webhook_id)
    v2.sandbox.deliver_to(HOOK_URL, RecordingReceiver("another secret"))
    assert (await v2("PUT", f"/2/webhooks/{webhook_id}")).data == {"valid": False}
    await page.page.locator("#open-event").click()
    await page.dialog.get_by_role("button", name="Trigger").click()
    await expect(page.outcome).to_have_text("post.create happened: 0 deliveries, and 1 webhook that is invalid")


async def test_a_payload_that_is_no_object_is_explained(wide_page: InspectorPage) -> None:
    await wide_page.page.locator("#open-event").click()
    for text, wanted in (("{", "The payload is not JSON"), ("[1]", "The payload must be a JSON object")):
        await wide_page.dialog.get_by_label("Payload").fill(text)
        await wide_page.dialog.get_by_role("button", name="Trigger").click()
        await expect(wide_page.dialog.get_by_role("alert")).to_have_text(wanted)
    await wide_page.press("Escape")
    await expect(wide_page.dialog).to_have_count(0)
    assert await wide_page.get_focused() == "open-event"


async def test_the_clock_is_advanced_by_a_click(page: InspectorPage, sandbox: Sandbox) -> None:
    await page.page.locator("#open-clock").click()
    await page.dialog.get_by_role("button", name="1 hour").click()
    await page.dialog.get_by_role("button", name="Advance").click()
    await expect(page.outcome).to_have_text("The clock shows 2026-06-10T13:00:00Z")
    await expect(page.page.locator("#clock")).to_have_text("2026-06-10 13:00:00 UTC")
    assert sandbox.clock.monotonic() == 3600


async def test_a_reset_by_a_click_empties_the_page(page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await page.rows().first.click()
    await page.page.locator("#open-reset").click()
    await page.dialog.get_by_role("button", name="Reset").click()
    await expect(page.outcome).to_have_text("The sandbox is as new")
    await expect(page.rows()).to_have_count(0)
    await expect(page.page.locator("#count-requests")).to_have_text("0")
    assert len(raw.sandbox.requests) == 0
    await raw("GET", raw.account)
    await expect(page.rows()).to_have_count(1)


@pytest.mark.parametrize("config", [SandboxConfig(rate_rules={"global_reads": RateRule(2, 900, "user")})])
async def test_limits_and_streams_are_live(page: InspectorPage, raw: RawClient, v2: V2Client) -> None:
    await page.go_to("Limits")
    panel = page.page.locator("#panel-limits")
    await expect(panel).to_contain_text("No stream is open")
    await raw("GET", "/12/accounts")
    await expect(panel).to_contain_text("1 of 2 left")
    await raw("GET", "/12/accounts")
    await expect(panel).to_contain_text("0 of 2 left")
    await expect(panel.get_by_role("meter", name="global_reads")).to_have_count(1)
    async with v2.stream("/2/activity/stream"):
        await expect(panel.get_by_role("table")).to_contain_text("activity")
    await expect(panel).to_contain_text("No stream is open")


async def test_the_state_is_live(page: InspectorPage, raw: RawClient) -> None:
    await page.go_to("State")
    audience = page.page.get_by_role("row", name=raw.sandbox.audience_id)
    await expect(audience).to_contain_text("Customers")
    await raw.send_users(USERS)
    await expect(audience.locator(".number")).to_have_text("1")
    assert await page.count_pixels_too_wide() <= 0


async def test_a_request_is_found_by_its_text(wide_page: InspectorPage, raw: RawClient) -> None:
    for name in ("alpha", "beta", "gamma"):
        await raw("GET", f"/12/{name}")
    await raw("GET", raw.account)
    await wide_page.page.get_by_role("searchbox").fill("12/ beta")
    await expect(wide_page.rows()).to_have_count(1)
    raw.sandbox.faults.on("GET").once().do(Fault.http(503))
    await raw("GET", raw.account)
    for text, count in (("fault: http(503)", 1), ("no such call specified", 3), ("", 5)):  # whatever a row shows
        await wide_page.page.get_by_role("searchbox").fill(text)
        await expect(wide_page.rows()).to_have_count(count)
    await wide_page.page.get_by_label("Which requests").select_option("Refused")
    await expect(wide_page.rows()).to_have_count(4)


async def test_a_paused_list_stands_still(wide_page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await expect(wide_page.rows()).to_have_count(1)
    await wide_page.page.get_by_role("button", name="Pause").click()
    await raw("GET", raw.account)
    await expect(wide_page.page.locator("#panel-requests .note")).to_contain_text("Paused, 1 new one")
    await expect(wide_page.rows()).to_have_count(1)
    await wide_page.page.get_by_role("button", name="Pause").click()
    await expect(wide_page.rows()).to_have_count(2)


async def test_a_link_leads_to_a_request(browser: Any, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await raw("GET", "/12/nothing")
    url = f"{raw.sandbox.inspector_url}#requests/1"
    async with InspectorPage.open(browser, url) as page:
        await expect(page.detail()).to_contain_text("there is no such call here")


async def test_hostile_text_stays_text(
    page: InspectorPage, raw: RawClient, v2: V2Client, hook: RecordingReceiver
) -> None:
    sandbox = raw.sandbox
    sandbox.add_audience(name=HOSTILE)
    await v2.subscribe("post.create", webhook_id=await v2.register(hook), tag=HOSTILE)
    await sandbox.trigger("post.create", payload={"text": HOSTILE, HOSTILE: HOSTILE})
    body = [{"operation_type": HOSTILE, HOSTILE: [HOSTILE]}]
    await raw(
        "POST",
        "/12/<script>alert(3)</script><b>",
        {HOSTILE: HOSTILE},
        data=HOSTILE.encode(),
        headers={"X-Mine": "<b>&amp;"},
    )
    await raw.send_users(body)
    sandbox.faults.on("GET", HOSTILE).do(Fault.http(503))
    await expect(page.rows()).to_have_count(4)
    await expect(page.rows().nth(1)).to_contain_text("<script>alert(3)</script><b>")
    await page.rows().nth(1).click()
    await expect(page.detail()).to_contain_text("\\u202e")
    for name, selector in (("Deliveries", "#deliveries-list"), ("Faults", "#panel-faults"), ("State", "#panel-state")):
        await page.go_to(name)
        await expect(page.page.locator(selector)).not_to_be_empty()
        if name == "Deliveries":
            await page.rows("deliveries").first.click()
            await expect(page.detail("deliveries")).to_contain_text("<script>alert(2)</script>\\u202e")
    await expect(page.page.locator("#panel-state")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await page.page.locator("img[src=x], body script, main b").count() == 0
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in await page.page.locator("body").inner_text()


async def test_the_page_lives_on_after_the_sandbox_was_away(wide_page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await expect(wide_page.rows()).to_have_count(1)
    await raw.sandbox.aclose()
    await expect(wide_page.connection).to_have_text("Connection lost, trying again")
    await raw.sandbox.start()
    await expect(wide_page.connection).to_have_text("Live")
    await raw("GET", raw.account)
    await expect(wide_page.rows()).to_have_count(2)
    wide_page.problems = [text for text in wide_page.problems if "net::ERR_" not in text]  # Chromium's own lines


async def test_a_busy_sandbox_leaves_the_page_bounded(wide_page: InspectorPage, raw: RawClient) -> None:
    await raw("GET", raw.account)
    await wide_page.rows().first.click()
    for number in range(5_000):
        await raw("GET", "/12/nothing", {"n": number}, authorization="")
    await expect(wide_page.page.locator("#count-requests")).to_have_text("5,001")
    await expect(wide_page.rows().first).to_contain_text("n=4999")
    await expect(wide_page.page.locator("#panel-requests .note")).to_have_text("2,000 requests, the latest 150 shown")
    assert await wide_page.rows().count() == 150
    assert await wide_page.page.evaluate("document.querySelectorAll('*').length") < 3_000
    await wide_page.page.get_by_role("searchbox").fill("n=3456")
    await expect(wide_page.rows()).to_have_count(1)
    await wide_page.rows().first.click()
    await expect(wide_page.detail()).to_contain_text("3456")
    await wide_page.page.get_by_role("searchbox").fill("")
    await wide_page.page.get_by_role("button", name="Show older").click()
    await expect(wide_page.rows()).to_have_count(300)
