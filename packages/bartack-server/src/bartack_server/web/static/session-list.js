// The list of sessions, live ones first, then by day, with a search field.

import { get } from "./api.js";
import { each, h, s, shortId, write } from "./dom.js";
import "./worker-status.js";

const EVERY_MS = 4000;
const MOST = 200; // sessions per request
const WORDS = { running: "running", waiting: "needs approval", interrupted: "interrupted", idle: "" };
const MARK = "M2 12 5 2 8 12 11 2 14 12 17 2 20 12 23 2";

class SessionList extends HTMLElement {
  #current = "";
  #query = "";
  #shown = ""; // the query that the list shows the results of
  #cursor = null;
  #sessions = [];
  #timer = null;
  #lists = h("div", {});
  #none = h("p", { class: "hint" });
  #more = h("button", { class: "quiet", hidden: true, onclick: () => this.refresh(this.#cursor) }, "More");

  connectedCallback() {
    const mark = s("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, s("path", { d: MARK }));
    const search = h("input", { type: "search", dir: "auto", placeholder: "Search sessions  /", "aria-label": "Search sessions",
      oninput: (event) => { this.#query = event.target.value.trim(); this.refresh(); } });
    this.setAttribute("role", "navigation");
    this.setAttribute("aria-label", "Sessions");
    this.replaceChildren(
      h("div", { class: "brand" }, mark, "Bartack", h("button", { onclick: () => { location.hash = ""; } }, "New")),
      search, this.#lists, this.#none, this.#more, h("worker-status", {}));
    this.refresh();
    this.#timer = setInterval(() => document.hidden || this.refresh(), EVERY_MS);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }

  select(id) {
    this.#current = id;
    this.#draw();
  }

  focusSearch() {
    this.querySelector("input").focus();
  }

  async refresh(cursor = null) {
    const query = this.#query;
    try {
      const page = await get("sessions", { limit: cursor ? 50 : Math.max(50, Math.min(MOST, this.#sessions.length)), cursor, query });
      if (query !== this.#query) return; // superseded by a newer search
      const isBeginning = !cursor && this.#sessions.length > MOST && query === this.#shown; // only the start of a long list is refreshed
      const known = new Set(page.items.map((session) => session.id));
      const others = this.#sessions.filter((session) => !known.has(session.id));
      this.#sessions = cursor ? [...others, ...page.items] : isBeginning ? [...page.items, ...others] : page.items;
      if (!isBeginning) this.#cursor = page.cursor;
      this.#shown = query;
      this.#draw();
    } catch {
      // the conversation reports a lost connection
    }
  }

  #draw() {
    const hasSeveralAgents = new Set(this.#sessions.map(agentOf)).size > 1;
    const groups = new Map([["Live", []]]);
    for (const session of this.#sessions) {
      const name = ["idle", "interrupted"].includes(session.state) ? day(new Date(session.updated)) : "Live";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(session);
    }
    const shown = [...groups].filter(([, all]) => all.length);
    each(this.#lists, shown, ([name]) => name, ([name]) => h("section", {}, h("h2", {}, name), h("ul", {})), (section, [, all]) => {
      each(section.lastChild, all, (session) => session.id, newLink, (item, session) => this.#fill(item.firstChild, session, hasSeveralAgents));
    });
    this.#none.hidden = this.#sessions.length > 0;
    write(this.#none, this.#query ? "Nothing found." : "No sessions yet.");
    this.#more.hidden = !this.#cursor;
  }

  #fill(link, session, hasSeveralAgents) {
    const [title, small] = link.children;
    const [dot, text] = small.children;
    const state = WORDS[session.state];
    const viewers = session.viewers > 1 ? `${session.viewers} viewers` : "";
    const cost = session.state === "idle" && session.spend?.costUsd ? `$${session.spend.costUsd.toFixed(2)}` : "";
    const details = [state, viewers, hasSeveralAgents && agentOf(session), cost, session.directory];
    if (session.id === this.#current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    write(title, session.title || `Untitled ${shortId(session.id)}`);
    dot.className = `dot ${session.state}`;
    dot.hidden = !state;
    write(text, details.filter(Boolean).join(" · "));
  }
}
customElements.define("session-list", SessionList);

function newLink({ id }) {
  return h("li", {}, h("a", { href: `#session=${encodeURIComponent(id)}` },
    h("span", {}), h("small", {}, h("span", { "aria-hidden": "true" }), h("span", {}))));
}

function agentOf(session) {
  return session.origin ?? session.agent ?? "bartack";
}

function day(date) {
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return "Today";
  const before = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (date.toDateString() === before.toDateString()) return "Yesterday";
  return date.toLocaleDateString(undefined, { day: "numeric", month: "short", year: date.getFullYear() === today.getFullYear() ? undefined : "numeric" });
}
