// Replaces the content of the page by what the server sends, and keeps the focus and what was opened.

const main = document.querySelector("main");
const state = document.querySelector("#connection");

function replace(markup) {
  const opened = new Set([...main.querySelectorAll("details[open]")].map((each) => each.id));
  const focused = document.activeElement?.closest("details")?.id;
  const content = new DOMParser().parseFromString(markup, "text/html");
  main.replaceChildren(...content.body.childNodes);
  for (const each of main.querySelectorAll("details")) {
    each.open = opened.has(each.id);
    if (each.id === focused) each.querySelector("summary").focus({ preventScroll: true });
  }
}

function show(connection, text) {
  state.dataset.state = connection;
  if (state.textContent !== text) state.textContent = text;
}

const source = new EventSource("events");
source.addEventListener("open", () => show("live", "Live"));
source.addEventListener("error", () => show("lost", "Connection lost, trying again"));
source.addEventListener("content", (event) => replace(JSON.parse(event.data)));
source.addEventListener("end", () => {
  source.close();
  show("ended", "The job has ended");
});
