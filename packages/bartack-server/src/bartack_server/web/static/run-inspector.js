// The inspector: a timeline of the run, the stored entries, the views, the request of a model call, the state tables.

import { get, now, sessionPath } from "./api.js";
import { Comparison } from "./compare.js";
import { count, duration, each, h, money, place, s, write } from "./dom.js";
import { icon } from "./icons.js";
import { stateDiagram } from "./state-diagram.js";
import { bars, runs } from "./timeline.js";

const TABS = ["Timeline", "Compare", "Entries", "Views", "Request", "State"];
const BRANCHES = 6; // whose runs can be compared
const IS_BROAD = window.matchMedia("(min-width: 1900px)"); // the timeline and a request stand side by side

class RunInspector extends HTMLElement {
  view = null;
  #tab = "Timeline";
  #pane = h("div", { class: "pane", role: "tabpanel", tabindex: "0" });
  #turn = 0;
  #drawn = "";

  connectedCallback() {
    this.setAttribute("role", "complementary");
    this.setAttribute("aria-label", "Inspector");
    const tabs = TABS.map((name) => h("button", { role: "tab", "data-tab": name, onclick: () => this.#select(name) }, name));
    const list = h("div", { class: "tabs" }, h("div", { role: "tablist", "aria-label": "Inspector", onkeydown: (event) => this.#arrow(event) }, tabs),
      h("button", { class: "b q ic widen", "aria-label": "Widen the inspector", title: "Widen", "aria-pressed": "false", onclick: (event) => this.#widen(event.currentTarget) }, icon("expand")),
      h("button", { class: "b q ic", "aria-label": "Close the inspector", title: "Close", onclick: () => this.dispatchEvent(new CustomEvent("toggle-inspector", { bubbles: true })) }, icon("cross")));
    this.replaceChildren(list, this.#pane);
    this.#select(this.#tab);
    IS_BROAD.addEventListener("change", this.#redraw);
  }

  disconnectedCallback() {
    IS_BROAD.removeEventListener("change", this.#redraw);
  }

  #redraw = () => this.#draw();

  changed() {
    const branch = this.view.branch;
    const now = `${this.view.session} ${branch.at(-1)?.id} ${branch.length}`;
    if (now !== this.#drawn) this.#draw();
  }

  /** Show the request that led to this entry. */
  showRequest(entryId) {
    this.#call = entryId;
    if (IS_BROAD.matches && this.#tab === "Timeline") this.#draw();
    else this.#select("Request");
  }

  /** Show two branches side by side. */
  compare() {
    this.#select("Compare");
  }

  #widen(button) {
    const isWide = this.parentElement.classList.toggle("wide");
    button.setAttribute("aria-pressed", String(isWide));
  }

  #arrow(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    this.#select(TABS[(TABS.indexOf(this.#tab) + step + TABS.length) % TABS.length]);
    this.querySelector("[aria-selected=true]").focus();
  }

  #select(name) {
    this.#tab = name;
    for (const tab of this.querySelectorAll("[role=tab]")) {
      tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
      tab.tabIndex = tab.dataset.tab === name ? 0 : -1;
    }
    this.#pane.setAttribute("aria-label", name);
    this.#draw().then(() => { this.#pane.scrollTop = 0; });
  }

  async #draw() {
    const turn = ++this.#turn;
    const branch = this.view.branch;
    this.#drawn = `${this.view.session} ${branch.at(-1)?.id} ${branch.length}`;
    if (!branch.length) return place(this.#pane, [h("p", { class: "hint" }, "Nothing to inspect yet.")]);
    const load = { Timeline: IS_BROAD.matches ? this.#timelineAndRequest : this.#timeline, Compare: this.#compare, Entries: this.#entries, Views: this.#views, Request: this.#request, State: this.#states }[this.#tab];
    const show = await load.call(this, branch).catch((error) => () => [h("p", { class: "bad" }, error.message)]);
    if (turn !== this.#turn) return; // superseded by a newer call
    place(this.#pane, show());
    for (const lit of this.#pane.querySelectorAll(".diagram:not([data-seen]) .lit")) {
      lit.scrollIntoView({ block: "nearest", inline: "center" });
      lit.closest(".diagram").dataset.seen = "";
    }
  }

  async #timelineAndRequest(branch) {
    const [timeline, request] = await Promise.all([this.#timeline(branch), this.#request(branch)]);
    return () => {
      place(this.#left, timeline());
      place(this.#right, request());
      return [this.#halves];
    };
  }
  #left = h("section", { "aria-label": "Timeline" });
  #right = h("section", { "aria-label": "Request" });
  #halves = h("div", { class: "halves" }, this.#left, this.#right);

  // -- two runs side by side

  async #compare() {
    const shown = this.view.branch;
    const others = this.view.heads.filter((head) => head !== shown.at(-1).id).slice(0, BRANCHES - 1);
    const pages = await Promise.all(others.map((head) => get(sessionPath(this.view.session, "/entries"), { before: 2 ** 52, limit: 200, head, html: 1 })));
    return () => this.#comparison.draw([shown, ...pages.map((page) => page.items)]);
  }
  #comparison = new Comparison();

  // -- the timeline. Like the other tabs, it loads its data and returns a function that draws it. Entries are keyed
  // by identity, not by id: an entry that was redacted, or belongs to another session, is drawn again.

  async #timeline(branch) {
    const all = runs(branch);
    if (!all.length) return () => [h("p", { class: "hint" }, "No run yet.")];
    const chosen = all.find((one) => one[0].runId === this.#run) ?? all.at(-1);
    return () => this.#showRun(all, chosen);
  }

  #showRun(all, chosen) {
    each(this.#chooseRun, all, (one) => one[0], () => h("option", {}), (option, one) => {
      write(option, `Run ${all.indexOf(one) + 1}, ${new Date(one[0].timestamp).toLocaleTimeString()}`);
      option.value = one === all.at(-1) ? "" : one[0].runId;
      option.selected = one === chosen;
    });
    this.#showLanes(chosen);
    clearInterval(this.#ticking);
    this.#ticking = setInterval(() => {
      const isLive = this.#bars.isConnected && chosen.at(-1).kind !== "run_ended";
      isLive ? this.#showLanes(chosen) : clearInterval(this.#ticking);
    }, 1000);
    return [this.#runHead, this.#bars, this.#legend, this.#facts];
  }
  #run = ""; // empty: the latest run
  #chooseRun = h("select", { "aria-label": "Run", onchange: () => { this.#run = this.#chooseRun.value; this.#draw(); } });
  #runHead = h("div", { class: "head-row" }, h("h2", {}, "Timeline"), this.#chooseRun);
  #bars = h("div", { class: "lanes" });
  #facts = h("section", { class: "panel" });
  #legend = h("p", { class: "key" }, [["before", "until the first token"], ["model", "answer"], ["tool", "tool"], ["wait", "asks you"], ["failed", "failed"], ["cut", "cut off"]]
    .map(([kind, text]) => h("span", {}, s("svg", { class: "track", viewBox: "0 3 14 10", preserveAspectRatio: "none", "aria-hidden": "true" }, block(kind, 0, 14)), text)));
  #ticking = null;

  #showLanes(entries) {
    const shown = bars(entries, now());
    const total = Math.max(1, ...shown.map((bar) => bar.end));
    const usage = shown.map((bar) => bar.usage).filter(Boolean);
    const sum = (name) => usage.reduce((all, one) => all + (one[name] ?? 0), 0);
    const [input, cached, output, cost] = ["inputTokens", "cacheReadTokens", "outputTokens", "costUsd"].map(sum);
    const head = { key: "axis" };
    const foot = { key: "sum" };
    each(this.#bars, [head, ...shown.map((bar, at) => ({ key: `${at} ${bar.name}`, bar })), foot], (row) => row.key, ({ key, bar }) => {
      if (key === "axis") return h("div", { class: "axis" }, h("span", {}, h("span", { class: "unseen" }, "Step")), h("div", {}, h("span", {}, "0"), h("span", {})), h("em", {}, "time"), h("em", {}, "cached"), h("em", {}, "cost"));
      if (key === "sum") return h("div", { class: "sum" }, h("span", {}, "run"), h("span", {}), h("em", {}), h("em", {}), h("em", {}));
      return h(bar.entry ? "button" : "div", { class: `lane ${bar.kind}`, title: bar.entry ? "Open the request" : null, onclick: bar.entry ? () => this.showRequest(bar.entry.id) : null },
        h("span", { class: "name" }, h("span", {}), h("span", { title: bar.name }, bar.name)), h("span", {}), h("em", {}), h("em", {}), h("em", {}));
    }, (row, { key, bar }) => {
      if (key === "axis") return write(row.children[1].lastChild, duration(total));
      const [, middle, time, share, price] = row.children;
      if (key === "sum") {
        write(time, duration(total));
        write(share, input ? percent(cached, input) : "");
        return write(price, money(cost));
      }
      row.className = `lane ${bar.kind}${bar.isOpen ? " live" : ""}`;
      if (bar.entry) row.setAttribute("aria-pressed", String(IS_BROAD.matches && bar.entry.id === this.#call));
      place(row.firstChild.firstChild, [laneIcon(bar)]);
      middle.replaceChildren(track(bar, total));
      write(time, duration(bar.end - bar.start));
      write(share, bar.usage?.inputTokens ? percent(bar.usage.cacheReadTokens ?? 0, bar.usage.inputTokens) : "");
      write(price, money(bar.usage?.costUsd));
    });
    const waits = shown.filter((bar) => bar.first !== undefined).map((bar) => `${bar.name} ${duration(bar.first - bar.start)}`);
    const retries = shown.filter((bar) => bar.why).map((bar) => `${bar.name}: ${bar.why}`);
    const facts = [["First token", waits.join(", ")], ["Retry", retries.join("; ")], ["Input", input ? `${count(input)} tokens, ${count(cached)} of them from the cache` : "not reported"],
      ["Output", output ? `${count(output)} tokens` : ""], ["Cost", money(cost)], ["Stored", `${entries.length} entries`]];
    place(this.#facts, [this.#factList]);
    each(this.#factList, facts.filter(([, text]) => text).flatMap(([name, text]) => [{ key: `${name}?`, tag: "dt", text: name }, { key: name, tag: "dd", text }]), (row) => row.key, (row) => h(row.tag, {}), (element, row) => write(element, row.text));
  }
  #factList = h("dl", { class: "facts" });

  // -- entries as stored

  async #entries(branch) {
    const compaction = branch.findLast((entry) => entry.kind === "compaction_summary");
    const kept = compaction ? branch.findIndex((entry) => entry.id === compaction.payload.firstKeptEntryId) : -1;
    const show = (details, entry) => {
      const isLeftOut = kept > 0 && entry.seq < branch[kept].seq;
      details.classList.toggle("left-out", isLeftOut);
      details.querySelector(".hint").hidden = !isLeftOut;
    };
    return () => {
      each(this.#list, branch.toReversed(), (entry) => entry, newEntry, show);
      return [this.#list];
    };
  }
  #list = h("div", {});

  // -- the three views

  async #views() {
    const names = ["ledger", "feed", "document"];
    const pages = await Promise.all(names.map((name) => get(sessionPath(this.view.session, `/views/${name}`), { head: this.view.head, limit: 200 })));
    const show = (section, name) => {
      const { items, omitted, cursor } = pages[names.indexOf(name)];
      const [, left, list, rest] = section.children;
      const what = Object.entries(omitted ?? {}).map(([kind, times]) => `${kind} × ${times}`).join(", ");
      write(left, what ? `Leaves out: ${what}.` : "Leaves nothing out.");
      each(list, [...items.entries()], ([at]) => at, () => json(""), (pre, [, item]) => write(pre, text(item)));
      rest.hidden = !cursor;
    };
    return () => {
      each(this.#three, names, (name) => name, newView, show);
      return [this.#three];
    };
  }
  #three = h("div", { class: "three" });

  // -- the request of a model call

  async #request(branch) {
    const calls = branch.filter((entry) => (entry.kind === "message" && entry.payload.role === "assistant")
      || (entry.kind === "stream_failed" && entry.payload.modelCallIndex !== undefined));
    if (!calls.length) return () => [h("p", { class: "hint" }, "No model call yet.")];
    const chosen = calls.find((entry) => entry.id === this.#call) ?? calls.at(-1);
    if (this.#sent.call !== chosen) { // a request that was sent does not change
      const request = await get(sessionPath(this.view.session, `/entries/${chosen.id}/request`));
      this.#sent = { call: chosen, shown: sentRequest(request, branch) };
    }
    const { shown } = this.#sent;
    return () => {
      each(this.#chooseCall, calls, (entry) => entry, (entry) => h("option", { value: entry.id }), (option, entry) => {
        write(option, `Model call ${calls.indexOf(entry) + 1}, entry ${entry.seq}${entry.kind === "message" ? "" : ", failed"}`);
        option.selected = entry === chosen;
      });
      return [this.#chooseCall, ...shown];
    };
  }
  #call = "";
  #chooseCall = h("select", { "aria-label": "Model call", onchange: () => { this.#call = this.#chooseCall.value; this.#draw(); } });
  #sent = {};

  // -- the state tables

  async #states() {
    const { tables } = await get(sessionPath(this.view.session, "/states"), { head: this.view.head });
    return () => {
      each(this.#tables, tables, (table) => `${table.name} ${table.current}`, newTable);
      return [this.#tables];
    };
  }
  #tables = h("div", { class: "tables" });
}
customElements.define("run-inspector", RunInspector);

function newEntry(entry) {
  const { html, questionDigest, questionText, calls, isShown, ...stored } = entry;
  const fill = () => details.open && details.children.length === 1 && details.append(json(stored));
  const details = h("details", { class: "entry", ontoggle: fill },
    h("summary", {}, h("span", {}, String(entry.seq)), h("span", {}, entry.kind), h("span", { class: "hint" }, "left out by compaction"),
      h("time", {}, new Date(entry.timestamp).toLocaleTimeString())));
  return details;
}

function newView(name) {
  return h("section", { "aria-label": name }, h("h2", {}, name), h("p", { class: "note" }), h("div", {}),
    h("p", { class: "hint", hidden: true }, "The first 200 are shown."));
}

function sentRequest({ isExact, losses, compacted, trimmed, model, format, body }, branch) {
  const how = isExact ? "As it was sent." : "Rebuilt with the agent's current instructions and tools; the run did not keep its own.";
  const panel = (title, ...content) => h("section", { class: "panel" }, h("header", {}, h("h2", {}, title)), ...content);
  return [h("p", { class: "hint" }, how),
    losses.length ? panel("What the format could not say", h("ul", {}, losses.map((loss) => h("li", {}, `${loss.what}: ${loss.why} `, h("code", { class: "soft" }, loss.where))))) : panel("Losses", h("p", { class: "soft" }, "None. The format can express everything.")),
    compacted && panel("Compaction", h("details", {}, h("summary", {}, `Entries before ${compacted.before} were left out, and this summary sent instead.`), h("div", { class: "plain" }, compacted.summary))),
    trimmed.length && panel("Trimmed to fit", h("ul", {}, trimmed.map((note) => h("li", {}, `entry ${seqOf(branch, note.entryId)} ${note.action}, about ${count(note.tokens)} tokens`)))),
    h("h2", {}, `${model} · ${format}`), json(body)].filter(Boolean);
}

function newTable(table) {
  const next = table.current && Object.entries(table.states[table.current]).map(([event, state]) => `${event} → ${state}`).join(", ");
  return h("section", {}, h("h2", {}, table.title), stateDiagram(table),
    table.current ? h("p", { class: "hint" }, `Now ${table.current}. Next: ${next || "nothing"}.`) : "");
}

function text(value) {
  return JSON.stringify(value, null, 2);
}

function json(value) {
  return h("pre", { class: "json", tabindex: "0" }, text(value));
}

function seqOf(branch, id) {
  return branch.find((entry) => entry.id === id)?.seq ?? id;
}

function percent(part, whole) {
  return `${Math.round((100 * part) / whole)} %`;
}

function laneIcon({ kind, isOpen }) {
  const [name, colour] = { model: ["model", "denim"], tool: [isOpen ? "terminal" : "check", isOpen ? "denim" : "ok"], wait: ["ask", isOpen ? "thread" : "soft"], failed: ["cross", "bad"], cut: ["cross", "bad"] }[kind];
  return icon(name, colour);
}

/** The bar of a step. Pale is the time to the first token; an approval ends with a post once it is decided. */
function track(bar, total) {
  const x = (ms) => (1000 * ms) / total;
  const label = `${bar.kind}, from ${duration(bar.start)} to ${duration(bar.end)}`;
  const svg = s("svg", { class: "track", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img", "aria-label": label },
    block(bar.kind, x(bar.start), Math.max(6, x(bar.end - bar.start))));
  if (bar.first !== undefined) svg.append(block("before", x(bar.start), x(bar.first - bar.start)));
  if (bar.kind === "wait" && !bar.isOpen) svg.append(block("post", Math.max(0, x(bar.end) - 8), 8));
  return svg;
}

/** A piece of a bar. What was cut off is a line, because only strokes can be hatched in a drawing that is stretched. */
function block(kind, x, width) {
  if (kind === "cut") return s("line", { class: kind, x1: x, x2: x + width, y1: 8, y2: 8 });
  return s("rect", { class: kind, x, y: 3, width, height: 10 });
}
