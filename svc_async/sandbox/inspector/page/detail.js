// Parts of the details of a request or a delivery.

import { clean, formatBytes, h } from "./dom.js";

const COLOURED = 40_000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

const BASES = {
  spec: ["Specified", "the specification states it"],
  public: ["Public", "a public fact beyond the specification"],
  assumed: ["Assumed", "the specification is silent; the service may answer otherwise"],
};

export function nameBasis(basis) {
  return BASES[basis]?.[0] ?? "";
}

export function makeBasis(basis) {
  return basis in BASES ? h("span", { class: `basis basis-${basis}` }, nameBasis(basis)) : null;
}

export function explainBasis(basis) {
  return BASES[basis]?.[1] ?? "";
}

export function nameStatus(status, { over = true } = {}) {
  return String(status ?? (over ? "no answer" : "open"));
}

export function makeStatus(status, { over = true } = {}) {
  const kind = status === null || status === undefined ? (over ? "none" : "open") : Math.floor(status / 100);
  return h("span", { class: `status status-${kind}` }, nameStatus(status, { over }));
}

// Returns a sentence in which what stands between backticks is code.
export function makeProse(text) {
  return text.split("`").map((part, place) => (place % 2 === 1 ? h("code", {}, part) : part));
}

export function makePairs(pairs) {
  return h("dl", { class: "pairs" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function makeFold(name, title, ...content) {
  return h("details", { "data-name": name }, h("summary", { "data-focus": name }, title), ...content);
}

function colour(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(text.slice(end, match.index));
    const [whole, string, colon] = match;
    const kind = string === undefined ? "value" : colon === undefined ? "string" : "name";
    parts.push(h("span", { class: `json-${kind}` }, string ?? whole), colon ?? "");
    end = match.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts.filter((part) => part !== "").map((part) => (part instanceof Node ? part : clean(part)));
}

const SILENT = {
  none: "No body.",
  page: "An HTML page for a browser.",
  private: "Not shown: it may contain a secret.",
};

export function makeBody(name, label, body) {
  const title = h("h3", {}, label, body === null || body.size === 0 ? null : h("span", { class: "aside" }, formatBytes(body.size)));
  if (body === null) return [title, h("p", { class: "quiet" }, "It was dropped: only the latest bodies are kept.")];
  if (body.kind in SILENT) return [title, h("p", { class: "quiet" }, SILENT[body.kind])];
  const isColoured = body.kind === "json" && body.text.length < COLOURED;
  const text = h("pre", { class: "body", tabindex: "0", role: "region", "aria-label": label, "data-focus": name });
  text.append(...(isColoured ? colour(body.text) : [clean(body.text)]));
  return [title, text, body.cut ? h("p", { class: "quiet" }, "The rest is not shown.") : null].filter(Boolean);
}
