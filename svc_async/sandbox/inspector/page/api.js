// The calls of the control API, and the feed of what changes.

const CONTROL = "/_sandbox/";
const RETRY = 1500;

async function read(response) {
  const content = await response.json().catch(() => ({}));
  // The detail begins with the code of the refusal.
  if (!response.ok) throw new Error(content.detail?.replace(/^[A-Z_]+: /, "") ?? `The sandbox answered ${response.status}`);
  return content;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(CONTROL + path, options);
  } catch {
    throw new Error("The sandbox does not answer");
  }
  return read(response);
}

export function get(path) {
  return send(path, { cache: "no-store" });
}

export function post(path, body = {}) {
  return send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

// Follows the feed: `handlers` has a function for each name of a message; `report` is called with "live" and "lost".
export function follow(handlers, report) {
  const source = new EventSource(`${CONTROL}inspector/feed`);
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (message) => handle(JSON.parse(message.data)));
  }
  source.addEventListener("open", () => report("live"));
  source.addEventListener("error", () => {
    report("lost");
    source.close();
    setTimeout(() => follow(handlers, report), RETRY);
  });
}
