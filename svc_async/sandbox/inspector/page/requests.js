// The view of requests.

import { get } from "./api.js";
import { explainBasis, makeBasis, makeBody, makeFold, makePairs, makeProse, makeStatus, nameBasis, nameStatus } from "./detail.js";
import { formatClock, formatMoment, formatSeconds, h } from "./dom.js";
import { ListView } from "./list.js";

const KEPT = 2000;

export function makeRequests(panel, armFault) {
  return new ListView(panel, {
    name: "requests",
    key: "number",
    one: "request",
    many: "requests",
    label: "Requests, the latest first",
    detailLabel: "The selected request",
    hint: "Select a request to see what was sent, what was answered, and which rule decided.",
    kept: KEPT,
    empty: makeEmpty(),
    choices: [
      ["all", "All", () => true],
      ["refused", "Refused", (row) => row.status >= 400],
      ["server", "5xx or none", (row) => row.status >= 500 || isLost(row)],
      ["assumed", "Assumed", (row) => row.basis === "assumed"],
      ["faults", "With a fault", (row) => row.faults.length > 0],
    ],
    makeRow,
    describe,
    load: (number) => get(`inspector/request?number=${encodeURIComponent(number)}`),
    show: (request) => showRequest(request, armFault),
  });
}

// Returns the text of a row, so that whatever can be seen in it can be found.
function describe(row) {
  const status = nameStatus(row.status, { over: row.seconds !== null });
  const faults = row.faults.map((fault) => `fault: ${fault}`);
  return [row.method, row.path, row.query, status, formatClock(row.time), row.operation, row.rule, nameBasis(row.basis), row.reason, ...faults].join(" ");
}

function isLost(row) {
  return row.status === null && row.seconds !== null;
}

function isRefused(row) {
  return Boolean(row.reason) || row.status >= 400 || isLost(row);
}

function makeEmpty() {
  const variables = `export SVC_BASE_URL=${location.origin}\nexport SVC_ADS_URL=${location.origin}/ads`;
  return h("div", { class: "empty" },
    h("p", {}, "No request yet. Point a client at this sandbox:"),
    h("pre", { class: "body" }, variables),
    h("p", {}, "Its credentials are what ", h("code", {}, "svc-async sandbox"), " prints; in Python, ", h("code", {}, "Session.sandbox(sandbox)"), " has them. Each request appears here as soon as it has arrived."));
}

// The end of a path says most: where there is no room, its middle is left out.
function makePath({ path, query }) {
  const parts = path.split("/");
  const head = parts.slice(0, -2).join("/");
  const tail = path.slice(head.length);
  return h("span", { class: "path" },
    head && h("span", { class: "head" }, head), h("span", { class: "tail" }, tail, query ? h("span", { class: "query" }, `?${query}`) : null));
}

function makeRow(row) {
  const facts = [formatClock(row.time), row.operation, row.seconds === null ? null : formatSeconds(row.seconds)];
  return [
    h("span", { class: "line" },
      h("span", { class: "method" }, row.method), " ",
      makePath(row), " ",
      makeStatus(row.status, { over: row.seconds !== null })),
    h("span", { class: "facts" }, facts.filter(Boolean).join(" · "),
      row.faults.map((fault) => [" ", h("span", { class: "fault" }, `fault: ${fault}`)])),
    row.reason ? h("span", { class: "reason" }, row.reason, row.rule ? [" ", h("span", { class: "rule" }, row.rule), " ", makeBasis(row.basis)] : null) : null,
  ].filter(Boolean);
}

function showRequest(request, armFault) {
  return [
    h("h2", {}, h("span", { class: "method" }, request.method), " ", h("span", { class: "whole-path" }, request.path)),
    h("p", { class: "summary" }, makeStatus(request.status, { over: request.seconds !== null }), " ",
      [formatMoment(request.time), request.operation, request.seconds === null ? "still open" : formatSeconds(request.seconds)].filter(Boolean).join(" · ")),
    makeDecision(request),
    h("p", { class: "actions" }, h("button", { type: "button", "data-focus": "arm", on: { click: () => armFault(request) } }, "Arm a fault for this call")),
    ...makeQuery(request.query),
    ...makeBody("sent", "Request body", request.body),
    makeFold("headers", `Request headers (${request.headers.length})`, makePairs(request.headers)),
    ...makeAnswer(request),
  ];
}

function makeDecision(request) {
  const lines = [];
  if (request.reason) lines.push(h("p", { class: "why" }, request.reason));
  if (request.faults.length > 0) lines.push(h("p", {}, h("span", { class: "fault" }, `fault: ${request.faults.join(", ")}`), " An armed fault struck."));
  if (request.rule) {
    lines.push(h("p", {}, "Decided by ", h("strong", { class: "rule" }, request.rule), " ", makeBasis(request.basis), " ", h("span", { class: "quiet" }, explainBasis(request.basis))));
    if (request.statement) lines.push(h("blockquote", {}, makeProse(request.statement)));
  }
  return lines.length > 0 ? h("div", { class: `decision ${isRefused(request) ? "is-refused" : ""}` }, lines) : null;
}

function makeQuery(query) {
  if (!query) return [];
  return [h("h3", {}, "Query"), makePairs([...new URLSearchParams(query)])];
}

function makeAnswer(request) {
  if (request.answer === null) {
    const text = request.seconds === null ? "None yet." : request.status === null ? "None: the connection was closed." : "Written piece by piece, and not kept.";
    return [h("h3", {}, "Answer"), h("p", { class: "quiet" }, text)];
  }
  return [
    ...makeBody("answer", "Answer", request.answer.body),
    makeFold("answer-headers", `Answer headers (${request.answer.headers.length})`, makePairs(request.answer.headers)),
  ];
}
