// The list of sessions: live ones first, pinned ones, then by day; or the results of a search, grouped by session.

import { get } from "./api.js";
import { each, h, money, place, shortId, write } from "./dom.js";
import { icon, mark } from "./icons.js";
import { popButton } from "./popover.js";
import { marked, mayNotify, notify, setMark, settingsPanel } from "./settings.js";
import { usagePanel } from "./usage.js";
import "./worker-status.js";

const EVERY_MS = 4000;
const MOST = 200; // sessions per request
const FOUND = 30; // sessions that a search shows
const WEEK_MS = 7 * 24 * 3600 * 1000;
const WORDS = { running: "running", waiting: "needs approval", interrupted: "interrupted", idle: "" };

class SessionList extends HTMLElement {
  #current = "";
  #query = "";
  #shown = ""; // the query that the list shows the results of
  #filter = ""; // the agent or the directory that is shown alone
  #cursor = null;
  #sessions = [];
  #found = new Map(); // session id -> {title, matches, hits}, the best matches first
  #isRecent = false; // searches the last week only
  #hasFailed = false; // searches failures only
  #tool = ""; // searches calls of this tool only
  #model = ""; // searches sessions that used this model only
  #hidden = new Set(); // sessions that are about to be deleted
  #states = null; // session id -> its state at the last look; null before the first one
  #timer = null;
  #chips = h("div", { class: "chips", role: "group", "aria-label": "Filter" });
  #lists = h("div", {});
  #known = { tool: h("datalist", { id: "known-tools" }), model: h("datalist", { id: "known-models" }) };
  #limits = h("div", { class: "limits", role: "group", "aria-label": "Restrict the search", hidden: true },
    this.#limit("Tool", "known-tools", (text) => { this.#tool = text; }), this.#limit("Model", "known-models", (text) => { this.#model = text; }),
    this.#known.tool, this.#known.model);
  #none = h("div", { class: "none" });
  #more = h("button", { class: "b q", hidden: true, onclick: () => this.refresh(this.#cursor) }, "More");

  connectedCallback() {
    const search = h("input", { type: "search", class: "field", dir: "auto", placeholder: "Search", "aria-label": "Search sessions",
      oninput: (event) => { this.#query = event.target.value.trim(); this.refresh(); } });
    this.setAttribute("role", "navigation");
    this.setAttribute("aria-label", "Sessions");
    this.replaceChildren(
      h("header", {},
        h("div", { class: "brand" }, mark("mark"), "Bartack", h("button", { type: "button", class: "b q ic", "aria-label": "New session", title: "New session (N)", onclick: () => { location.hash = ""; } }, icon("plus"))),
        h("div", { class: "find" }, icon("search"), search, h("kbd", { "aria-hidden": "true" }, "/")), this.#chips, this.#limits),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Session list" }, this.#lists, this.#none, this.#more),
      h("footer", {}, h("worker-status", {}), popButton({ class: "b q ic", "aria-label": "Usage", title: "Usage" }, [icon("usage")], () => usagePanel(), "above"), popButton({ class: "b q ic", "aria-label": "Settings", title: "Settings" }, [icon("settings")], () => settingsPanel(), "above")));
    this.refresh();
    document.addEventListener("visibilitychange", this.#seen);
    this.#timer = setInterval(() => (document.hidden && !mayNotify()) || this.refresh(), EVERY_MS);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    document.removeEventListener("visibilitychange", this.#seen);
  }

  #seen = () => document.hidden || setMark("unread", this.#current, false);

  /** A field for a name that a search is restricted to. */
  #limit(name, list, set) {
    return h("input", { class: "field", list, placeholder: `Any ${name.toLowerCase()}`, "aria-label": name, spellcheck: "false",
      onfocus: () => this.#offerNames(), onchange: (event) => { set(event.target.value.trim()); this.refresh(); } });
  }

  /** Offer the tools of the agents here, and the models of the sessions that are listed; others can be written. */
  async #offerNames() {
    const offer = (list, names) => place(list, [...new Set(names)].filter(Boolean).sort().map((value) => h("option", { value })));
    offer(this.#known.model, this.#sessions.map(({ model }) => model?.replace(/^[^:]*:/, "")));
    const { items } = await get("tools").catch(() => ({ items: [] }));
    offer(this.#known.tool, items.map((tool) => tool.name));
  }

  select(id) {
    this.#current = id;
    setMark("unread", id, false);
    this.#draw();
  }

  focusSearch() {
    this.querySelector("input").focus();
  }

  /** Leave a session out, or show it again. */
  hide(id, is) {
    if (is) this.#hidden.add(id);
    else this.#hidden.delete(id);
    this.refresh();
    this.#draw();
  }

  async refresh(cursor = null) {
    const query = this.#query;
    try {
      const [page, found] = await Promise.all([
        get("sessions", { limit: cursor ? 50 : Math.max(50, Math.min(MOST, this.#sessions.length)), cursor, query }),
        query && !cursor ? get("search/sessions", { query, limit: FOUND, since: this.#isRecent ? new Date(Date.now() - WEEK_MS).toISOString() : null, errors: this.#hasFailed || null, tool: this.#tool, model: this.#model }) : { items: [] },
      ]);
      if (query !== this.#query) return; // superseded by a newer search
      const isBeginning = !cursor && this.#sessions.length > MOST && query === this.#shown; // only the start of a long list is refreshed
      const known = new Set(page.items.map((session) => session.id));
      const others = this.#sessions.filter((session) => !known.has(session.id));
      this.#sessions = cursor ? [...others, ...page.items] : isBeginning ? [...page.items, ...others] : page.items;
      if (!isBeginning) this.#cursor = page.cursor;
      if (!cursor) this.#found = new Map(found.items.map((session) => [session.sessionId, session]));
      this.#shown = query;
      this.#compareStates(page.items);
      this.#draw();
    } catch {
      // the conversation reports a lost connection
    }
  }

  /** Tell the user what has changed in sessions that they do not look at. */
  #compareStates(sessions) {
    const before = this.#states;
    this.#states = new Map([...(before ?? []), ...sessions.map((session) => [session.id, session.state])]);
    for (const { id, state, title } of before ? sessions : []) {
      const was = before.get(id);
      if (was === state) continue;
      if (state === "waiting") notify("An approval waits", title || "Untitled", id);
      if (state !== "idle" || !["running", "waiting"].includes(was)) continue;
      notify("A run has ended", title || "Untitled", id);
      if (document.hidden || id !== this.#current) setMark("unread", id, true);
    }
  }

  #draw() {
    const sessions = (this.#shown ? this.#matching() : this.#sessions).filter((session) => !this.#hidden.has(session.id));
    this.#drawFilters(sessions);
    const chosen = sessions.filter((session) => !this.#filter || agentOf(session) === this.#filter || session.directory === this.#filter);
    const hasSeveralAgents = new Set(sessions.map(agentOf)).size > 1;
    const [pins, unread] = [marked("pinned"), marked("unread")];
    const groups = new Map(this.#shown ? [[`Found in ${chosen.length} ${chosen.length === 1 ? "session" : "sessions"}`, chosen]] : [["Live", []], ["Pinned", []]]);
    for (const session of this.#shown ? [] : chosen) {
      const isLive = !["idle", "interrupted"].includes(session.state);
      const name = isLive ? "Live" : pins.has(session.id) ? "Pinned" : day(new Date(session.updated));
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(session);
    }
    const shown = [...groups].filter(([, all]) => all.length);
    each(this.#lists, shown, ([name]) => name, ([name]) => h("section", {}, h("h2", {}, h("span", {}, name), h("span", { class: "num" })), h("ul", {})), (section, [name, all]) => {
      write(section.firstChild.lastChild, name === "Live" ? String(all.length) : "");
      each(section.lastChild, all, (session) => session.id, newRow, (item, session) => {
        this.#fill(item.firstChild, session, hasSeveralAgents, pins, unread.has(session.id));
        this.#fillHits(item, session);
      });
    });
    this.#none.hidden = chosen.length > 0;
    if (!chosen.length) {
      place(this.#none, this.#query ? [h("p", {}, h("b", {}, "Nothing found."), " Try fewer or other words.")] : [h("p", {}, h("b", {}, "No sessions yet."), " Write a message to start one.")]);
    }
    this.#more.hidden = !this.#cursor;
  }

  /** The sessions that a search has found, the best first; those of which only the title matches come last. */
  #matching() {
    const listed = new Map(this.#sessions.map((session) => [session.id, session]));
    const best = [...this.#found.values()].map(({ sessionId, title }) => listed.get(sessionId) ?? { id: sessionId, title, state: "idle" });
    return this.#isRecent || this.#hasFailed || this.#tool || this.#model ? best : [...best, ...this.#sessions.filter(({ id }) => !this.#found.has(id))];
  }

  /** One chip for each agent and project, if there are several; and what a search can be restricted to. */
  #drawFilters(sessions) {
    const names = [new Set(sessions.map(agentOf)), new Set(sessions.map((session) => session.directory).filter(Boolean))].flatMap((set) => (set.size > 1 ? [...set] : []));
    if (this.#filter && !names.includes(this.#filter)) this.#filter = "";
    const sources = (names.length ? ["", ...names.slice(0, 6)] : []).map((name) => ({ name, text: name ? name.split("/").at(-1) : "All", isOn: this.#filter === name,
      act: () => { this.#filter = name; this.#draw(); } }));
    const limits = this.#query ? [
      { name: "Last 7 days", isOn: this.#isRecent, act: () => { this.#isRecent = !this.#isRecent; this.refresh(); } },
      { name: "Failures", isOn: this.#hasFailed, act: () => { this.#hasFailed = !this.#hasFailed; this.refresh(); } },
    ] : [];
    this.#limits.hidden = !this.#query;
    each(this.#chips, [...sources, ...limits], ({ name }) => name,
      ({ name, text, act }) => h("button", { type: "button", class: "chip", title: name, onclick: act }, h("span", {}, text ?? name)),
      (chip, { isOn }) => chip.setAttribute("aria-pressed", String(isOn)));
  }

  #fill(link, session, hasSeveralAgents, pins, isUnread) {
    const [tile, title, sign, meta] = link.children;
    const [text, cost] = meta.children;
    const state = WORDS[session.state];
    const isLive = session.state === "running" || session.state === "waiting";
    const viewers = session.viewers > 1 ? `${session.viewers} viewers` : "";
    const project = session.directory?.split("/").at(-1);
    if (session.id === this.#current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.classList.toggle("unread", isUnread);
    tile.className = isLive ? "tile live" : "tile";
    write(tile, agentOf(session).slice(0, 1).toUpperCase());
    tile.title = agentOf(session);
    write(title, session.title || `Untitled ${shortId(session.id)}`);
    if (session.state === "waiting") place(sign, sign.querySelector(".pill") ? [...sign.childNodes] : [h("span", { class: "pill ask", title: "Needs approval" }, "?")]);
    else if (isUnread) place(sign, sign.querySelector(".dot") ? [...sign.childNodes] : [h("span", { class: "dot", role: "img", "aria-label": "Not read yet", title: "Not read yet" })]);
    else place(sign, pins.has(session.id) ? (sign.querySelector(".i") ? [...sign.childNodes] : [icon("pin", "s")]) : []);
    write(text, [state, viewers, (hasSeveralAgents || session.gatewayKey) && agentOf(session), session.model, project].filter(Boolean).join(" · ") || agentOf(session));
    write(cost, money(session.spend?.costUsd));
  }

  #fillHits(item, session) {
    const { hits, matches } = (this.#shown && this.#found.get(session.id)) || { hits: [], matches: 0 };
    const words = this.#shown.split(/\s+/).filter(Boolean);
    const more = matches - hits.length;
    place(item, [item.firstChild, ...hits.map((hit) => h("a", { class: "hit", href: hitAddress(hit) }, ...highlighted(hit.snippet, words))),
      ...(more > 0 ? [h("span", { class: "hit" }, `${more} more in this session`)] : [])]);
  }
}
customElements.define("session-list", SessionList);

/** Where the page shows the message that a search has found. */
function hitAddress({ sessionId, entryId, seq }) {
  return `#${new URLSearchParams({ session: sessionId, entry: entryId, seq })}`;
}

function newRow({ id }) {
  return h("li", {}, h("a", { class: "row", href: `#session=${encodeURIComponent(id)}` },
    h("span", { class: "tile", "aria-hidden": "true" }), h("span", { class: "name" }), h("span", { class: "sign" }), h("span", { class: "meta" }, h("span", {}), h("span", { class: "num" }))));
}

/** A passage with the words of the query marked. */
function highlighted(text, words) {
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(${pattern})`, "gi")).map((piece, at) => (at % 2 ? h("mark", {}, piece) : piece));
}

function agentOf(session) {
  return session.gatewayKey ?? session.origin ?? session.agent ?? "bartack";
}

function day(date) {
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return "Today";
  const before = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (date.toDateString() === before.toDateString()) return "Yesterday";
  return date.toLocaleDateString(undefined, { day: "numeric", month: "short", year: date.getFullYear() === today.getFullYear() ? undefined : "numeric" });
}
