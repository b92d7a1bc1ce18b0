// The view of webhook deliveries.

import { get } from "./api.js";
import { makeBody, makeFold, makePairs, makeProse, makeStatus } from "./detail.js";
import { formatClock, formatMoment, formatSeconds, h, plural } from "./dom.js";
import { ListView } from "./list.js";

const KEPT = 1000;
const FAILED = ["exhausted", "dropped"];

export function makeDeliveries(panel) {
  return new ListView(panel, {
    name: "deliveries",
    key: "id",
    one: "delivery",
    many: "deliveries",
    label: "Deliveries, the latest first",
    detailLabel: "The selected delivery",
    hint: "Select a delivery to see its event, its signature and every attempt.",
    kept: KEPT,
    empty: h("div", { class: "empty" },
      h("p", {}, "No delivery yet. Register a webhook, subscribe it to an event, then trigger one."),
      h("pre", { class: "body" }, "svc-async webhook register URL --event post.create")),
    choices: [
      ["all", "All", () => true],
      ["failed", "Failed", (row) => FAILED.includes(row.state)],
      ["open", "Under way", (row) => ["pending", "retrying"].includes(row.state)],
    ],
    makeRow,
    describe: (row) => [...Object.values(row), formatClock(row.time), describeAttempts(row), row.fault ? `fault: ${row.fault}` : ""].join(" "),
    load: (id) => get(`inspector/delivery?id=${encodeURIComponent(id)}`),
    show: showDelivery,
  });
}

function makeState(state) {
  return h("span", { class: `state state-${state}` }, state);
}

function describeAttempts(row) {
  return row.attempts > 0 ? `${plural(row.attempts, "attempt")}, the last: ${row.verdict}` : "not sent yet";
}

function makeRow(row) {
  return [
    h("span", { class: "line" }, h("span", { class: "path" }, row.event_type || "event"), " ", makeState(row.state)),
    h("span", { class: "facts" }, `${formatClock(row.time)} · ${row.url}`),
    h("span", { class: "facts" }, describeAttempts(row), row.fault ? [" ", h("span", { class: "fault" }, `fault: ${row.fault}`)] : null),
  ];
}

function showDelivery(delivery) {
  return [
    h("h2", {}, delivery.event_type || "Event"),
    h("p", { class: "summary" }, makeState(delivery.state), " ", formatMoment(delivery.time)),
    makePairs([
      ["To", delivery.url],
      ["Webhook", delivery.webhook_id],
      ...(delivery.event_uuid ? [["Event id", delivery.event_uuid]] : []),
      ...(delivery.replay_job ? [["Replay job", delivery.replay_job]] : []),
      ...(delivery.fault ? [["Fault", delivery.fault]] : []),
    ]),
    h("h3", {}, "Attempts"),
    delivery.tries.length === 0 ? h("p", { class: "quiet" }, "None yet.") : null,
    ...delivery.tries.map(showAttempt),
    ...makeBody("event", "Event", delivery.body),
  ];
}

function showAttempt(attempt, place) {
  const signatures = attempt.headers.filter(([name]) => name.includes("signature"));
  const result = [attempt.verdict, attempt.rule, formatSeconds(attempt.seconds), attempt.reason].filter(Boolean).join(" · ");
  return h("div", { class: "attempt" },
    h("p", {}, h("strong", {}, `${place + 1}. `), makeStatus(attempt.status), " ", formatMoment(attempt.time)),
    h("p", { class: "quiet" }, result),
    attempt.statement && attempt.verdict !== "ok" ? h("blockquote", {}, makeProse(attempt.statement)) : null,
    signatures.length > 0 ? makePairs(signatures) : h("p", { class: "quiet" }, "Not signed."),
    makeFold(`attempt-${place}`, "Headers and answer", makePairs(attempt.headers), ...makeBody(`attempt-body-${place}`, `Answer ${place + 1}`, attempt.answer)));
}
