// A list of rows with a filter, and beside it everything about the selected row.
//
// Rows are options of a listbox, which keeps the focus while they change. Few of them are in the page: the latest that
// match the filter, more on request.

import { arrange, formatNumber, h, plural, setText } from "./dom.js";

const SHOWN = 150;
const NAMED_AFTER = 300;

export class ListView {
  // Options: name, many (what rows are called), kept (most rows), choices ([value, label, matches]), empty (element),
  // makeRow(row) -> children, describe(row) -> text to search, load(key) -> promise of details, show(details) -> elements.
  constructor(panel, options) {
    this.options = options;
    this.rows = new Map();
    this.elements = new Map();
    this.selected = null;
    this.shown = SHOWN;
    this.pausedAt = null;
    this.scheduled = false;
    this.detailOf = null;
    this.build(panel);
  }

  build(panel) {
    const { name, many, choices } = this.options;
    this.panel = panel;
    this.search = h("input", { type: "search", id: `${name}-search`, placeholder: "Filter", autocomplete: "off",
      spellcheck: "false", "aria-label": `Filter ${many} by any text of a row` });
    this.choice = h("select", { "aria-label": `Which ${many}` }, choices.map(([value, label]) => h("option", { value }, label)));
    this.pause = h("button", { type: "button", "aria-pressed": "false" }, "Pause");
    this.note = h("p", { class: "note" });
    this.list = h("ul", { class: "rows", role: "listbox", tabindex: "0", id: `${name}-list`, "aria-label": this.options.label });
    this.more = h("button", { type: "button", class: "more", hidden: true }, "Show older");
    this.detail = h("div", { class: "detail", id: `${name}-detail`, tabindex: "-1", role: "region", "aria-label": this.options.detailLabel });
    this.empty = this.options.empty;
    panel.append(
      h("div", { class: "left" },
        h("div", { class: "filter", role: "group", "aria-label": `Filter ${many}` }, this.search, this.choice, this.pause),
        this.note, this.empty, this.list, this.more),
      this.detail);
    this.listen();
    this.showNothing();
    this.schedule();
  }

  listen() {
    this.search.addEventListener("input", () => this.restart());
    this.choice.addEventListener("change", () => this.restart());
    this.pause.addEventListener("click", () => this.togglePause());
    this.more.addEventListener("click", () => { this.shown += SHOWN; this.schedule(); });
    this.list.addEventListener("click", (event) => {
      const element = event.target.closest("[role=option]");
      if (element === null) return;
      this.select(element.dataset.key);
      if (this.isNarrow()) this.open();
    });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.detail.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
  }

  onKey(event) {
    const keys = [...this.list.children].map((element) => element.dataset.key);
    const place = keys.indexOf(this.selected);
    const steps = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + 10, PageUp: place - 10, Home: 0, End: keys.length - 1 };
    if (event.key in steps && keys.length > 0) {
      event.preventDefault();
      this.select(keys[Math.min(Math.max(steps[event.key], 0), keys.length - 1)]);
      this.elements.get(this.selected)?.element.scrollIntoView({ block: "nearest" });
    } else if ((event.key === "Enter" || event.key === " ") && this.selected !== null) {
      event.preventDefault();
      this.open();
    }
  }

  isNarrow() {
    return matchMedia("(max-width: 899px)").matches;
  }

  // Adds rows, or replaces those with the same key, and forgets the oldest.
  add(rows) {
    for (const row of rows) this.rows.set(String(row[this.options.key]), row);
    for (const key of this.rows.keys()) {
      if (this.rows.size <= this.options.kept) break;
      this.rows.delete(key);
    }
    if (this.detailOf !== null && rows.some((row) => String(row[this.options.key]) === this.detailOf)) this.load(this.detailOf);
    this.schedule();
  }

  clear() {
    clearTimeout(this.naming);
    this.rows.clear();
    this.elements.clear();
    this.selected = this.pausedAt = null;
    this.pause.setAttribute("aria-pressed", "false");
    this.showNothing();
    this.restart();
  }

  restart() {
    this.shown = SHOWN;
    this.schedule();
  }

  togglePause() {
    this.pausedAt = this.pausedAt === null ? new Set(this.rows.keys()) : null;
    this.pause.setAttribute("aria-pressed", String(this.pausedAt !== null));
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.render(); });
  }

  find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const [, , matches] = this.options.choices.find(([value]) => value === this.choice.value);
    const found = [];
    for (const [key, row] of this.rows) {
      if (this.pausedAt !== null && !this.pausedAt.has(key)) continue;
      if (!matches(row)) continue;
      const text = words.length > 0 ? this.options.describe(row).toLowerCase() : "";
      if (words.every((word) => text.includes(word))) found.push(key);
    }
    return found.reverse();
  }

  render() {
    const found = this.find();
    const shown = found.slice(0, this.shown);
    const elements = shown.map((key) => this.getElement(key));
    arrange(this.list, elements);
    const wanted = new Set(shown);
    for (const key of this.elements.keys()) if (!wanted.has(key)) this.elements.delete(key);
    this.mark();
    this.more.hidden = found.length <= shown.length;
    this.empty.hidden = this.rows.size > 0;
    this.list.hidden = this.rows.size === 0;
    this.search.disabled = this.choice.disabled = this.pause.disabled = false;
    setText(this.note, this.describeFound(found.length, shown.length));
  }

  describeFound(found, shown) {
    const { many, one } = this.options;
    const held = this.pausedAt === null ? 0 : this.rows.size - this.pausedAt.size;
    const waiting = this.pausedAt === null ? "" : `. Paused, ${plural(Math.max(held, 0), "new one", "new ones")}`;
    if (this.rows.size === 0) return "";
    if (found === 0) return `No ${one} matches${waiting}`;
    const what = found === this.rows.size ? plural(found, one, many) : `${formatNumber(found)} of ${plural(this.rows.size, one, many)}`;
    return `${what}${shown < found ? `, the latest ${shown} shown` : ""}${waiting}`;
  }

  getElement(key) {
    const row = this.rows.get(key);
    const known = this.elements.get(key);
    if (known?.row === row) return known.element;
    const element = known?.element ?? h("li", { role: "option", id: `${this.options.name}-${key}`, "data-key": key });
    element.replaceChildren(...this.options.makeRow(row));
    this.elements.set(key, { row, element });
    return element;
  }

  mark() {
    for (const { element } of this.elements.values()) {
      element.setAttribute("aria-selected", String(element.dataset.key === this.selected));
    }
    const element = this.elements.get(this.selected)?.element;
    if (element === undefined) this.list.removeAttribute("aria-activedescendant");
    else this.list.setAttribute("aria-activedescendant", element.id);
  }

  select(key) {
    if (key === this.selected && this.detailOf === key) return;
    this.selected = key;
    this.mark();
    this.load(key);
    // Browsers refuse many changes of the address within a short time, as by a key that is held down.
    clearTimeout(this.naming);
    this.naming = setTimeout(() => history.replaceState(null, "", `#${this.options.name}/${encodeURIComponent(key)}`), NAMED_AFTER);
  }

  async load(key) {
    this.detailOf = key;
    let content;
    try {
      content = this.options.show(await this.options.load(key));
    } catch (error) {
      content = [h("p", { class: "empty" }, error.message)];
    }
    if (this.detailOf !== key) return;
    this.fill(content);
  }

  // Replaces the details and keeps what is open, where it is scrolled to, and the focus.
  fill(content) {
    const open = new Map([...this.detail.querySelectorAll("details")].map((each) => [each.dataset.name, each.open]));
    const focused = this.detail.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
    const top = this.detail.scrollTop;
    const isSame = this.detail.dataset.key === this.detailOf;
    this.detail.dataset.key = this.detailOf;
    const back = h("button", { type: "button", class: "back", "data-focus": "back", on: { click: () => this.close() } }, "Back to the list");
    this.detail.replaceChildren(back, ...content.filter((part) => part !== null));
    for (const each of this.detail.querySelectorAll("details")) {
      if (open.has(each.dataset.name)) each.open = open.get(each.dataset.name);
    }
    this.detail.scrollTop = isSame ? top : 0;
    if (focused !== undefined) (this.detail.querySelector(`[data-focus="${focused}"]`) ?? this.detail).focus();
  }

  showNothing() {
    this.detailOf = null;
    this.panel.classList.remove("is-open");
    this.detail.replaceChildren(h("p", { class: "empty" }, this.options.hint));
  }

  open() {
    this.panel.classList.add("is-open");
    this.detail.focus();
  }

  close() {
    this.panel.classList.remove("is-open");
    this.list.focus();
    this.elements.get(this.selected)?.element.scrollIntoView({ block: "nearest" });
  }
}
