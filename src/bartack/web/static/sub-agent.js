// What a sub-agent does, inside the card of the call that runs it: its own session, live while it is open.

import { get, sessionPath } from "./api.js";
import { extended, items, runState } from "./conversation.js";
import { h, textBlocks } from "./dom.js";
import { follow } from "./live.js";

class SubAgent extends HTMLElement {
  #session = "";
  #branch = [];
  #cards = new Map();
  #close = null;
  #list = h("div", { class: "inner" });
  #details = h("details", {}, h("summary", {}, "Sub-agent"), this.#list);

  connectedCallback() {
    if (!this.firstChild) {
      this.append(this.#details);
      this.#details.addEventListener("toggle", () => (this.#details.open ? this.#load() : this.#stop()));
    }
  }

  disconnectedCallback() {
    queueMicrotask(() => this.isConnected || this.#stop()); // a card that is drawn again only moves it
  }

  show(session) {
    this.#session = session;
  }

  #stop() {
    this.#close?.();
    this.#close = null;
  }

  async #load() {
    this.#stop();
    try {
      const page = await get(sessionPath(this.#session, "/entries"), { before: 2 ** 52, limit: 200, html: 1 });
      this.#branch = page.items;
    } catch (error) {
      return this.#list.replaceChildren(h("p", { class: "hint" }, error.status === 404 ? "Its session is not available here." : error.message));
    }
    this.#draw();
    if (runState(this.#branch) === "idle") return; // it has ended
    this.#close = follow(this.#session, String(this.#branch.at(-1)?.seq ?? 0), {
      entry: (entry) => {
        this.#branch = extended(this.#branch, entry) ?? this.#branch;
        this.#draw();
      },
      answer: () => {},
      connected: () => {},
      gone: () => this.#stop(),
    });
  }

  #draw() {
    this.#list.replaceChildren(...items(this.#branch).map((item) => this.#element(item)));
  }

  #element(item) {
    if (item.type === "tool") {
      const card = this.#cards.get(item.id) ?? h("tool-card", {});
      this.#cards.set(item.id, card);
      card.show(item.state === "ask" ? { ...item, state: "pending" } : item, this.#session); // the outer card asks
      return card;
    }
    if (item.type === "thought") return h("details", { class: "thought" }, h("summary", {}, "Thinking"), h("div", { class: "say" }, textBlocks(item.blocks, item.text)));
    if (item.type === "notice") return h("div", { class: item.isBad ? "notice bad" : "notice" }, item.text);
    return h("div", { class: item.type === "you" ? "task" : "say" }, textBlocks(item.blocks, item.text));
  }
}
customElements.define("sub-agent", SubAgent);
