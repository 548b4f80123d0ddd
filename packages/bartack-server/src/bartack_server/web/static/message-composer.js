// The message input. It shows what sending would do: start a run, steer the live one, queue, or start a branch.

import { count, h } from "./dom.js";

const PLACEHOLDERS = {
  idle: "Message. Enter sends, Shift+Enter starts a new line.",
  running: "Send a message to steer the run before its next step.",
  waiting: "A tool call needs your approval. A message is delivered after that.",
};

class MessageComposer extends HTMLElement {
  #state = "idle";
  #files = [];
  #editing = null;
  #reading = Promise.resolve();
  #outbox = []; // messages that have not arrived yet; the first is being sent
  #text = h("textarea", { id: "message", "aria-label": "Message", dir: "auto", rows: "2" });
  #chips = h("div", { class: "chips" });
  #note = h("div", { class: "editing", hidden: true });
  #wrong = h("div", { class: "notice bad", role: "alert" });
  #send = h("button", { onclick: () => this.#submit("send") });
  #queue = h("button", { onclick: () => this.#submit("queue") }, "Queue");
  #stop = h("button", { onclick: () => this.#emit("stop") }, "Stop ", h("kbd", {}, "Esc"));
  #model = h("input", { class: "model", list: "models", "aria-label": "Model", autocomplete: "off", spellcheck: "false" });
  #models = h("datalist", { id: "models" });
  #usage = h("span", {});
  #context = h("span", {});
  #meter = h("meter", { min: "0", max: "100", "aria-label": "Context used" });

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
    this.#model.addEventListener("change", () => this.#model.value.trim() && this.#emit("switch", this.#model.value.trim()));
    this.replaceChildren(h("div", { class: "column" }, this.#note, this.#wrong, this.#chips, this.#text,
      h("div", { class: "bar" }, this.#model, this.#models, picker,
        h("button", { class: "quiet", onclick: () => picker.click() }, "+ Attach"),
        h("span", { class: "grow" }), this.#usage, this.#context, this.#meter,
        h("span", { class: "acts" }, this.#stop, this.#queue, this.#send))));
    this.state("idle");
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
    this.#send.textContent = this.#editing ? "Send as branch" : isLive ? "Steer" : "Send";
  }

  details({ model, totals, contextTokens, contextWindow }, models) {
    if (document.activeElement !== this.#model) this.#model.value = model ?? "";
    this.#models.replaceChildren(...models.map((name) => h("option", { value: name })));
    const spend = totals?.spend;
    const tokens = spend ? spend.inputTokens + spend.outputTokens : 0;
    const cost = spend?.costUsd ? ` · $${spend.costUsd.toFixed(4)}${spend.unpriced ? "+" : ""}` : "";
    this.#usage.textContent = tokens ? `${count(tokens)} tokens${cost}` : "";
    const percent = contextTokens && contextWindow ? Math.min(100, Math.round((100 * contextTokens) / contextWindow)) : null;
    this.#context.textContent = percent !== null ? `context ${percent} %` : contextTokens ? `context ${count(contextTokens)}` : "";
    this.#meter.hidden = percent === null;
    this.#meter.value = percent ?? 0;
  }

  /** Load an earlier message, to be sent as a branch from `head`, or without one as a new message. */
  edit(text, head, files = []) {
    this.#editing = head === undefined ? null : head;
    this.#files = files;
    this.#drawChips();
    this.#note.hidden = this.#editing === null;
    this.#note.replaceChildren("Editing an earlier message. Sending it starts a branch.",
      h("button", { class: "quiet", onclick: () => this.edit("") }, "Cancel"));
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
    this.edit(texts.filter(Boolean).join("\n"), lost[0].head ?? undefined, files);
    this.failed(reason);
  }

  /** Attach files, or a promise of files. Messages are not sent before these are read. */
  attach(files) {
    const chosen = files instanceof Promise ? files : [...files]; // copied, because clearing the file input empties its FileList
    this.#reading = this.#reading.then(() => this.#read(chosen)).catch((error) => this.failed(error.message));
  }

  async #read(files) {
    for (const file of await files) {
      const bytes = new Uint8Array(await file.arrayBuffer());
      let binary = "";
      for (let at = 0; at < bytes.length; at += 32768) binary += String.fromCharCode(...bytes.subarray(at, at + 32768));
      this.#files.push({ name: file.name || "pasted", data: btoa(binary) });
    }
    this.#drawChips();
  }

  #drawChips() {
    this.#chips.replaceChildren(...this.#files.map((file, at) => h("span", { class: "chip" }, file.name,
      h("button", { class: "quiet", "aria-label": `Remove ${file.name}`, onclick: () => { this.#files.splice(at, 1); this.#drawChips(); } }, "×"))));
  }

  async #submit(how) {
    await this.#reading;
    const text = this.#text.value;
    if (!text.trim() && !this.#files.length) return;
    this.#outbox.push({ how, text, attachments: this.#files, head: this.#editing, model: this.#model.value.trim() });
    this.edit("");
    if (this.#outbox.length === 1) this.#emit("submit-message", this.#outbox[0]);
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  #grow() {
    this.#text.rows = Math.min(14, Math.max(2, this.#text.value.split("\n").length));
  }
}
customElements.define("message-composer", MessageComposer);
