// The status of the workers on one line that expands; empty if the store has no workers.

import { get } from "./api.js";
import { h, shortId } from "./dom.js";

const EVERY_MS = 4000;

class WorkerStatus extends HTMLElement {
  #timer = null;
  #isOpen = false;

  connectedCallback() {
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
    if (!status.isUsed) return this.replaceChildren();
    const line = [status.workers.length === 1 ? "1 worker" : `${status.workers.length} workers`, `${status.running.length} live`, `${status.waiting - status.scheduled} waiting`];
    if (status.scheduled) line.push(`${status.scheduled} scheduled`);
    if (status.stuck.length) line.push(`${status.stuck.length} stuck`);
    const age = (time) => `${Math.max(0, Math.round((new Date(status.at) - new Date(time)) / 1000))} s`;
    const run = (job, state) => h("li", {}, h("a", { href: `#session=${encodeURIComponent(job.sessionId)}` }, shortId(job.sessionId)), ` ${state}`);
    const details = h("details", { open: this.#isOpen, ontoggle: (event) => { this.#isOpen = event.target.open; } },
      h("summary", {}, line.join(", ")),
      h("ul", {},
        status.workers.map((one) => h("li", {}, `${one.host} ${one.pid}: ${one.agents.join(", ")}, for ${age(one.startedAt)}`)),
        status.running.map((one) => run(one.job, `live for ${age(one.since)}`)),
        status.stuck.map((one) => run(one, "stuck")),
        h("li", {}, `${status.perMinute} runs per minute`)));
    this.replaceChildren(details);
  }
}
customElements.define("worker-status", WorkerStatus);
