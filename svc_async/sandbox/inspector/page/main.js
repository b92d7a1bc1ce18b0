// Connects the views with the feed.

import { follow } from "./api.js";
import { makeDeliveries } from "./deliveries.js";
import { formatMoment, formatNumber, setText } from "./dom.js";
import { Hands } from "./hands.js";
import { FaultsView, LimitsView } from "./present.js";
import { makeRequests } from "./requests.js";
import { StateView } from "./state.js";

const find = (id) => document.getElementById(id);
const NAMES = ["requests", "deliveries", "limits", "faults", "state"];
const CONNECTION = { live: "Live", lost: "Connection lost, trying again" };

function announce(text, isProblem = false) {
  const outcome = find("outcome");
  outcome.classList.toggle("is-problem", isProblem);
  setText(outcome, text);
}

const hands = new Hands(announce);
const requests = makeRequests(find("panel-requests"), (request) => hands.armFault(request));
const deliveries = makeDeliveries(find("panel-deliveries"));
const limits = new LimitsView(find("panel-limits"));
const faults = new FaultsView(find("panel-faults"), hands);
const state = new StateView(find("panel-state"));

function show(name) {
  for (const each of NAMES) {
    const tab = find(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    find(`panel-${each}`).hidden = each !== name;
  }
  state.open(name === "state");
}

function choose(name) {
  show(name);
  history.replaceState(null, "", `#${name}`);
}

function listenToTabs() {
  for (const [place, name] of NAMES.entries()) {
    const tab = find(`tab-${name}`);
    tab.addEventListener("click", () => choose(name));
    tab.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: NAMES.length - 1 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      const next = NAMES[(steps[event.key] + NAMES.length) % NAMES.length];
      choose(next);
      find(`tab-${next}`).focus();
    });
  }
}

function followHash() {
  const [name, key] = location.hash.slice(1).split("/");
  if (!NAMES.includes(name)) return;
  show(name);
  if (key !== undefined) ({ requests, deliveries })[name]?.select(decodeURIComponent(key));
}

let run = null;

function onHello(options) {
  if (run !== null && run !== options.run) {
    requests.clear();
    deliveries.clear();
  }
  run = options.run;
  hands.setOptions(options);
  setText(find("clock-kind"), options.clock === "machine" ? "Time" : "Virtual time");
}

function onPresent(present) {
  setText(find("clock"), formatMoment(present.time));
  setText(find("count-requests"), formatNumber(present.requests));
  setText(find("count-deliveries"), formatNumber(present.deliveries));
  setText(find("count-faults"), formatNumber(present.faults.length));
  limits.show(present);
  faults.show(present.faults);
}

function report(connection) {
  const element = find("connection");
  element.dataset.state = connection;
  setText(element, CONNECTION[connection]);
}

listenToTabs();
window.addEventListener("hashchange", followHash);
follow({ hello: onHello, requests: (rows) => requests.add(rows), deliveries: (rows) => deliveries.add(rows), present: onPresent }, report);
followHash();
