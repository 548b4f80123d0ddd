// The inspector: a timeline of the run, the stored entries, the views, the request of a model call, the state tables.

import { get, now, sessionPath } from "./api.js";
import { count, duration, each, h, place, s, write } from "./dom.js";
import { stateDiagram } from "./state-diagram.js";
import { bars, runs } from "./timeline.js";

const TABS = ["Timeline", "Entries", "Views", "Request", "State"];

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
      h("button", { class: "quiet widen", "aria-label": "Widen the inspector", "aria-pressed": "false", onclick: (event) => this.#widen(event.currentTarget) }, "⇔"),
      h("button", { class: "quiet close", "aria-label": "Close the inspector", onclick: () => this.dispatchEvent(new CustomEvent("toggle-inspector", { bubbles: true })) }, "×"));
    this.replaceChildren(list, this.#pane);
    this.#select(this.#tab);
  }

  changed() {
    const branch = this.view.branch;
    const now = `${this.view.session} ${branch.at(-1)?.id} ${branch.length}`;
    if (now !== this.#drawn) this.#draw();
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
    this.#draw().then(() => { this.scrollTop = 0; });
  }

  async #draw() {
    const turn = ++this.#turn;
    const branch = this.view.branch;
    this.#drawn = `${this.view.session} ${branch.at(-1)?.id} ${branch.length}`;
    if (!branch.length) return place(this.#pane, [h("p", { class: "hint" }, "Nothing to inspect yet.")]);
    const load = { Timeline: this.#timeline, Entries: this.#entries, Views: this.#views, Request: this.#request, State: this.#states }[this.#tab];
    const show = await load.call(this, branch).catch((error) => () => [h("p", { class: "notice bad" }, error.message)]);
    if (turn !== this.#turn) return; // superseded by a newer call
    place(this.#pane, show());
    for (const lit of this.#pane.querySelectorAll(".diagram:not([data-seen]) .lit")) {
      lit.scrollIntoView({ block: "nearest", inline: "center" });
      lit.closest(".diagram").dataset.seen = "";
    }
  }

  // -- the timeline. Like the other four tabs, it loads its data and returns a function that draws it. Entries are keyed
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
    this.#bars.replaceChildren(...this.#lanes(chosen));
    clearInterval(this.#ticking);
    this.#ticking = setInterval(() => {
      const isLive = this.#bars.isConnected && chosen.at(-1).kind !== "run_ended";
      isLive ? this.#bars.replaceChildren(...this.#lanes(chosen)) : clearInterval(this.#ticking);
    }, 1000);
    return [this.#chooseRun, this.#bars];
  }
  #run = ""; // empty: the latest run
  #chooseRun = h("select", { "aria-label": "Run", onchange: () => { this.#run = this.#chooseRun.value; this.#draw(); } });
  #bars = h("div", {});
  #ticking = null;

  #lanes(entries) {
    const shown = bars(entries, now());
    const total = Math.max(1, ...shown.map((bar) => bar.end));
    const axis = h("div", { class: "axis" }, h("span", {}), h("div", {}, [0, 0.5, 1].map((part) => h("span", {}, duration(total * part)))), h("span", {}));
    const lanes = shown.map((bar) => h("div", { class: "lane" }, h("span", { title: bar.name }, bar.name), track(bar, total), h("em", {}, duration(bar.end - bar.start))));
    const failed = shown.filter((bar) => bar.why);
    const usage = shown.map((bar) => bar.usage).filter(Boolean);
    const input = usage.reduce((sum, one) => sum + (one.inputTokens ?? 0), 0);
    const cached = usage.reduce((sum, one) => sum + (one.cacheReadTokens ?? 0), 0);
    const waits = shown.filter((bar) => bar.first !== undefined).map((bar) => `${bar.name} ${duration(bar.first - bar.start)}`);
    return [axis, ...lanes, h("dl", {},
      waits.length ? [h("dt", {}, "First token"), h("dd", {}, waits.join(", "))] : [],
      failed.flatMap((bar) => [h("dt", {}, "Retry"), h("dd", {}, `${bar.name}: ${bar.why}`)]),
      h("dt", {}, "Cached input"), h("dd", {}, input ? `${count(cached)} of ${count(input)} tokens` : "not reported"),
      h("dt", {}, "Stored"), h("dd", {}, `${entries.length} entries`))];
  }

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
  const { html, questionDigest, questionText, ...stored } = entry;
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
  const lost = losses.map((loss) => h("li", {}, `${loss.what} (${loss.where}): ${loss.why}`));
  return [h("p", { class: isExact ? "hint" : "hint rebuilt" }, how),
    h("div", { class: "note" }, h("b", {}, "Loss report. "), lost.length ? h("ul", {}, lost) : "The format can express everything."),
    compacted ? h("details", { class: "note" }, h("summary", {}, h("b", {}, "Compaction. "), `Entries before ${compacted.before} were left out, and this summary sent instead.`), h("div", { class: "plain" }, compacted.summary)) : "",
    trimmed.length ? h("div", { class: "note" }, h("b", {}, "Trimmed to fit. "), h("ul", {}, trimmed.map((note) => h("li", {}, `entry ${seqOf(branch, note.entryId)} ${note.action}, about ${count(note.tokens)} tokens`)))) : "",
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

function track(bar, total) {
  const x = (ms) => (1000 * ms) / total;
  const label = `${bar.kind}, from ${duration(bar.start)} to ${duration(bar.end)}`;
  const svg = s("svg", { viewBox: "0 0 1000 15", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: bar.kind, x: x(bar.start), y: 2, width: Math.max(4, x(bar.end - bar.start)), height: 11 }));
  if (bar.first !== undefined) svg.append(s("rect", { class: "before", x: x(bar.start), y: 2, width: x(bar.first - bar.start), height: 11 }));
  return svg;
}
