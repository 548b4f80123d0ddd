// One tool call: a quiet row once it is done; a card while it needs eyes, because it runs, asks, or has failed.

import { address, now, sessionPath } from "./api.js";
import { duration, h, place, size as bytes, visible } from "./dom.js";
import { copy } from "./growing-text.js";
import { icon, mark } from "./icons.js";
import "./argument-form.js";
import "./sub-agent.js";

const WORDS = { writing: "writing", pending: "waiting", ask: "needs approval", running: "running", done: "done", failed: "failed", denied: "denied" };
const ICONS = { done: "check", failed: "cross", denied: "ask", ask: "ask", pending: "dots", writing: "dots" };
const COLOURS = { done: "ok", failed: "bad", ask: "thread" };
// What our own tools do: before, while and after they do it. Other tools keep their names.
const VERBS = {
  read_file: ["Read", "Reading", "Read", "file"], view_image: ["View", "Viewing", "Viewed", "file"],
  write_file: ["Write this file?", "Writing", "Wrote", null], edit_file: ["Edit this file?", "Editing", "Edited", null],
  apply_patch: ["Apply this patch?", "Patching", "Patched", null],
  list_files: ["List", "Listing", "Listed", "search"], search_files: ["Search", "Searching", "Searched", "search"],
  find_files: ["Find", "Finding", "Found", "search"], run_command: ["Run this command?", "Running", "Ran", null],
};
const BY_MODE = /^(\w+) mode$/; // what a permission mode has decided
const CUT_LINES = 5;
const SHOWN_LINES = 40; // of a question that is not open
const SHOWN_CHARACTERS = 4000;

class ToolCard extends HTMLElement {
  #item = null;
  #session = "";
  #isOpen = false;
  #isEditing = false;
  #rules = []; // rules that the user can add with an approval
  #isAllowing = false;
  #isSeen = false; // the user has opened the whole question
  #isChanged = false; // the question is another one than the card has shown before
  #always = h("button", { class: "b q", hidden: true, onclick: () => this.#allow(true) }, "Always…");
  #ticking = null;
  #inner = null; // the session of its sub-agent
  #growing = h("pre", { class: "output", tabindex: "0" }); // the arguments as they arrive, then the progress of the tool

  show(item, session) {
    if (this.#item && isSame(this.#item, item)) return;
    if (item.digest !== this.#item?.digest) {
      this.#isChanged = Boolean(this.#item?.digest);
      this.#isSeen = this.#isEditing = this.#isAllowing = false;
    }
    this.#item = item;
    this.#session = session;
    if (item.state !== "ask") this.#isEditing = this.#isAllowing = false;
    this.#draw();
  }

  get item() {
    return this.#item;
  }

  connectedCallback() {
    this.#ticking = setInterval(() => this.#tick(), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.#ticking);
  }

  /** Offer rules to allow similar calls. The other buttons are kept: one may have the focus, or be pressed. */
  offer(rules) {
    this.#rules = rules;
    this.#always.hidden = !rules.length;
  }

  edit() {
    if (!this.#mayApprove()) return this.#insist();
    this.#isEditing = true;
    this.#draw();
    this.querySelector("argument-form input, argument-form textarea")?.focus();
  }

  #draw() {
    const item = this.#item;
    this.className = { ask: "ask", done: "done", failed: "failed", denied: "failed" }[item.state] ?? "";
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", `Tool call ${item.name}, ${WORDS[item.state]}`);
    const verb = VERBS[item.name];
    const sign = item.state === "running" ? mark("stitch") : icon(item.state === "done" && verb?.[3] ? verb[3] : ICONS[item.state]);
    const lead = h("span", { class: `lead ${item.state === "done" && verb?.[3] ? "" : COLOURS[item.state] ?? ""}` }, sign);
    const isAtEnd = this.#growing.scrollHeight - this.#growing.scrollTop - this.#growing.clientHeight < 20;
    const isOver = ["done", "failed", "denied"].includes(item.state);
    const body = [...this.#body()];
    const isRow = !body.length;
    const fold = isOver && { "aria-expanded": String(this.#isOpen), onclick: () => this.#fold() };
    const head = h(isOver ? "button" : "div", { type: isOver ? "button" : null, class: isRow ? "step-line" : "head", ...fold }, ...this.#title(),
      h("span", { class: `t state ${item.state === "failed" ? "bad" : item.state === "running" ? "denim" : ""}` }, this.#stateText()));
    const whole = isRow ? head : h("div", { class: item.state === "ask" ? "box ask" : "box" }, head, ...body);
    place(this, [lead, whole]);
    if (isAtEnd) this.#growing.scrollTop = this.#growing.scrollHeight;
  }

  #title() {
    const item = this.#item;
    const verb = VERBS[item.name];
    const denied = item.state === "denied" || (item.state === "failed" && item.decided === "deny");
    let name = visible(item.name);
    const who = BY_MODE.exec(item.decidedBy ?? "") ? "Refused" : "You denied";
    if (denied) name = verb ? who : `${who} ${name}`;
    else if (item.state === "ask") name = verb?.[0].endsWith("?") ? verb[0] : `Allow ${name}?`;
    else if (verb) name = verb[isFinished(item) ? 2 : 1];
    const change = item.question?.preview?.diff;
    const counts = item.state === "ask" && Array.isArray(change)
      ? [h("span", { class: "count" }, h("span", { class: "ok" }, `+${change.filter(([kind]) => kind === "+").length}`), " ", h("span", { class: "bad" }, `−${change.filter(([kind]) => kind === "-").length}`))] : [];
    return [h("b", {}, name), h("code", {}, item.state === "ask" && item.name === "run_command" ? "" : brief(item)), ...counts];
  }

  #grown(text, label) {
    const shown = this.#growing.textContent;
    this.#growing.setAttribute("aria-label", label);
    if (text.startsWith(shown)) this.#growing.append(text.slice(shown.length)); // keeps a selection
    else this.#growing.textContent = text;
    return this.#growing;
  }

  #stateText() {
    const item = this.#item;
    if (item.state === "ask") return `waits ${since(item.asked)}`;
    if (item.state === "running" && item.started) return since(item.started);
    const mode = BY_MODE.exec(item.decidedBy ?? "")?.[0];
    if (item.decided === "deny" && mode) return mode;
    if (item.state === "denied" || (item.state === "failed" && item.decided === "deny")) return item.asked && item.waited ? `after ${duration(new Date(item.waited) - new Date(item.asked))}` : "denied";
    const took = item.took ? ` · ${duration(item.took)}` : "";
    const error = item.errorCode?.replace(/^tool_/, "").replaceAll("_", " ");
    if (item.state === "done") {
      const approved = item.decided && item.decided !== "deny" ? ` · ${mode ?? (item.decidedBy === "always" ? "always allowed" : "you approved")}` : "";
      const lines = item.output?.split("\n").length ?? 0;
      return `${lines > 1 ? `${lines} lines` : "done"}${took}${approved}`;
    }
    return `${item.exitCode ? `exit ${item.exitCode}` : error ?? WORDS[item.state]}${took}`;
  }

  #tick() {
    if (this.#item && (this.#item.state === "ask" || this.#item.state === "running")) {
      this.querySelector(".state").textContent = this.#stateText();
    }
  }

  *#body() {
    const item = this.#item;
    if (item.state === "writing") {
      if (item.raw) yield this.#grown(visible(item.raw), "Arguments");
      return;
    }
    if (item.state === "ask") {
      yield* this.#question();
      return;
    }
    if (item.progress && item.state === "running") yield this.#grown(visible(item.progress), "Progress");
    if (item.inner) {
      this.#inner ??= h("sub-agent", {});
      this.#inner.show(item.inner);
      yield this.#inner;
    }
    yield* this.#result();
  }

  *#question() {
    const item = this.#item;
    if (item.question.reason) yield h("p", { class: "why" }, visible(item.question.reason));
    if (this.#isEditing) {
      const form = h("argument-form", {});
      form.show(item.question.parameters ?? {}, item.question.arguments);
      form.addEventListener("decided", (event) => this.#decide("modify_args", event.detail));
      form.addEventListener("cancelled", () => this.back());
      yield form;
      return;
    }
    const rows = questionRows(item);
    const total = size(rows);
    const isWhole = this.#mayApprove();
    const shown = isWhole ? rows : beginning(rows);
    const isChange = item.question.preview?.kind === "file_change";
    yield h("pre", { class: isChange ? "question" : "question prose", tabindex: "0", "aria-label": isChange ? "Change" : "Question" }, ...(isWhole || !this.#isChanged ? shown : []));
    const note = h("span", { class: "size", role: "status" }, isWhole ? `Showing all: ${total.text}.` : this.#missing(size(shown), total));
    if (!isWhole) {
      yield h("div", { class: "decide" },
        h("button", { class: "b go", onclick: () => this.#open() }, "Show all"),
        h("button", { class: "b", onclick: () => this.#decide("deny") }, "Deny ", h("kbd", {}, "D")), note);
      return;
    }
    if (this.#isAllowing) {
      yield this.#allowing();
      return;
    }
    this.#always.disabled = false;
    yield h("div", { class: "decide" },
      h("button", { class: "b go", onclick: () => this.#decide("approve") }, "Approve ", h("kbd", {}, "A")),
      h("button", { class: "b", onclick: () => this.edit() }, "Edit first ", h("kbd", {}, "E")),
      h("button", { class: "b", onclick: () => this.#decide("deny") }, "Deny ", h("kbd", {}, "D")),
      this.#always, note);
  }

  /** Whether the whole question is in front of the user. */
  #mayApprove() {
    const total = size(questionRows(this.#item));
    return this.#isSeen || (!this.#isChanged && total.lines <= SHOWN_LINES && total.characters <= SHOWN_CHARACTERS);
  }

  #missing(shown, total) {
    if (this.#isChanged) return `The call would now do something else. Look at it again (${total.text}).`;
    return `Showing ${shown.lines} of ${total.lines} lines, ${shown.characters} of ${total.characters} characters.`;
  }

  #open() {
    this.#isSeen = true;
    this.#draw();
    this.querySelector(".question")?.focus();
  }

  /** Show where to open the rest, instead of approving what has not been shown. */
  #insist() {
    this.querySelector(".decide button")?.focus();
  }

  /** Close the form or the list of rules; false if neither is open. */
  back() {
    if (!this.#isEditing && !this.#isAllowing) return false;
    this.#isEditing = false;
    this.#allow(false);
    return true;
  }

  #allow(is) {
    this.#isAllowing = is;
    this.#draw();
    this.querySelector(is ? ".allow button" : ".decide button")?.focus();
  }

  #allowing() {
    return h("div", { class: "allow", role: "group", "aria-label": "Approve, and allow without asking" },
      h("div", { class: "hint" }, "Approve, and from now on allow without asking, in this session until the server stops:"),
      ...this.#rules.map((rule) => h("button", { class: "b", onclick: () => this.#decide("approve", undefined, rule.scope) }, visible(rule.text))),
      h("button", { class: "b q", onclick: () => this.#allow(false) }, "Back"));
  }

  #fold() {
    this.#isOpen = !this.#isOpen;
    this.#draw();
    this.querySelector("[aria-expanded]")?.focus();
  }

  *#result() {
    const item = this.#item;
    if (this.#isOpen) yield h("pre", { class: "output", tabindex: "0", "aria-label": "Arguments" }, visible(JSON.stringify(item.arguments, null, 2)));
    const denied = item.decided === "deny";
    if (item.output && (this.#isOpen || (item.state === "failed" && !denied))) {
      const lines = item.output.split("\n").length;
      yield h("pre", { class: "output", tabindex: "0", "aria-label": "Output" }, visible(this.#isOpen ? item.output : cut(item)));
      const isCut = !this.#isOpen && lines > CUT_LINES;
      if (isCut || this.#isOpen) {
        const take = h("button", { class: "b q sm", onclick: () => copy(item.output, take) }, icon("copy", "s"), "Copy");
        yield h("div", { class: "foot" }, isCut ? h("button", { class: "b q sm", onclick: () => this.#fold() }, `Show all ${lines} lines`) : take, h("span", { class: "num" }, bytes(item.output.length)));
      }
    }
    if (item.files?.length) yield fileList(item.files, this.#session);
  }

  decide(decision) {
    if (decision === "approve" && !this.#mayApprove()) return this.#insist();
    this.#decide(decision);
  }

  #decide(decision, args, always) {
    const { id: toolCallId, digest: questionDigest } = this.#item; // the decision is about what is shown
    const detail = { toolCallId, questionDigest, decision, arguments: args, always };
    this.dispatchEvent(new CustomEvent("decide", { bubbles: true, detail }));
    for (const button of this.querySelectorAll("button")) button.disabled = true;
  }
}
customElements.define("tool-card", ToolCard);

/** Whether two items look the same. Most values are identical objects, because they come from the same entries. */
function isSame(one, two) {
  const names = new Set([...Object.keys(one), ...Object.keys(two)]);
  return [...names].every((name) => one[name] === two[name] || JSON.stringify(one[name]) === JSON.stringify(two[name]));
}

function isFinished(item) {
  return ["done", "failed", "denied"].includes(item.state);
}

/** The relevant part of an output: the end of a failure, otherwise the beginning. */
function cut(item) {
  const lines = item.output.split("\n");
  if (lines.length <= CUT_LINES) return item.output;
  return (item.state === "failed" ? lines.slice(-CUT_LINES) : lines.slice(0, CUT_LINES)).join("\n");
}

export function brief(item) {
  const given = item.arguments ?? item.question?.arguments ?? {};
  const first = given.path ?? given.command ?? given.pattern ?? Object.values(given)[0];
  return first === undefined ? "" : visible(typeof first === "string" ? first.split("\n")[0] : JSON.stringify(first));
}

function since(time) {
  return duration(Math.max(1000, Math.floor((now() - new Date(time)) / 1000) * 1000)).replace(".0 s", " s");
}

/** What the call would do, in full, as rows of text: the diff of its preview, the exact command, or the text of the
 * question, in which the model cannot imitate a line of ours. */
function questionRows({ question: { arguments: given, preview: shown }, text }) {
  if (shown?.kind === "file_change" && Array.isArray(shown.diff) && isAbout(given, ["path", "text", "old", "new", "everywhere", "edits"])) {
    const state = shown.before === "absent" ? "new file" : shown.note ?? (shown.diff.length ? "" : "no change");
    return [row(`${shown.path.replaceAll("\n", "\\n")}${state ? `  ${state}` : ""}`, "hint"), ...shown.diff.map(diffRow)];
  }
  const isCommand = shown?.kind === "command" && shown.runtime && isAbout(shown, ["kind", "command", "directory", "runtime", "sandbox"]);
  if (isCommand && typeof given.command === "string" && isAbout(given, ["command", "directory"])) {
    const lines = given.command.split("\n").map((line, at) => row(`${at ? "  " : "$ "}${line}`));
    return [...lines, row(`in ${shown.directory.replaceAll("\n", "\\n")} (${shown.runtime.name})${shown.sandbox ? `, in the sandbox (${shown.sandbox})` : ""}`, "hint")];
  }
  return text.split("\n").slice(1).map((line) => row(line)); // the card has the first line
}

/** Whether an object has no keys but these. */
function isAbout(given, names) {
  return Object.keys(given).every((name) => names.includes(name));
}

function row(text, kind = "", line = null) {
  return h("span", { class: `row ${kind}`, "data-line": line === null ? null : String(line) }, visible(text), "\n");
}

function diffRow([kind, number, text]) {
  if (kind === "gap") return row(`… ${number} unchanged ${number === 1 ? "line" : "lines"}`, "hint", "");
  return row(`${kind} ${text}`, { "-": "del", "+": "add" }[kind], number);
}

function size(rows) {
  const characters = rows.reduce((sum, { textContent }) => sum + textContent.length - 1, 0);
  return { lines: rows.length, characters, text: `${rows.length} ${rows.length === 1 ? "line" : "lines"}, ${characters} characters` };
}

/** As many rows as are shown of a question that is not open; of a long row, its beginning. */
function beginning(rows) {
  const shown = [];
  let rest = SHOWN_CHARACTERS;
  for (const { textContent, className, dataset } of rows.slice(0, SHOWN_LINES)) {
    if (rest <= 0) break;
    shown.push(h("span", { class: className, "data-line": dataset.line ?? null }, textContent.slice(0, -1).slice(0, rest), "\n"));
    rest -= textContent.length - 1;
  }
  return shown;
}

function fileAddress(file, session) {
  return address(sessionPath(session, `/entries/${file.entryId}/files/${file.number}`));
}

/** The content of a file in a message, for sending it again. */
export async function download(file, session) {
  const response = await fetch(fileAddress(file, session)).catch(() => null);
  if (!response?.ok) throw new Error(`The file ${file.name} cannot be attached again.`);
  return new File([await response.blob()], file.name);
}

/** Images, and links to other files. Nothing is loaded from another host. */
export function fileList(files, session) {
  return h("div", { class: "files" }, files.map((file) => {
    if (file.url) return h("a", { href: /^https?:/.test(file.url) ? file.url : null, rel: "noopener noreferrer", target: "_blank" }, file.name);
    if (!file.isHere) return h("span", { class: "hint" }, visible(file.name));
    const url = fileAddress(file, session);
    return file.isImage ? h("img", { src: url.href, alt: file.name, loading: "lazy" }) : h("a", { href: url.href, download: file.name }, icon("file", "s"), file.name);
  }));
}
