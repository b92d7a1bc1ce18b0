// Mends what the theme leaves to assistive technology: landmarks of the same name, and tables that only a mouse can scroll.

function nameLandmarks() {
  const names = new Map();
  document.querySelector(".md-path")?.setAttribute("aria-label", "Breadcrumbs");
  for (const each of document.querySelectorAll(".md-code__nav")) each.setAttribute("role", "none"); // one button
  for (const each of document.querySelectorAll("nav:not([role])")) {
    const label = document.getElementById(each.getAttribute("aria-labelledby"))?.textContent.trim();
    const name = each.getAttribute("aria-label") || label || "Section";
    const count = (names.get(name) ?? 0) + 1;
    names.set(name, count);
    each.removeAttribute("aria-labelledby");
    each.setAttribute("aria-label", count > 1 ? `${name} (${count})` : name);
  }
}

const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});

function letKeyboardScroll() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    table.setAttribute("role", "group");
    table.setAttribute("aria-label", "Table");
    widths.observe(table);
  }
}

document$.subscribe(() =>
  requestAnimationFrame(() => {
    // The theme has added its buttons and wrapped the tables.
    nameLandmarks();
    letKeyboardScroll();
  }),
);
