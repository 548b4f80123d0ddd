// The message input, and above it everything that the model has not seen yet: questions, steering, queued messages.
// It shows what sending would do: start a run, steer the live one, queue, or start a branch.

import { count, each, h, money, s, write } from "./dom.js";
import { icon } from "./icons.js";
import { modelOptions } from "./model-picker.js";
import { popButton } from "./popover.js";

const PLACEHOLDERS = {
  idle: "Message",
  running: "Steer the run",
  waiting: "A message is delivered after your decision",
};
const DOES = { idle: "starts a run", running: "steers at the next step", waiting: "is delivered after your decision" };

class MessageComposer extends HTMLElement {
  #state = "idle";
  #files = [];
  #editing = null;
  #reading = Promise.resolve();
  #outbox = []; // messages that have not arrived yet; the first is being sent
  #text = h("textarea", { id: "message", "aria-label": "Message", "aria-describedby": "does", dir: "auto", rows: "1" });
  #outstanding = h("ul", { class: "outstanding", "aria-label": "Outstanding" });
  #chips = h("div", { class: "chips" });
  #note = h("div", { class: "editing", hidden: true });
  #wrong = h("div", { class: "wrong", role: "alert" });
  #sendLabel = h("span", { class: "label" });
  #sendIcon = h("span", {});
  #send = h("button", { type: "button", class: "b primary", onclick: () => this.#submit("send") }, this.#sendIcon, this.#sendLabel);
  #queue = h("button", { type: "button", class: "b wide-only", onclick: () => this.#submit("queue") }, "Queue");
  #stop = h("button", { type: "button", class: "b", title: "Stop the run (Esc)", onclick: () => this.#emit("stop") }, icon("stop", "s"), h("span", { class: "label" }, "Stop"));
  #chosen = "";
  #models = [];
  #mode = ""; // empty if the agent has no modes
  #modes = []; // {name, text}
  #modeName = h("span", {});
  #modeButton = popButton({ class: "b q", title: "What may be done without asking" }, [h("span", { class: "unseen" }, "Mode "), this.#modeName, icon("down", "s")],
    (close) => this.#modes.map(({ name, text }) => h("button", { type: "button", class: name === "yes" ? "opt bad" : "opt", "aria-current": name === this.#mode ? "true" : null, onclick: () => { close(); this.#chooseMode(name); } },
      h("span", {}, name === this.#mode ? icon("check") : ""), h("span", {}, capital(name)), h("small", {}, capital(text)))), "above start");
  #modeSwitch = h("div", { class: "seg modes", role: "radiogroup", "aria-label": "Mode", hidden: true });
  #usage = h("span", { class: "num" });
  #context = h("span", { class: "num" });
  #value = s("circle", { class: "value", cx: 8, cy: 8, r: 6, "stroke-dasharray": "0 100" });
  #meter = h("span", { class: "meter", hidden: true }, s("svg", { class: "ring", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("circle", { cx: 8, cy: 8, r: 6 }), this.#value), this.#context);
  #enter = h("span", {});
  #does = h("p", { class: "does", id: "does" }, h("span", {}, h("b", {}, "Enter"), " ", this.#enter), h("span", { class: "wide-only" }, h("b", {}, "Shift Enter"), " new line"), this.#usage);

  connectedCallback() {
    const picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => { this.attach(picker.files); picker.value = ""; } });
    this.#text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#submit(event.altKey ? "queue" : "send");
      }
    });
    this.#text.addEventListener("input", () => this.#grow());
    this.#text.addEventListener("paste", (event) => this.attach(event.clipboardData?.files ?? []));
    this.addEventListener("dragover", (event) => event.preventDefault());
    this.addEventListener("drop", (event) => { event.preventDefault(); this.attach(event.dataTransfer.files); });
    this.replaceChildren(h("div", { class: "column" }, this.#outstanding, this.#wrong,
      h("div", { class: "sheet" }, this.#note, this.#chips, this.#text,
        h("div", { class: "bar" }, picker,
          h("button", { type: "button", class: "b q ic", "aria-label": "Attach files", title: "Attach files", onclick: () => picker.click() }, icon("clip")),
          this.#modeButton,
          this.modelButton("above start only-narrow"),
          h("span", { class: "end" }, this.#meter, this.#stop, this.#queue, this.#send))),
      this.#does));
    this.state("idle");
  }

  /** A button that chooses the model of the next answer; the header has one, and on a phone the composer. */
  modelButton(kind) {
    const name = h("span", { class: "model-name" }, this.#chosen.replace(/^[^:]*:/, ""));
    this.#names.push(name);
    return popButton({ class: "b q", title: "Model of the next answer" }, [h("span", { class: "unseen" }, "Model "), name, icon("down", "s")],
      (close) => modelOptions(this.#models, this.#chosen, (model) => { close(); this.choose(model); }), kind);
  }
  #names = [];

  /** The modes side by side, for the header. */
  modeSwitch() {
    return this.#modeSwitch;
  }

  #chooseMode(mode) {
    this.#showModes(mode, this.#modes);
    this.#emit("switch-mode", mode);
  }

  #showModes(mode, modes) {
    this.#mode = modes.length ? mode : "";
    this.#modes = modes;
    this.#modeButton.hidden = this.#modeSwitch.hidden = !modes.length;
    write(this.#modeName, capital(mode));
    this.#modeName.classList.toggle("bad", mode === "yes");
    const offered = modes.filter(({ name }) => name !== "yes" || name === mode); // which asks about nothing is chosen in the list
    each(this.#modeSwitch, offered, ({ name }) => name, ({ name, text }) => h("button", { type: "button", role: "radio", class: name === "yes" ? "bad" : "", title: capital(text), onclick: () => this.#chooseMode(name) }, capital(name)),
      (button, { name }) => button.setAttribute("aria-checked", String(name === mode)));
  }

  choose(model) {
    this.#showModel(model);
    this.#emit("switch", model);
  }

  /** `shown` is the model that answers in a session of a gateway; a message from here goes to `model`. */
  #showModel(model, shown = model) {
    this.#chosen = model ?? "";
    for (const name of this.#names) write(name, (shown ?? "").replace(/^[^:]*:/, "") || "no model");
  }

  focus() {
    this.#text.focus();
  }

  state(state) {
    this.#state = state;
    const isLive = state !== "idle";
    this.#text.placeholder = PLACEHOLDERS[state];
    this.#stop.hidden = !isLive;
    this.#queue.hidden = !isLive || this.#editing !== null;
    write(this.#sendLabel, this.#editing ? "Send as branch" : isLive ? "Steer" : "Send");
    this.#sendIcon.replaceChildren(icon(this.#editing ? "fork" : isLive ? "steer" : "up", "s"));
    write(this.#enter, this.#editing ? "starts a branch" : DOES[state]);
  }

  details({ model, gatewayModel, mode = "", modes = [], totals, contextTokens, contextWindow }, models) {
    this.#models = models;
    this.#showModel(model, gatewayModel ?? model);
    this.#showModes(mode, modes);
    const spend = totals?.spend;
    const tokens = spend ? spend.inputTokens + spend.outputTokens : 0;
    const cost = spend?.costUsd ? ` · ${money(spend.costUsd)}${spend.unpriced ? "+" : ""}` : "";
    this.#usage.textContent = tokens ? `${count(tokens)} tokens${cost}` : "";
    const percent = contextTokens && contextWindow ? Math.min(100, Math.round((100 * contextTokens) / contextWindow)) : null;
    write(this.#context, percent === null ? "" : `${percent} %`);
    this.#value.setAttribute("stroke-dasharray", `${0.377 * (percent ?? 0)} 100`);
    this.#meter.hidden = percent === null;
    this.#meter.title = percent === null ? "" : `Context: ${count(contextTokens)} of ${count(contextWindow)} tokens`;
    this.#meter.classList.toggle("full", percent > 85);
  }

  /** What the model has not seen: items {key, icon, text, when, isAsked, show, edit, withdraw}. */
  outstanding(items) {
    each(this.#outstanding, items, (item) => item.key, newOutstanding, (row, item) => {
      write(row.querySelector("p"), item.text);
      write(row.querySelector("small"), item.when);
    });
  }

  /** Load an earlier message, to be sent as a branch from `head`, or without one as a new message. */
  edit(text, head, files = []) {
    this.#editing = head === undefined ? null : head;
    this.#files = files;
    this.#drawChips();
    this.#note.hidden = this.#editing === null;
    this.#note.replaceChildren(icon("fork", "s"), "Editing an earlier message. Sending it starts a branch.",
      h("button", { type: "button", class: "b q sm", onclick: () => this.edit("") }, "Cancel"));
    this.#text.value = text;
    this.#grow();
    this.state(this.#state);
    this.focus();
  }

  failed(message) {
    this.#wrong.textContent = message;
  }

  /** The server accepted the first message: send the next one. */
  sent() {
    this.#wrong.textContent = "";
    this.#outbox.shift();
    if (this.#outbox.length) this.#emit("submit-message", this.#outbox[0]);
  }

  /** The first message could not be sent: put it and everything written since back into the input. */
  unsent(reason) {
    const lost = this.#outbox;
    this.#outbox = [];
    const texts = [...lost.map((message) => message.text), this.#text.value];
    const files = [...lost.flatMap((message) => message.attachments), ...this.#files];
    this.edit(texts.filter(Boolean).join("\n"), lost[0]?.head ?? undefined, files);
    this.failed(reason);
  }

  /** Attach files, or a promise of files. Messages are not sent before these are read. */
  attach(files) {
    const chosen = files instanceof Promise ? files : [...files]; // copied, because clearing the file input empties its FileList
    this.#reading = this.#reading.then(() => this.#read(chosen)).catch((error) => this.failed(error.message));
  }

  async #read(files) {
    for (const file of await files) this.#files.push(await encoded(file));
    this.#drawChips();
  }

  #drawChips() {
    this.#chips.replaceChildren(...this.#files.map((file, at) => h("span", { class: "chip" }, h("span", {}, file.name),
      h("button", { type: "button", class: "b q sm ic", "aria-label": `Remove ${file.name}`, onclick: () => { this.#files.splice(at, 1); this.#drawChips(); } }, icon("cross", "s")))));
  }

  async #submit(how) {
    await this.#reading;
    const text = this.#text.value;
    if (!text.trim() && !this.#files.length) return;
    this.#outbox.push({ how, text, attachments: this.#files, head: this.#editing, model: this.#chosen, mode: this.#mode });
    this.edit("");
    if (this.#outbox.length === 1) this.#emit("submit-message", this.#outbox[0]);
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  #grow() {
    if (!CSS.supports("field-sizing", "content")) this.#text.rows = Math.min(14, Math.max(1, this.#text.value.split("\n").length));
  }
}
customElements.define("message-composer", MessageComposer);

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function newOutstanding(item) {
  const button = (name, label, act) => act && h("button", { type: "button", class: "b q sm ic", "aria-label": label, title: label, onclick: act }, icon(name));
  return h("li", {}, icon(item.icon, item.isAsked ? "thread" : ""), h("p", { dir: "auto" }), h("small", { class: "num" }),
    item.show && h("button", { type: "button", class: "b q sm", onclick: item.show }, "Show"),
    button("pencil", "Edit", item.edit), button("cross", "Withdraw", item.withdraw));
}

/** A file as the API takes it. */
export async function encoded(file) {
  const data = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < data.length; at += 32768) binary += String.fromCharCode(...data.subarray(at, at + 32768));
  return { name: file.name || "pasted", data: btoa(binary) };
}
