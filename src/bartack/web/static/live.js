// The live events of one session. A lost connection comes back by itself, after the last entry that arrived; the server
// then sends the answer in progress again.

import { address, get, parse, sessionPath } from "./api.js";

const WAITS_MS = [300, 1000, 2000, 4000];
const SILENT_MS = 40_000; // the server sends something at least every 15 s
const REST_MS = 5000; // browsers have six connections to a server for all of their tabs, so a hidden one gives its own up

/** Follow a session after the entry with this seq, until the function that it returns is called.
 *
 * `on` has entry(entry), answer(change), connected(bool), gone(error), and replaced() for a session that is not the one
 * that was followed: the server has another store now, or an older copy. */
export function follow(id, seq, on) {
  let source = null;
  let timer = null; // while it waits for the next attempt, or makes it
  let resting = null;
  let failures = 0;
  let heardAt = 0;

  function connect() {
    timer = null;
    heard();
    source = new EventSource(address(sessionPath(id, "/events"), { position: seq, html: 1 }));
    source.addEventListener("open", () => on.connected(true));
    source.addEventListener("beat", heard);
    source.addEventListener("entry", (event) => {
      failures = 0;
      heard();
      const entry = parse(event.data);
      seq = entry.seq;
      on.entry(entry);
    });
    source.addEventListener("answer", (event) => {
      failures = 0;
      heard();
      on.answer(parse(event.data));
    });
    source.addEventListener("error", lost);
  }

  function heard() {
    heardAt = Date.now();
  }

  function lost() {
    on.connected(false);
    leave(); // by itself it would give up after some errors
    wait();
  }

  /** A network that is gone closes nothing: the connection is only silent. */
  function listen() {
    if (source && Date.now() - heardAt > SILENT_MS) lost();
  }

  function wait() {
    timer = setTimeout(again, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)]);
  }

  async function again() {
    const own = timer;
    const found = await get(sessionPath(id)).catch((error) => ({ error })); // an EventSource does not say why it failed
    if (own !== timer) return; // it was left
    if (found.error?.status === 401 || found.error?.status === 404) on.gone(found.error);
    else if (found.error) wait();
    else if (found.tail.seq < seq) on.replaced();
    else connect();
  }

  function leave() {
    clearTimeout(timer);
    timer = null;
    source?.close();
    source = null;
  }

  function seen() {
    clearTimeout(resting);
    if (document.hidden) resting = setTimeout(leave, REST_MS);
    else if (!source && timer === null) connect();
  }

  document.addEventListener("visibilitychange", seen);
  const listening = setInterval(listen, SILENT_MS / 8);
  connect();
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    clearTimeout(resting);
    clearInterval(listening);
    leave();
  };
}
