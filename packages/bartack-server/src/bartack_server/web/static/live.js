// The live events of one session. After a lost connection, the stream resumes after the last entry received, and the
// server sends the answer in progress again from its start.

import { address, get, parse, sessionPath } from "./api.js";

const WAITS_MS = [300, 1000, 2000, 4000];
const SILENT_MS = 40_000; // the server sends something at least every 15 s
const REST_MS = 5000; // browsers share six connections per server among all tabs, so a hidden tab closes its stream

/** Follow a session from the entry after this seq. Returns a function that stops following.
 *
 * `on` has entry(entry), answer(changes), connected(bool, now) with a function that tries again at once, gone(error),
 * and replaced() if the session now has fewer entries than were received: the server uses another store, or an older
 * copy. */
export function follow(id, seq, on) {
  let source = null;
  let timer = null; // set while a reconnect is scheduled or in progress
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
    source.addEventListener("message", (event) => {
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
    on.connected(false, now);
    leave(); // EventSource itself stops reconnecting after some errors
    wait();
  }

  /** Detect a network that is gone: the connection is silent, but not closed. */
  function listen() {
    if (source && Date.now() - heardAt > SILENT_MS) lost();
  }

  function wait() {
    timer = setTimeout(again, WAITS_MS[Math.min(failures++, WAITS_MS.length - 1)]);
  }

  /** Try at once. */
  function now() {
    if (timer === null) return;
    clearTimeout(timer);
    failures = 0;
    timer = setTimeout(again);
  }

  async function again() {
    const own = timer;
    const found = await get(sessionPath(id)).catch((error) => ({ error })); // EventSource does not report why it failed
    if (own !== timer) return; // cancelled by leave()
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
