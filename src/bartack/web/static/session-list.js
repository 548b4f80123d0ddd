// The list of sessions, live ones first, then by day, with a search field.

import { get } from "./api.js";
import { h, shortId } from "./dom.js";
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

  connectedCallback() {
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    mark.setAttribute("viewBox", "0 0 26 14");
    mark.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", MARK);
    mark.append(path);
    const search = h("input", { type: "search", placeholder: "Search sessions  /", "aria-label": "Search sessions",
      oninput: (event) => { this.#query = event.target.value.trim(); this.refresh(); } });
    this.setAttribute("role", "navigation");
    this.setAttribute("aria-label", "Sessions");
    this.replaceChildren(
      h("div", { class: "brand" }, mark, "Bartack", h("button", { onclick: () => { location.hash = ""; } }, "New")),
      search, this.#lists, h("worker-status", {}));
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
    const focused = document.activeElement?.closest("session-list a")?.getAttribute("href");
    this.#lists.replaceChildren(
      ...[...groups].filter(([, all]) => all.length).flatMap(([name, all]) => [
        h("h2", {}, name),
        h("ul", {}, all.map((session) => h("li", {}, this.#link(session, hasSeveralAgents)))),
      ]),
      this.#sessions.length ? "" : h("p", { class: "hint" }, this.#query ? "Nothing found." : "No sessions yet."),
      this.#cursor ? h("button", { class: "quiet", onclick: () => this.refresh(this.#cursor) }, "More") : "");
    if (focused) this.#lists.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  #link(session, hasSeveralAgents) {
    const isCurrent = session.id === this.#current;
    const state = WORDS[session.state];
    const viewers = session.viewers > 1 ? `${session.viewers} viewers` : "";
    const cost = session.state === "idle" && session.spend?.costUsd ? `$${session.spend.costUsd.toFixed(2)}` : "";
    const details = [state, viewers, hasSeveralAgents && agentOf(session), cost, session.directory];
    return h("a", { href: `#session=${encodeURIComponent(session.id)}`, "aria-current": isCurrent ? "page" : null },
      session.title || `Untitled ${shortId(session.id)}`,
      h("small", {}, state ? h("span", { class: `dot ${session.state}`, "aria-hidden": "true" }) : "", details.filter(Boolean).join(" · ")));
  }
}
customElements.define("session-list", SessionList);

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
