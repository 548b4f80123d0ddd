// The conversation of one session, live.

import { get, post, remove, sessionPath } from "./api.js";
import { endsAnswer, extended, headBefore, hides, items, runState } from "./conversation.js";
import { duration, h, place, rendered, shortId, textBlocks, visible, write } from "./dom.js";
import { follow } from "./live.js";
import { download, fileList } from "./tool-card.js";
import "./message-composer.js";

const PAGE = 200;
const RETRY_MS = 2000;

class SessionView extends HTMLElement {
  #id = "";
  #head = null; // the branch shown, if it is not the newest
  #branch = [];
  #earlier = null;
  #details = {};
  #state = "idle";
  #models = [];
  #close = null;
  #refreshing = null;
  #shown = new Map();
  #live = [];
  #allowedText = h("span", {});
  #allowed = h("div", { class: "banner allowed", hidden: true }, this.#allowedText, h("button", { class: "quiet", onclick: () => this.#askAgain() }, "Ask again"));
  #title = h("h1", {});
  #name = h("span", { class: "id" });
  #place = h("span", {});
  #previous = h("button", { class: "quiet", "aria-label": "Previous branch", onclick: () => this.#go(-1) }, "‹");
  #next = h("button", { class: "quiet", "aria-label": "Next branch", onclick: () => this.#go(1) }, "›");
  #branches = h("span", { class: "branches", hidden: true }, this.#place, this.#previous, this.#next);
  #banner = h("div", { class: "banner", role: "status", hidden: true });
  #interrupted = h("div", { class: "banner", role: "status", hidden: true }, "The program that started this run is gone. Send a message to continue from here.");
  #more = h("button", { class: "quiet", onclick: () => this.#loadEarlier() }, "Show earlier");
  #list = h("div", { class: "column", role: "log", "aria-label": "Conversation" });
  #answer = h("div", { class: "column answer", "aria-live": "off" });
  #talk = h("div", { class: "talk", tabindex: "0", "aria-label": "Conversation" });
  #composer = h("message-composer", {});
  #opening = null;
  #turn = 0; // counts calls of open(): responses to requests of an earlier one are discarded

  connectedCallback() {
    const drawer = h("button", { class: "quiet drawer", onclick: () => this.#emit("toggle-list") }, "☰ Sessions");
    const inspect = h("button", { class: "quiet grow", onclick: () => this.#emit("toggle-inspector") }, "Inspect ", h("kbd", {}, "I"));
    this.#talk.append(this.#list, this.#answer);
    let wasAtEnd = true;
    this.#talk.addEventListener("scroll", () => { wasAtEnd = this.#isAtEnd(); });
    new ResizeObserver(() => wasAtEnd && this.#toEnd()).observe(this.#talk);
    const main = h("main", {}, h("header", { class: "top" }, drawer, this.#title, this.#name, inspect, this.#branches), this.#banner, this.#interrupted, this.#allowed, this.#talk, this.#composer);
    this.replaceChildren(main);
    this.addEventListener("submit-message", (event) => this.#send(event.detail));
    this.addEventListener("stop", () => this.stop());
    this.addEventListener("switch", (event) => this.#switch(event.detail));
    this.addEventListener("decide", (event) => {
      if (event.target.contains(document.activeElement)) this.#talk.focus(); // its buttons are about to be removed
      this.#decide(event.detail);
    });
  }

  disconnectedCallback() {
    this.#turn++;
    this.#close?.();
  }

  get branch() {
    return this.#branch;
  }

  get head() {
    return this.#head;
  }

  get session() {
    return this.#id;
  }

  /** Show a session; the empty id is a new one. */
  open(id, head = null) {
    this.#opening = this.#open(id, head);
    return this.#opening;
  }

  async #open(id, head) {
    const turn = ++this.#turn;
    this.#close?.();
    this.#close = null;
    if (id !== this.#id) { // clear the details of the previous session
      this.#title.textContent = "";
      this.#name.textContent = shortId(id);
      this.#branches.hidden = true;
    }
    this.#id = id;
    this.#head = head;
    this.#branch = [];
    this.#earlier = null;
    this.#details = {};
    this.#interrupted.hidden = true;
    this.#allowed.hidden = true;
    this.#shown.clear();
    this.#list.replaceChildren();
    this.#clearAnswer();
    this.#say("");
    const models = await get("models").catch(() => ({ items: [] }));
    if (turn !== this.#turn) return;
    this.#models = models.items.map((model) => model.name);
    if (!id) {
      this.#title.textContent = "New session";
      document.title = "Bartack";
      this.#list.replaceChildren(h("p", { class: "empty" }, "Write a message to start a session."));
      this.#composer.state("idle");
      this.#composer.details({ model: this.#models[0] }, this.#models);
      this.#composer.focus();
      this.#emit("changed");
      return;
    }
    try {
      const page = await get(sessionPath(id, "/entries"), { before: 2 ** 52, limit: PAGE, html: 1, head });
      if (turn !== this.#turn) return;
      this.#branch = page.items;
      this.#earlier = page.cursor;
      this.#draw(true);
      await this.#loadDetails();
      if (turn === this.#turn) this.#follow(head ? this.#details.tail.seq : page.items.at(-1)?.seq ?? 0);
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#title.textContent = document.title = error.status === 404 ? "Not found" : "Bartack";
      this.#composer.details({ model: this.#models[0] }, this.#models);
      this.#gone(error);
      if (error.status === 0 || error.status >= 429) setTimeout(() => turn === this.#turn && this.open(id, head), RETRY_MS);
    }
  }

  #follow(seq) {
    this.#close = follow(this.#id, seq, {
      entry: (entry) => {
        if (this.#head) {
          return this.#say("There is something new on another branch.", false, ["Show it", () => this.open(this.#id)]);
        }
        const branch = hides(this.#branch, entry) ? null : extended(this.#branch, entry);
        if (branch === null) return this.open(this.#id);
        this.#branch = branch;
        this.#draw(false, endsAnswer(entry) ? entry : null);
        this.#refreshSoon();
      },
      answer: (change) => this.#head || this.#grow(change),
      replaced: () => this.open(this.#id),
      connected: (is) => {
        this.#say(is ? "" : "Connection lost. Trying again; the run continues on the server.", !is);
        if (is) this.#composer.failed("");
      },
      gone: (error) => {
        this.#close = null;
        this.#gone(error);
      },
    });
  }

  #gone(error) {
    if (error.status === 401) return this.#emit("signed-out");
    const isMissing = error.status === 404 || error.code === "not_found";
    this.#say(isMissing ? "This session no longer exists, or is not yours." : error.message, true);
  }

  #say(text, isBad = false, action = null) {
    if (text && !this.#banner.hidden && this.#banner.firstChild.textContent === text) return;
    this.#banner.hidden = !text;
    this.#banner.className = isBad ? "banner bad" : "banner";
    this.#banner.replaceChildren(text, action ? h("button", { class: "quiet", onclick: action[1] }, action[0]) : "");
  }

  /** Reload the details once per burst of entries. */
  #refreshSoon() {
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = null;
      this.#refresh();
    }, 250);
  }

  #refresh() {
    return this.#loadDetails().catch(() => {}); // the event stream reports a lost connection
  }

  async #loadDetails() {
    const [id, turn] = [this.#id, this.#turn];
    const details = await get(sessionPath(id), { head: this.#head });
    if (turn !== this.#turn) return;
    this.#details = details;
    this.#interrupted.hidden = details.state !== "interrupted";
    this.#showAllowed(details.allowed);
    this.#showState();
    this.#title.textContent = details.title || "Untitled";
    document.title = `${details.title || id} · Bartack`;
    this.#name.textContent = [shortId(id), details.directory].filter(Boolean).join(" · ");
    this.#composer.details(details, this.#models);
    this.#drawBranches();
    this.#emit("changed");
  }

  #showAllowed(texts) {
    this.#allowed.hidden = !texts.length;
    write(this.#allowedText, visible(`Allowed here without asking, until the server stops: ${texts.join("; ")}.`));
  }

  #askAgain() {
    return remove(sessionPath(this.#id, "/allowed")).then(() => this.#refresh(), (error) => this.#composer.failed(error.message));
  }

  /** The branches of the session, and which of them is shown. */
  #whichBranch() {
    const heads = this.#details.heads ?? [];
    return { heads, at: this.#head ? heads.indexOf(this.#head) : heads.length - 1 };
  }

  #drawBranches() {
    const { heads, at } = this.#whichBranch();
    this.#branches.hidden = heads.length < 2;
    write(this.#place, `branch ${at + 1} of ${heads.length}`);
    this.#previous.setAttribute("aria-disabled", String(at <= 0)); // a disabled button loses the focus
    this.#next.setAttribute("aria-disabled", String(at >= heads.length - 1));
  }

  #go(step) {
    const { heads, at } = this.#whichBranch();
    const to = heads[at + step];
    if (to) this.open(this.#id, to === heads.at(-1) ? null : to);
  }

  // -- drawing

  /** `stored` is the entry, if any, that replaces the streamed answer. */
  #draw(isFirst = false, stored = null) {
    const wasAtEnd = isFirst || this.#isAtEnd();
    const shown = items(this.#branch);
    const elements = shown.map((item) => this.#element(item));
    const keys = new Set(shown.map((item) => item.key));
    for (const key of this.#shown.keys()) if (!keys.has(key)) this.#shown.delete(key);
    if (this.#earlier) elements.unshift(this.#more);
    place(this.#list, elements);
    if (stored) this.#replaceAnswer(stored); // before the next layout, so that the text does not move under the reader
    this.#showState();
    if (shown.some((item) => item.state === "ask")) this.#loadRules();
    if (wasAtEnd) this.#toEnd();
    this.#emit("changed");
  }

  /** The state of the run, for the composer. */
  #runState() {
    if (!this.#id || this.#head || this.#details.state === "interrupted") return "idle";
    return runState(this.#branch) ?? this.#details.state ?? "idle";
  }

  #showState() {
    const state = this.#runState();
    if (state !== this.#state) this.#emit("listed");
    this.#state = state;
    this.#composer.state(state);
  }

  #element(item) {
    const existing = this.#shown.get(item.key);
    if (existing && item.type === "tool") existing.show(item, this.#id);
    if (existing) return existing;
    const element = this.#newElement(item);
    this.#shown.set(item.key, element);
    return element;
  }

  #newElement(item) {
    switch (item.type) {
      case "you": {
        const edit = () => {
          this.#composer.edit(item.text, headBefore(this.#branch, item.entry));
          this.#composer.attach(Promise.all(item.files.filter((file) => !file.url).map((file) => download(file, this.#id))));
        };
        return h("div", { class: item.queued ? "you queued" : "you" },
          item.files.length ? fileList(item.files, this.#id) : "",
          item.queued ? h("div", { class: "hint" }, item.queued === "steer" ? "Delivered at the next step" : "Delivered when the run would end") : "",
          h("div", { class: "text" }, textBlocks(item.blocks, item.text)),
          item.queued
            ? h("button", { class: "quiet edit", onclick: () => this.#act({ type: "redact", entryId: item.entry.id }) }, "Withdraw")
            : this.#isPrompt(item.entry) ? h("button", { class: "quiet edit", onclick: edit, "aria-label": "Edit this message" }, "Edit") : "");
      }
      case "say":
        return h("div", { class: "say" }, textBlocks(item.blocks, item.text));
      case "thought":
        return h("details", { class: "thought" }, h("summary", {}, thinkingTitle(item)), h("div", { class: "say" }, textBlocks(item.blocks, item.text)));
      case "tool": {
        const card = h("tool-card", {});
        card.show(item, this.#id);
        return card;
      }
      default:
        return h("div", { class: item.isBad ? "notice bad" : "notice" }, item.text);
    }
  }

  /** Whether a run began with this message. A message that joined a live run was queued earlier on the same
   * branch: a branch between the two would deliver it again. */
  #isPrompt(entry) {
    return !entry.payload.meta?.requestId;
  }

  /** Replace the streamed answer with the stored one. Expanded thinking stays expanded. */
  #replaceAnswer(entry) {
    this.#live.forEach(({ thought }, index) => {
      const stored = this.#shown.get(`${entry.id}/${index}`);
      if (thought?.open && stored) stored.open = true;
    });
    this.#clearAnswer();
  }

  #grow(change) {
    const wasAtEnd = this.#isAtEnd();
    if (change.isNew) this.#clearAnswer();
    for (const part of change.parts) this.#growPart(part);
    if (wasAtEnd) this.#toEnd();
  }

  #growPart(part) {
    if (part.kind === "tool_call") {
      const call = this.#live[part.index] ?? { raw: "", card: this.#answer.appendChild(h("tool-card", {})) };
      this.#live[part.index] = call;
      call.raw += part.arguments;
      call.card.show({ name: part.toolName, id: part.toolCallId, state: "writing", raw: call.raw }, this.#id);
      return;
    }
    let text = this.#live[part.index];
    if (!text) {
      const blocks = h("div", {});
      const tail = h("div", {});
      const say = h("div", { class: "say" }, blocks, tail);
      const thought = part.kind === "thinking" && h("details", { class: "thought" }, h("summary", {}, "Thinking…"), say);
      this.#answer.append(thought || say);
      text = this.#live[part.index] = { blocks, tail, thought };
    }
    text.blocks.append(...part.blocks.map(rendered));
    const tail = rendered(part.tail);
    if (part.kind === "text") (tail.lastElementChild ?? tail).append(h("span", { class: "caret", "aria-hidden": "true" }));
    for (const caret of this.#answer.querySelectorAll(".caret")) if (!tail.contains(caret)) caret.remove();
    text.tail.replaceChildren(tail);
  }

  #clearAnswer() {
    this.#live = [];
    this.#answer.replaceChildren();
  }

  #isAtEnd() {
    return this.#talk.scrollHeight - this.#talk.scrollTop - this.#talk.clientHeight < 80;
  }

  #toEnd() {
    this.#talk.scrollTop = this.#talk.scrollHeight;
  }

  async #loadEarlier() {
    const [turn, before, height] = [this.#turn, this.#branch[0].seq, this.#talk.scrollHeight];
    const page = await get(sessionPath(this.#id, "/entries"), { before, limit: PAGE, html: 1, head: this.#head }).catch(() => null);
    if (!page || turn !== this.#turn || before !== this.#branch[0].seq) return;
    this.#branch = [...page.items, ...this.#branch];
    this.#earlier = page.cursor;
    this.#draw();
    this.#talk.scrollTop += this.#talk.scrollHeight - height;
  }

  // -- acting

  async #send({ how, text, attachments, head, model }) {
    const isNew = !this.#id;
    const from = head ?? this.#head;
    const state = this.#runState();
    const toLive = () => this.#request({ type: how === "queue" ? "queue" : "steer", text, attachments });
    try {
      if (state !== "idle" && head === null) {
        await toLive();
      } else {
        if (state !== "idle") throw new Error("A run is live. Stop it before you begin a branch.");
        const id = this.#id || (await get("me")).prefix + randomId(); // created together with the run
        const chosen = isNew && model && model !== this.#models[0] ? { model } : {};
        const body = { text, attachments, ...chosen, ...(from ? { head: from } : {}) };
        const start = (more) => post(sessionPath(id, "/runs"), { ...body, ...more });
        await start({}).catch(async (error) => {
          if (error.code === "not_adopted" && (await confirmsAdoption(id))) return start({ adopt: true });
          if (error.status !== 409 || from) throw error;
          return toLive(); // a run has started, and its first entries have not arrived yet
        });
        if (isNew) {
          const routed = new Promise((resolve) => window.addEventListener("hashchange", resolve, { once: true }));
          location.hash = `session=${encodeURIComponent(id)}`;
          await routed; // the page is opening the session now
          await this.#opening;
        } else if (this.#head || !this.#close) await this.open(id); // it may have been deleted, and is created again
      }
      this.#composer.sent();
      this.#toEnd();
      this.#emit("listed");
    } catch (error) {
      this.#composer.unsent(error.message);
    }
  }

  async #request(body) {
    return post(sessionPath(this.#id, "/requests"), body);
  }

  /** Post a request. Its effect arrives as an event, so only a failure is shown. */
  #act(body) {
    return this.#request(body).catch((error) => this.#composer.failed(error.message));
  }

  async stop() {
    if (this.#runState() !== "idle") await this.#act({ type: "abort", reason: "user" });
  }

  async #switch(model) {
    if (this.#id && model !== this.#details.model) await this.#act({ type: "switch", model });
  }

  /** Load the rules that each pending approval can add. */
  async #loadRules() {
    const turn = this.#turn;
    const page = await get(sessionPath(this.#id, "/requests"), { limit: PAGE }).catch(() => ({ items: [] }));
    if (turn !== this.#turn) return;
    for (const request of page.items) {
      if (request.type === "approval") this.#shown.get(`call/${request.toolCallId}`)?.offer(request.rules);
    }
  }

  async #decide(decision) {
    const turn = this.#turn;
    try {
      await this.#request({ type: "decide", ...decision });
    } catch (error) {
      if (turn !== this.#turn) return; // the user has switched sessions, where another call may have this id
      this.#composer.failed(error.message);
      const card = this.#shown.get(`call/${decision.toolCallId}`);
      const item = card?.item;
      if (item) card.show({ ...item, retry: Date.now() }, this.#id);
    }
  }

  /** The card that a shortcut applies to: the focused one, or the only one awaiting approval. */
  pendingCard() {
    const all = [...this.querySelectorAll("tool-card.ask")];
    return all.find((card) => card.contains(document.activeElement)) ?? (all.length === 1 ? all[0] : null);
  }

  #emit(name) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true }));
  }
}
customElements.define("session-view", SessionView);

/** Like crypto.randomUUID, which browsers offer only on secure pages. */
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function thinkingTitle(item) {
  if (!item.text) return "Thinking (hidden by the provider)";
  return item.took ? `Thought for ${duration(item.took)}` : "Thinking";
}

/** Whether the user continues an imported session, after seeing what it brings along. */
async function confirmsAdoption(id) {
  const { foreign } = await get(sessionPath(id));
  if (!foreign) return true; // somebody has adopted it in the meantime
  const { model, instructions } = foreign.payload ?? foreign;
  const brought = [
    model ? `Its entries name the model ${model.provider}:${model.model}.` : "It names no model.",
    instructions ? `It replaces the instructions with:\n\n${instructions.slice(0, 2000)}` : "It has no instructions of its own.",
  ];
  return window.confirm(`This session was imported. Continue it?\n\n${brought.join("\n")}`);
}
