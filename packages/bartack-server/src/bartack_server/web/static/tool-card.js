// The card of one tool call: its arguments as they arrive, approval, progress and result.

import { address, now, sessionPath } from "./api.js";
import { duration, h, place, visible } from "./dom.js";
import "./argument-form.js";
import "./sub-agent.js";

const SIGNS = { writing: "…", pending: "…", ask: "?", running: "▸", done: "✓", failed: "✗", denied: "✗" };
const WORDS = { writing: "writing", pending: "waiting", ask: "needs approval", running: "running", done: "done", failed: "failed", denied: "denied" };
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
  #always = h("button", { hidden: true, onclick: () => this.#allow(true) }, "Always…");
  #ticking = null;
  #inner = null; // the session of its sub-agent
  #growing = h("pre", { tabindex: "0" }); // the arguments as they arrive, then the progress of the tool

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
    const isOver = ["done", "failed", "denied"].includes(item.state);
    const fold = isOver && { "aria-expanded": String(this.#isOpen), onclick: () => this.#fold() };
    const head = h(isOver ? "button" : "div", { class: "head", ...fold },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[item.state]),
      h("b", {}, visible(item.name)),
      h("span", { class: "brief" }, brief(item)),
      h("span", { class: "state" }, this.#stateText()));
    const isAtEnd = this.#growing.scrollHeight - this.#growing.scrollTop - this.#growing.clientHeight < 20;
    place(this, [head, ...this.#body()]);
    if (isAtEnd) this.#growing.scrollTop = this.#growing.scrollHeight;
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
    if (item.state === "ask") return `waiting ${since(item.asked)}`;
    if (item.state === "running" && item.started) return `running ${since(item.started)}`;
    const took = item.took ? ` · ${duration(item.took)}` : "";
    const error = item.errorCode?.replace(/^tool_/, "").replaceAll("_", " ");
    const word = item.exitCode ? `exit ${item.exitCode}` : error ?? WORDS[item.state];
    return `${word}${took}`;
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
    if (item.question.reason) yield h("div", { class: "why" }, visible(item.question.reason));
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
    const label = item.question.preview?.kind === "file_change" ? "Change" : "Question";
    yield h("pre", { class: "question", tabindex: "0", "aria-label": label }, ...(isWhole || !this.#isChanged ? shown : []));
    yield h("div", { class: "size", role: "status" }, isWhole ? `${total.text}.` : this.#missing(size(shown), total));
    if (!isWhole) {
      yield h("div", { class: "acts" },
        h("button", { class: "go", onclick: () => this.#open() }, "Show all"),
        h("button", { onclick: () => this.#decide("deny") }, "Deny ", h("kbd", {}, "D")));
      return;
    }
    if (this.#isAllowing) {
      yield this.#allowing();
      return;
    }
    this.#always.disabled = false;
    yield h("div", { class: "acts" },
      h("button", { class: "go", onclick: () => this.#decide("approve") }, "Approve ", h("kbd", {}, "A")),
      h("button", { onclick: () => this.edit() }, "Edit ", h("kbd", {}, "E")),
      h("button", { onclick: () => this.#decide("deny") }, "Deny ", h("kbd", {}, "D")),
      this.#always);
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
    this.querySelector(".acts button")?.focus();
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
    this.querySelector(is ? ".allow button" : ".acts button")?.focus();
  }

  #allowing() {
    return h("div", { class: "allow", role: "group", "aria-label": "Approve, and allow without asking" },
      h("div", { class: "hint" }, "Approve, and from now on allow without asking, in this session until the server stops:"),
      ...this.#rules.map((rule) => h("button", { onclick: () => this.#decide("approve", undefined, rule.scope) }, visible(rule.text))),
      h("button", { class: "quiet", onclick: () => this.#allow(false) }, "Back"));
  }

  #fold() {
    this.#isOpen = !this.#isOpen;
    this.#draw();
    this.querySelector("button.head")?.focus();
  }

  *#result() {
    const item = this.#item;
    if (this.#isOpen) yield h("pre", { tabindex: "0", "aria-label": "Arguments" }, visible(JSON.stringify(item.arguments, null, 2)));
    if (item.output) {
      const lines = item.output.split("\n").length;
      const more = !this.#isOpen && lines > CUT_LINES && h("button", { class: "more", onclick: () => this.#fold() }, `⌄ ${lines} lines`);
      yield h("pre", { tabindex: "0", "aria-label": "Output" }, more, visible(this.#isOpen ? item.output : cut(item)));
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

/** The relevant part of an output: the end of a failure, otherwise the beginning. */
function cut(item) {
  const lines = item.output.split("\n");
  if (lines.length <= CUT_LINES) return item.output;
  return (item.state === "failed" ? lines.slice(-CUT_LINES) : lines.slice(0, CUT_LINES)).join("\n");
}

function brief(item) {
  const given = item.arguments ?? {};
  const first = given.path ?? given.command ?? Object.values(given)[0];
  return first === undefined ? "" : visible(typeof first === "string" ? first.split("\n")[0] : JSON.stringify(first));
}

function since(time) {
  return duration(Math.max(1000, Math.floor((now() - new Date(time)) / 1000) * 1000)).replace(".0 s", " s");
}

/** What the call would do, in full, as rows of text: the diff of its preview, the exact command, or the text of the
 * question, in which the model cannot imitate a line of ours. */
function questionRows({ question: { arguments: given, preview: shown }, text }) {
  if (shown?.kind === "file_change" && Array.isArray(shown.diff) && isAbout(given, ["path", "text", "old", "new", "everywhere"])) {
    const state = shown.before === "absent" ? "new file" : shown.note ?? (shown.diff.length ? "" : "no change");
    return [row(`${shown.path.replaceAll("\n", "\\n")}${state ? `  ${state}` : ""}`), ...shown.diff.map(diffRow)];
  }
  if (shown?.kind === "command" && typeof given.command === "string" && isAbout(given, ["command", "directory"])) {
    const lines = given.command.split("\n").map((line, at) => row(`${at ? "  " : "$ "}${line}`));
    return [...lines, row(`in ${shown.directory.replaceAll("\n", "\\n")} (${shown.runtime?.name ?? "unknown runtime"})`, "hint")];
  }
  return text.split("\n").slice(1).map((line) => row(line)); // the card has the first line
}

/** Whether there are no arguments but these. */
function isAbout(given, names) {
  return Object.keys(given).every((name) => names.includes(name));
}

function row(text, kind = "") {
  return h("span", { class: `row ${kind}` }, visible(text), "\n");
}

function diffRow([kind, number, text]) {
  if (kind === "gap") return row(`… ${number} unchanged lines`, "hint");
  return row(`${kind} ${text}`, { "-": "del", "+": "add" }[kind]);
}

function size(rows) {
  const characters = rows.reduce((sum, { textContent }) => sum + textContent.length - 1, 0);
  return { lines: rows.length, characters, text: `${rows.length} ${rows.length === 1 ? "line" : "lines"}, ${characters} characters` };
}

/** As many rows as are shown of a question that is not open; of a long row, its beginning. */
function beginning(rows) {
  const shown = [];
  let rest = SHOWN_CHARACTERS;
  for (const { textContent, className } of rows.slice(0, SHOWN_LINES)) {
    if (rest <= 0) break;
    shown.push(h("span", { class: className }, textContent.slice(0, -1).slice(0, rest), "\n"));
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
    return file.isImage ? h("img", { src: url.href, alt: file.name, loading: "lazy" }) : h("a", { href: url.href, download: file.name }, file.name);
  }));
}
