// The views of rate limits, open streams and armed faults.

import { arrange, formatClock, formatNumber, formatSeconds, h, plural, setText } from "./dom.js";

const FEW_LEFT = 0.2;

export class LimitsView {
  constructor(panel) {
    this.gauges = new Map();
    this.list = h("ul", { class: "gauges" });
    this.none = h("p", { class: "quiet" }, "No limit has counted a request in its present window.");
    this.streams = h("div");
    panel.append(h("h2", {}, "Rate limits"), this.none, this.list, h("h2", {}, "Open streams"), this.streams);
  }

  show(present) {
    const now = Date.parse(present.time) / 1000;
    const elements = present.gauges.map((gauge) => this.showGauge(gauge, now));
    arrange(this.list, elements);
    const known = new Set(elements);
    for (const [key, parts] of this.gauges) if (!known.has(parts.element)) this.gauges.delete(key);
    this.none.hidden = elements.length > 0;
    this.showStreams(present.streams);
  }

  showGauge(gauge, now) {
    const key = `${gauge.name} ${gauge.scope}`;
    if (!this.gauges.has(key)) this.gauges.set(key, makeGauge(gauge));
    const { element, meter, bar, left } = this.gauges.get(key);
    const remaining = Math.max(gauge.limit - gauge.used, 0);
    const text = `${formatNumber(remaining)} of ${formatNumber(gauge.limit)} left; the window of ${formatSeconds(gauge.period)} resets in ${formatSeconds(Math.max(gauge.reset - now, 0))}`;
    setText(left, text);
    meter.setAttribute("aria-valuenow", remaining);
    meter.setAttribute("aria-valuetext", text);
    bar.style.width = `${(100 * remaining) / Math.max(gauge.limit, 1)}%`;
    element.classList.toggle("has-few", remaining <= gauge.limit * FEW_LEFT);
    element.classList.toggle("is-used-up", remaining === 0);
    return element;
  }

  showStreams(streams) {
    const text = JSON.stringify(streams);
    if (text === this.streamsShown) return;
    this.streamsShown = text;
    if (streams.length === 0) {
      this.streams.replaceChildren(h("p", { class: "quiet" }, "No stream is open."));
      return;
    }
    this.streams.replaceChildren(makeTable("Open streams", ["Stream", "Number", "Open since", "Lines sent", "Queued", "State"],
      streams.map((stream) => [stream.product, stream.number, formatClock(stream.opened_at), stream.sent, stream.queued, stream.stalled ? "stalled" : "flowing"])));
  }
}

function makeGauge(gauge) {
  const label = `${gauge.name}, ${gauge.scope}`;
  const bar = h("div");
  const meter = h("div", { class: "meter", role: "meter", "aria-valuemin": "0", "aria-valuemax": gauge.limit, "aria-label": `${label}: requests left` }, bar);
  const left = h("p", { class: "quiet" });
  const element = h("li", {}, h("p", {}, h("strong", {}, gauge.name), " ", h("span", { class: "quiet" }, gauge.scope)), meter, left);
  return { element, meter, bar, left };
}

export function makeTable(label, columns, rows) {
  return h("div", { class: "table", role: "region", tabindex: "0", "aria-label": label },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((name, place) => h("th", { scope: "col", class: typeof rows[0]?.[place] === "number" ? "number" : undefined }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => makeCell(cell, place)))))));
}

function makeCell(cell, place) {
  const text = cell === null || cell === undefined || cell === "" ? "–" : typeof cell === "number" ? formatNumber(cell) : String(cell);
  const kind = typeof cell === "number" ? "number" : undefined;
  return place === 0 ? h("th", { scope: "row", class: kind }, text) : h("td", { class: kind }, text);
}

export class FaultsView {
  constructor(panel, hands) {
    this.hands = hands;
    this.elements = new Map();
    this.list = h("ul", { class: "faults" });
    this.none = h("p", { class: "quiet" }, "No fault is armed.");
    this.arm = h("button", { type: "button", on: { click: () => hands.armFault() } }, "Arm a fault");
    this.clear = h("button", { type: "button", on: { click: () => this.hands.clearFaults().then(() => this.arm.focus()) } }, "Disarm all");
    panel.append(h("h2", {}, "Armed faults"), h("p", { class: "actions" }, this.arm, " ", this.clear), this.none, this.list);
  }

  show(faults) {
    const shown = faults.map((fault) => this.showFault(fault));
    const isLost = this.list.contains(document.activeElement);
    arrange(this.list, shown);
    if (isLost && !this.list.contains(document.activeElement)) this.arm.focus();
    const numbers = new Set(faults.map((fault) => fault.number));
    for (const number of this.elements.keys()) if (!numbers.has(number)) this.elements.delete(number);
    this.none.hidden = faults.length > 0;
    this.clear.hidden = faults.length === 0;
  }

  showFault(fault) {
    if (!this.elements.has(fault.number)) this.elements.set(fault.number, this.makeFault(fault));
    const { element, struck } = this.elements.get(fault.number);
    setText(struck, `Struck ${plural(fault.struck, "time")}, of ${plural(fault.seen, "matching request")}`);
    element.classList.toggle("has-struck", fault.struck > 0);
    return element;
  }

  makeFault(fault) {
    const struck = h("p", { class: "quiet" });
    const label = `Disarm ${fault.fault} on ${fault.method} ${fault.path}`;
    const element = h("li", {},
      h("div", {},
        h("p", {}, h("span", { class: "fault" }, fault.fault), " ", h("span", { class: "method" }, fault.method === "*" ? "any method" : fault.method), " ", h("code", {}, fault.path)),
        h("p", { class: "quiet" }, `${fault.when}, ${fault.stage === "after" ? "after it took effect" : "before it takes effect"}`),
        struck),
      h("button", { type: "button", "aria-label": label, on: { click: () => this.hands.disarmFault(fault.number) } }, "Disarm"));
    return { element, struck };
  }
}
