// The live events of one session. A lost connection comes back by itself, after the last event that arrived.

import { address, get, sessionPath } from "./api.js";

const WAITS_MS = [300, 1000, 2000, 4000];

/** Follow a session until `close` is called. `on` has entry(entry), answer(change), connected(bool), gone(error). */
export function follow(id, position, on) {
  let source = null;
  let timer = null;
  let failures = 0;
  let closed = false;

  function connect() {
    source = new EventSource(address(sessionPath(id, "/events"), { position, html: 1 }));
    source.addEventListener("open", () => {
      failures = 0;
      on.connected(true);
    });
    source.addEventListener("entry", (event) => receive(event, on.entry));
    source.addEventListener("answer", (event) => receive(event, on.answer));
    source.addEventListener("failed", (event) => {
      close();
      on.gone(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      on.connected(false);
      source.close(); // by itself it would give up after some errors
      timer = setTimeout(again, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)]);
    });
  }

  function receive(event, handle) {
    position = event.lastEventId;
    handle(JSON.parse(event.data));
  }

  async function again() {
    try {
      await get(sessionPath(id)); // an EventSource does not say why it failed
    } catch (error) {
      if (closed) return;
      if (error.status === 401 || error.status === 404) return on.gone(error);
      timer = setTimeout(again, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)]);
      return;
    }
    if (!closed) connect();
  }

  function close() {
    closed = true;
    clearTimeout(timer);
    source?.close();
  }

  connect();
  return close;
}
