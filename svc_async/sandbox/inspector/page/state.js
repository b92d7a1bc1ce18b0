// The view of the state: tables that are loaded while the view is open.

import { get } from "./api.js";
import { h, plural } from "./dom.js";
import { makeTable } from "./present.js";

const PAUSE = 1000;
const SHARE = 20;

export class StateView {
  constructor(panel) {
    this.panel = panel;
    this.shown = new Map();
    this.isOpen = false;
    this.note = h("p", { class: "quiet" }, "Loading");
    this.tables = h("div");
    panel.append(this.note, this.tables);
  }

  open(isOpen) {
    const was = this.isOpen;
    this.isOpen = isOpen;
    if (isOpen && !was) this.load();
  }

  // Loads again after a pause, a longer one where the sandbox takes long to count.
  async load() {
    const began = performance.now();
    try {
      this.show(await get("inspector/state"));
    } catch (error) {
      this.note.replaceChildren(error.message);
    }
    const pause = Math.max(PAUSE, (performance.now() - began) * SHARE);
    setTimeout(() => { if (this.isOpen) this.load(); }, pause);
  }

  show(state) {
    this.note.replaceChildren("The latest 100 rows of each table, kept up to date.");
    for (const table of state.tables) {
      const text = JSON.stringify(table);
      const known = this.shown.get(table.name);
      if (known?.text === text) continue;
      const section = known?.section ?? this.addSection(table.name);
      this.shown.set(table.name, { text, section });
      this.fill(section, table);
    }
  }

  addSection(name) {
    const section = h("details", { open: true }, h("summary", {}, name), h("div"));
    this.tables.append(section);
    return section;
  }

  fill(section, table) {
    const [summary, content] = section.children;
    summary.replaceChildren(h("span", {}, table.name), " ", h("span", { class: "count" }, plural(table.total, "row")));
    const hasFocus = content.contains(document.activeElement);
    const left = content.firstElementChild?.scrollLeft ?? 0;
    content.replaceChildren(table.total === 0 ? h("p", { class: "quiet" }, "None.") : makeTable(table.name, table.columns, table.rows));
    content.firstElementChild.scrollLeft = left;
    if (hasFocus) content.firstElementChild.focus();
  }
}
