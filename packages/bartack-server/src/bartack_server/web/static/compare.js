// Two runs of a session side by side: what they cost, what they did, and what they answered.

import { count, duration, h, money, place, write } from "./dom.js";
import { items } from "./conversation.js";
import { textBlocks } from "./growing-text.js";
import { bars, runs } from "./timeline.js";

const ROWS = ["Model", "Result", "Time", "First token", "Model calls", "Tool calls", "Input", "Cached", "Output", "Cost"];

/** The runs of all branches, the newest first: {id, entries, prompt}. Branches share the runs before their fork. */
export function runsOf(branches) {
  const all = new Map();
  for (const branch of branches) {
    for (const entries of runs(branch)) {
      if (entries[0].kind === "run_started") all.set(entries[0].runId, { id: entries[0].runId, entries, prompt: promptOf(entries) });
    }
  }
  return [...all.values()].sort((one, two) => two.entries[0].seq - one.entries[0].seq);
}

function promptOf(entries) {
  const said = items(entries).find((item) => item.type === "you");
  return said?.text || said?.files[0]?.name || "";
}

/** The facts of a run, as texts in the order of `ROWS`. */
export function factsOf(entries) {
  const steps = bars(entries, new Date(entries.at(-1).timestamp).getTime());
  const answers = entries.filter((entry) => entry.kind === "message" && entry.payload.role === "assistant");
  const sum = (name) => answers.reduce((all, { payload }) => all + (payload.meta?.usage?.[name] ?? 0), 0);
  const models = new Set(answers.map(({ payload }) => payload.meta?.model?.model).filter(Boolean));
  const first = steps.find((step) => step.first !== undefined);
  const end = entries.at(-1);
  const [input, cached, output] = ["inputTokens", "cacheReadTokens", "outputTokens"].map(sum);
  return [
    [...models].join(", "), end.kind === "run_ended" ? end.payload.status : "live", duration(Math.max(0, ...steps.map((step) => step.end))),
    first ? duration(first.first - first.start) : "", String(answers.length), String(entries.filter((entry) => entry.kind === "tool_started").length),
    input ? count(input) : "", input ? `${Math.round((100 * cached) / input)} %` : "", output ? count(output) : "", money(sum("costUsd")),
  ];
}

/** The two columns. Elements that stay are kept, so that a choice keeps the focus. */
export class Comparison {
  #sides = ["first", "second"].map((name) => ({
    chosen: "",
    select: h("select", { "aria-label": `The ${name} run`, onchange: (event) => { this.#sides[name === "first" ? 0 : 1].chosen = event.target.value; this.#show(); } }),
    text: h("section", { "aria-label": `The ${name} run` }),
  }));
  #all = [];
  #body = h("tbody", {});
  #table = h("table", { class: "against" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "What")), ...this.#sides.map(({ select }) => h("td", {}, select)))), this.#body);
  #texts = h("div", { class: "compare" }, ...this.#sides.map(({ text }) => text));

  /** What to show for the runs of these branches, the first of which is the one that is shown. */
  draw(branches) {
    this.#all = runsOf(branches);
    if (this.#all.length < 2) return [h("p", { class: "hint" }, "There is one run only. Answer a message again, edit it, or send another one to compare two runs.")];
    const shown = runsOf(branches.slice(0, 1)).map((run) => run.id);
    const newest = shown[0] ?? this.#all[0].id;
    const other = this.#all.find((run) => run.id !== newest && !shown.includes(run.id)) ?? this.#all.find((run) => run.id !== newest);
    [other.id, newest].forEach((id, at) => {
      const side = this.#sides[at];
      if (!this.#all.some((run) => run.id === side.chosen)) side.chosen = id;
    });
    this.#show();
    return [this.#table, this.#texts];
  }

  #show() {
    const chosen = this.#sides.map((side) => this.#all.find((run) => run.id === side.chosen));
    this.#sides.forEach(({ select, text }, at) => {
      place(select, this.#all.map((run, index) => option(run, this.#all.length - index, run === chosen[at], select)));
      place(text, steps(chosen[at].entries));
    });
    const [one, two] = chosen.map((run) => factsOf(run.entries));
    const rows = ROWS.flatMap((name, at) => (one[at] || two[at] ? [h("tr", { class: one[at] === two[at] ? "" : "differs" }, h("th", { scope: "row" }, name), h("td", {}, one[at] || "–"), h("td", {}, two[at] || "–"))] : []));
    place(this.#body, rows);
  }
}

function option(run, number, isChosen, select) {
  const element = [...select.options].find((one) => one.value === run.id) ?? h("option", { value: run.id });
  write(element, `${number}, ${new Date(run.entries[0].timestamp).toLocaleTimeString()} ${run.prompt.slice(0, 60)}`);
  element.selected = isChosen;
  return element;
}

/** What was said and done in a run, in short. */
function steps(entries) {
  return items(entries).flatMap((item) => {
    if (item.type === "you") return [h("div", { class: "you" }, h("div", { class: "text plain", dir: "auto" }, item.text || item.files.map((file) => file.name).join(", ")))];
    if (item.type === "say") return [h("div", { class: "say" }, textBlocks(item.blocks, item.text))];
    if (item.type === "tool") return [h("p", { class: "hint" }, `${item.name}: ${item.state}`)];
    return item.type === "notice" ? [h("p", { class: "hint" }, [item.title, item.text].filter(Boolean).join(" "))] : [];
  });
}
