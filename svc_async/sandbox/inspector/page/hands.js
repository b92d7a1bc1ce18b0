// What a person can do: arm a fault, trigger an event, advance the clock, reset. Each has a dialog.

import { post } from "./api.js";
import { h, plural } from "./dom.js";

const STEPS = [["1 minute", 60], ["15 minutes", 900], ["1 hour", 3600], ["1 day", 86_400]];

// Returns the pattern that fits this path only.
function makePattern(path) {
  return path.replace(/[*?[]/g, "[$&]");
}

// Returns how many webhooks an event goes to, and how many of them are invalid and do not get it.
function describeDeliveries({ deliveries, dropped }) {
  if (deliveries === 0) return "no webhook is subscribed to it";
  const sent = plural(deliveries - dropped, "delivery", "deliveries");
  return dropped === 0 ? sent : `${sent}, and ${plural(dropped, "webhook that is", "webhooks that are")} invalid`;
}

export class Hands {
  constructor(announce) {
    this.announce = announce;
    this.options = { clock: "machine", fault_kinds: [], event_types: [], users: [] };
    this.clockButton = document.getElementById("open-clock");
    this.listen("open-fault", () => this.armFault());
    this.listen("open-event", () => this.triggerEvent());
    this.listen("open-clock", () => this.advanceClock());
    this.listen("open-reset", () => this.reset());
  }

  listen(id, act) {
    document.getElementById(id).addEventListener("click", act);
  }

  setOptions(options) {
    this.options = options;
    this.clockButton.hidden = options.clock === "machine";
  }

  armFault(request = null) {
    const kinds = this.options.fault_kinds;
    const kind = makeSelect("fault-kind", "What happens", kinds.map(({ name, label }) => [name, label]));
    const method = makeSelect("fault-method", "Method", ["*", "GET", "POST", "PUT", "DELETE"].map((name) => [name, name === "*" ? "Any" : name]), request?.method);
    const path = makeInput("fault-path", "Path", { value: request === null ? "*" : makePattern(request.path), required: true, maxlength: "500" }, "A pattern: * stands for any text");
    const when = makeSelect("fault-when", "Which requests", [["times", "The first"], ["nth", "Only number"], ["always", "Each of them"], ["probability", "A random share"]]);
    const count = makeInput("fault-count", "How many", { type: "number", value: "1", min: "0", step: "any", required: true });
    const stage = makeSelect("fault-stage", "When it strikes", [["", "As usual for this fault"], ["before", "Before the request takes effect"], ["after", "After it took effect"]]);
    const fields = h("div", { class: "fields" });
    const showFields = () => fields.replaceChildren(...kinds.find(({ name }) => name === kind.field.value).fields.map(makeFaultField));
    const showCount = () => {
      count.hidden = when.field.value === "always";
      count.field.disabled = count.hidden;
      count.querySelector("label").textContent = { times: "How many", nth: "Number", probability: "Share, from 0 to 1" }[when.field.value] ?? "";
    };
    kind.field.addEventListener("change", showFields);
    when.field.addEventListener("change", showCount);
    showFields();
    showCount();
    openDialog("Arm a fault", "Arm", [kind, fields, h("div", { class: "fields" }, method, path), h("div", { class: "fields" }, when, count), stage], async () => {
      const body = { kind: kind.field.value, method: method.field.value, path: path.field.value };
      for (const input of fields.querySelectorAll("input")) if (input.value !== "") body[input.name] = READERS[input.dataset.type](input.value, input.name);
      if (when.field.value !== "always") body[when.field.value] = Number(count.field.value);
      if (stage.field.value !== "") body.stage = stage.field.value;
      const fault = await post("faults", body);
      this.announce(`Armed: ${fault.fault}, ${fault.when}, ${fault.method === "*" ? "any method" : fault.method} ${fault.path}`);
    });
  }

  async disarmFault(number) {
    await this.report(post("faults/disarm", { number }), "The fault is disarmed");
  }

  async clearFaults() {
    await this.report(post("faults/clear"), "All faults are disarmed");
  }

  triggerEvent() {
    const type = makeSelect("event-type", "Event", this.options.event_types.map((name) => [name, name]));
    const user = makeSelect("event-user", "It happens to", this.options.users.map(([id, name]) => [id, name]), this.options.user_id);
    const payload = makeText("event-payload", "Payload (optional)", "A JSON object that is merged into the usual payload, such as {\"text\": \"Hello\"}");
    openDialog("Trigger an event", "Trigger", [type, user, payload], async () => {
      const body = { event_type: type.field.value, user_id: user.field.value };
      if (payload.field.value.trim() !== "") body.payload = readObject(payload.field.value, "The payload");
      const event = await post("events", body);
      this.announce(`${event.event_type} happened: ${describeDeliveries(event)}`);
    });
  }

  advanceClock() {
    const seconds = makeInput("clock-seconds", "Seconds", { type: "number", min: "0", max: "315360000", step: "any", value: "60", required: true });
    const steps = h("div", { class: "steps", role: "group", "aria-label": "Usual spans" }, STEPS.map(([label, value]) =>
      h("button", { type: "button", on: { click: () => { seconds.field.value = String(value); seconds.field.focus(); } } }, label)));
    openDialog("Advance the clock", "Advance", [steps, seconds], async () => {
      const { time } = await post("clock/advance", { seconds: Number(seconds.field.value) });
      this.announce(`The clock shows ${time}`);
    });
  }

  reset() {
    const text = h("p", {}, "The sandbox returns to the state of its seed. Requests, deliveries, faults and all changes are forgotten; the clock and the credentials stay.");
    openDialog("Reset the sandbox", "Reset", [text], async () => {
      await post("reset");
      this.announce("The sandbox is as new");
    });
  }

  async report(call, text) {
    try {
      await call;
      this.announce(text);
    } catch (error) {
      this.announce(error.message, true);
    }
  }
}

function readObject(text, what) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(`${what} is not JSON`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error(`${what} must be a JSON object`);
  return value;
}

function makeField(id, label, field, help) {
  field.id = id;
  const parts = [h("label", { for: id }, label), field];
  if (help) {
    field.setAttribute("aria-describedby", `${id}-help`);
    parts.push(h("p", { class: "quiet", id: `${id}-help` }, help));
  }
  const element = h("div", { class: "field" }, parts);
  element.field = field;
  return element;
}

function makeSelect(id, label, choices, chosen) {
  return makeField(id, label, h("select", {}, choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
}

function makeInput(id, label, properties, help) {
  return makeField(id, label, h("input", { autocomplete: "off", spellcheck: "false", ...properties }), help);
}

function makeText(id, label, help) {
  return makeField(id, label, h("textarea", { rows: "4", spellcheck: "false" }), help);
}

const READERS = { number: Number, text: String, json: readObject };

function makeFaultField(field) {
  const isNumber = field.type === "number";
  const written = field.type === "json" && field.default !== null ? JSON.stringify(field.default) : field.default;
  return makeInput(`fault-${field.name}`, field.label, {
    name: field.name, type: isNumber ? "number" : "text", "data-type": field.type, value: written ?? "", required: field.default !== null,
    ...(isNumber ? { min: field.minimum, max: field.maximum, step: field.whole ? "1" : "any" } : {}),
  });
}

// Opens a dialog with a form; it stays open while `act` fails, with the reason. A second click does not act twice.
function openDialog(title, verb, content, act) {
  const id = "dialog-title";
  const problem = h("p", { class: "problem", role: "alert" });
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  let isBusy = false;
  const form = h("form", { on: { submit: async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    problem.textContent = "";
    try {
      await act();
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
    }
    isBusy = false;
  } } }, h("h2", { id }, title), ...content, problem, h("p", { class: "actions" }, h("button", { type: "submit", class: "primary" }, verb), " ", cancel));
  const dialog = h("dialog", { "aria-labelledby": id, on: { close: () => dialog.remove() } }, form);
  document.body.append(dialog);
  dialog.showModal();
}
