// The card of one tool call: its arguments as they arrive, approval, progress and result.

import { address, now, sessionPath } from "./api.js";
import { duration, h, place, visible } from "./dom.js";
import "./argument-form.js";
import "./sub-agent.js";

const SIGNS = { writing: "…", pending: "…", ask: "?", running: "▸", done: "✓", failed: "✗", denied: "✗" };
const WORDS = { writing: "writing", pending: "waiting", ask: "needs approval", running: "running", done: "done", failed: "failed", denied: "denied" };
const CUT_LINES = 5;

class ToolCard extends HTMLElement {
  #item = null;
  #session = "";
  #isOpen = false;
  #isEditing = false;
  #rules = []; // rules that the user can add with an approval
  #isAllowing = false;
  #always = h("button", { hidden: true, onclick: () => this.#allow(true) }, "Always…");
  #ticking = null;
  #inner = null; // the session of its sub-agent
  #growing = h("pre", { tabindex: "0" }); // the arguments as they arrive, then the progress of the tool

  show(item, session) {
    if (this.#item && isSame(this.#item, item)) return;
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
    yield preview(item.question.arguments);
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
    this.#decide(decision);
  }

  #decide(decision, args, always) {
    const { id: toolCallId, digest: argumentsDigest } = this.#item; // the decision is about the arguments shown
    const detail = { toolCallId, argumentsDigest, decision, arguments: args, always };
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

/** What the call would do, in full: a diff for an edit, the exact command, otherwise every argument. */
function preview(given) {
  if (typeof given.command === "string" && Object.keys(given).length === 1) {
    return h("pre", { tabindex: "0", "aria-label": "Command" }, visible(given.command));
  }
  const { old, new: now, ...others } = given;
  if (typeof old === "string" && typeof now === "string") {
    return h("pre", { tabindex: "0", "aria-label": "Change" }, visible(`${listed(others)}\n`.trimStart()), ...diff(old, now));
  }
  return h("pre", { tabindex: "0", "aria-label": "Arguments" }, visible(listed(given) || "no arguments"));
}

function listed(given) {
  return Object.entries(given).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value, null, 2)}`).join("\n");
}

/** Removed and added lines, between the unchanged lines at either end. */
function diff(before, after) {
  const old = before.replace(/\n$/, "").split("\n");
  const now = after.replace(/\n$/, "").split("\n");
  let start = 0;
  while (start < Math.min(old.length, now.length) && old[start] === now[start]) start++;
  let end = 0;
  while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const lines = (sign, name, all) => all.map((line) => h("span", { class: name }, visible(`${sign}${line}\n`)));
  return [
    ...lines(" ", "", old.slice(0, start)),
    ...lines("-", "del", old.slice(start, old.length - end)),
    ...lines("+", "add", now.slice(start, now.length - end)),
    ...lines(" ", "", end ? old.slice(-end) : []),
  ];
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
