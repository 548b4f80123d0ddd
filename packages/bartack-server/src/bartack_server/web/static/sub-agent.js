// The session of a sub-agent, inside the card of the call that runs it. It is polled while expanded, because browsers
// allow few connections for live events.

import { get, sessionPath } from "./api.js";
import { extended, hides, items, runState } from "./conversation.js";
import { each, h } from "./dom.js";
import { textBlocks } from "./growing-text.js";

const EVERY_MS = 1500;

class SubAgent extends HTMLElement {
  #session = "";
  #branch = [];
  #turn = 0; // counts loads: a response to an earlier one is discarded
  #list = h("div", { class: "inner" });
  #details = h("details", {}, h("summary", {}, "Sub-agent"), this.#list);

  connectedCallback() {
    if (!this.firstChild) {
      this.append(this.#details);
      this.#details.addEventListener("toggle", () => (this.#details.open ? this.#load() : this.#stop()));
    }
  }

  disconnectedCallback() {
    queueMicrotask(() => this.isConnected || this.#stop()); // redrawing its card only moves the element
  }

  show(session) {
    this.#session = session;
  }

  #stop() {
    this.#turn++;
  }

  async #load() {
    const turn = ++this.#turn;
    this.#branch = [];
    each(this.#list, []); // entries may have been redacted since
    do {
      const place = this.#branch.length ? { cursor: this.#branch.at(-1).seq } : { before: 2 ** 52 };
      const page = await get(sessionPath(this.#session, "/entries"), { ...place, limit: 200, html: 1 }).catch((error) => ({ error }));
      if (turn !== this.#turn) return;
      if (page.error?.status === 404) {
        return this.#list.replaceChildren(h("p", { class: "hint" }, "Its session is not available here."));
      }
      for (const entry of page.items ?? []) {
        if (place.cursor && hides(this.#branch, entry)) return this.#load();
        this.#branch = extended(this.#branch, entry) ?? this.#branch;
      }
      this.#draw();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    } while (turn === this.#turn && runState(this.#branch) !== "idle");
  }

  #draw() {
    each(this.#list, items(this.#branch), (item) => item.key, element, (card, item) => {
      if (item.type === "tool") card.show(item.state === "ask" ? { ...item, state: "pending" } : item, this.#session); // the outer card asks
    });
  }
}
customElements.define("sub-agent", SubAgent);

function element(item) {
  if (item.type === "tool") return h("tool-card", {});
  if (item.type === "thought") return h("details", { class: "thought" }, h("summary", {}, "Thinking"), h("div", { class: "say" }, textBlocks(item.blocks, item.text)));
  if (item.type === "notice" || item.type === "retry") return h("div", { class: item.isBad ? "hint bad" : "hint" }, item.title ?? item.reason ?? item.text);
  return h("div", { class: item.type === "you" ? "task" : "say" }, textBlocks(item.blocks, item.text));
}
