// The status of the workers on one line that expands; empty if the store has no workers.

import { get } from "./api.js";
import { each, h, shortId, write } from "./dom.js";

const EVERY_MS = 4000;

class WorkerStatus extends HTMLElement {
  #timer = null;
  #line = h("summary", {});
  #list = h("ul", {});
  #details = h("details", { hidden: true }, this.#line, this.#list);

  connectedCallback() {
    this.replaceChildren(this.#details);
    this.refresh();
    this.#timer = setInterval(() => document.hidden || this.refresh(), EVERY_MS);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  async refresh() {
    try {
      this.#draw(await get("workers"));
    } catch {
      // the conversation reports a lost connection
    }
  }

  #draw(status) {
    this.#details.hidden = !status.isUsed;
    if (!status.isUsed) return;
    const line = [status.workers.length === 1 ? "1 worker" : `${status.workers.length} workers`, `${status.running.length} live`, `${status.waiting - status.scheduled} waiting`];
    if (status.scheduled) line.push(`${status.scheduled} scheduled`);
    if (status.stuck.length) line.push(`${status.stuck.length} stuck`);
    write(this.#line, line.join(", "));
    const age = (time) => `${Math.max(0, Math.round((new Date(status.at) - new Date(time)) / 1000))} s`;
    const rows = [
      ...status.workers.map((one) => ({ key: one.id, text: `${one.host} ${one.pid}: ${one.agents.join(", ")}, for ${age(one.startedAt)}` })),
      ...status.running.map((one) => ({ key: one.job.id, session: one.job.sessionId, text: ` live for ${age(one.since)}` })),
      ...status.stuck.map((one) => ({ key: `stuck ${one.id}`, session: one.sessionId, text: " stuck" })),
      { key: "", text: `${status.perMinute} runs per minute` },
    ];
    each(this.#list, rows, (row) => row.key, newRow, (item, row) => write(item.lastChild, row.text));
  }
}
customElements.define("worker-status", WorkerStatus);

function newRow({ session }) {
  const link = session && h("a", { href: `#session=${encodeURIComponent(session)}` }, shortId(session));
  return h("li", {}, link, h("span", {}));
}
