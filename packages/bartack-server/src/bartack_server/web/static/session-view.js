// The conversation of one session, live.

import { address, get, now, post, remove, sessionPath } from "./api.js";
import { activity, endsAnswer, extended, headBefore, hides, items, keysOf, runState } from "./conversation.js";
import { duration, each, h, money, place, visible, write } from "./dom.js";
import { GrowingText, copy, followNote, forgetColours, textBlocks } from "./growing-text.js";
import { icon, mark } from "./icons.js";
import { follow } from "./live.js";
import { encoded } from "./message-composer.js";
import { modelOptions } from "./model-picker.js";
import { newSession } from "./new-session.js";
import { popButton } from "./popover.js";
import { marked, setMark } from "./settings.js";
import { brief, download, fileList } from "./tool-card.js";

const FIRST = 60; // entries that are loaded before a session is shown
const PAGE = 200; // entries per later request
const DRAWN = 40; // items that are drawn at the end of a session; earlier ones are drawn when they are scrolled to
const CONTEXT = 10; // items that are drawn before one that was searched for
const RETRY_MS = 2000;
const REFRESH_MS = 500;
const SETTLED_MS = 500;

class SessionView extends HTMLElement {
  #id = "";
  #head = null; // the branch shown, if it is not the newest
  #branch = [];
  #earlier = null;
  #loading = null; // the request for earlier entries
  #most = DRAWN; // how many items are drawn
  #details = {};
  #state = "idle";
  #models = [];
  #agents = []; // of the server, while a session is new
  #agent = ""; // of a new session, if it is not the first
  #setupModel = null;
  #close = null;
  #refreshing = null;
  #shown = new Map();
  #live = [];
  #allowedText = h("span", {});
  #allowed = h("div", { class: "banner allowed", hidden: true }, this.#allowedText, h("button", { class: "b sm", onclick: () => this.#askAgain() }, "Ask again"));
  #titleText = h("span", {});
  #title = h("button", { type: "button", class: "title", title: "Rename", onclick: () => this.#rename() }, this.#titleText, icon("pencil", "s"));
  #heading = h("h1", {}, this.#title);
  #where = h("p", { class: "where" });
  #banner = h("div", { class: "banner", role: "status", hidden: true });
  #interrupted = h("div", { class: "banner", role: "status", hidden: true }, h("span", {}, "The program that started this run is gone. Send a message to continue from here."));
  #more = h("button", { class: "b q sm more-earlier", onclick: () => this.#showEarlier() }, "Show earlier");
  #list = h("div", { class: "column", role: "log", "aria-label": "Conversation" });
  #answer = h("div", { class: "column answer", "aria-live": "off" });
  #nowText = h("b", {});
  #nowTime = h("span", { class: "num" });
  #now = h("div", { class: "now", role: "status", hidden: true }, mark("stitch"), h("span", {}, this.#nowText, " ", this.#nowTime));
  #doing = null; // what the live line says: {text, since}
  #unfolded = new Set(); // thinking that stays unfolded although it is drawn again
  #sending = null; // the message that is on its way
  #talk = h("div", { class: "talk", tabindex: "0", role: "region", "aria-label": "Conversation" });
  #composer = h("message-composer", {});
  #asked = h("span", { class: "pill ask", hidden: true });
  #drawer = null;
  #opening = null;
  #turn = 0; // counts calls of open(): responses to requests of an earlier one are discarded
  #ticking = null;
  #settling = null;

  connectedCallback() {
    const drawer = this.#drawer = h("button", { type: "button", class: "b q ic drawer", "aria-label": "Sessions", onclick: () => this.#emit("toggle-list") }, icon("menu"), this.#asked);
    const inspect = h("button", { type: "button", class: "b q ic", "aria-label": "Inspect", title: "Inspector (I)", onclick: () => this.#emit("toggle-inspector") }, icon("panel"));
    const more = popButton({ class: "b q ic", "aria-label": "More about this session" }, [icon("dots")], (close) => this.#sessionMenu(close));
    this.#talk.append(this.#list, this.#answer, h("div", { class: "column" }, this.#now));
    let wasAtEnd = true;
    this.#talk.addEventListener("scroll", () => {
      wasAtEnd = this.#isAtEnd();
      if (this.#talk.scrollTop < 200 && this.#more.isConnected && !wasAtEnd) this.#showEarlier();
    });
    this.#talk.addEventListener("click", followNote);
    new ResizeObserver(() => {
      this.#composer.style.setProperty("--scrollbar", `${this.#talk.offsetWidth - this.#talk.clientWidth}px`); // both columns have one edge
      if (wasAtEnd) this.#toEnd();
    }).observe(this.#talk);
    const model = h("span", { class: "model" });
    const modes = this.#composer.modeSwitch();
    const main = h("main", { class: "session" }, h("header", { class: "top" }, drawer, h("div", { class: "who" }, this.#heading, this.#where), model, modes, inspect, more),
      this.#banner, this.#interrupted, this.#allowed, this.#talk, this.#composer);
    this.replaceChildren(main);
    model.append(this.#composer.modelButton(""));
    this.#setupModel = this.#composer.modelButton("start");
    this.#ticking = setInterval(() => this.#tick(), 1000);
    window.addEventListener("beforeprint", this.#drawAll);
    this.addEventListener("submit-message", (event) => this.#send(event.detail));
    this.addEventListener("stop", () => this.stop());
    this.addEventListener("switch-mode", (event) => this.#switchMode(event.detail));
    this.addEventListener("switch", (event) => this.#switch(event.detail));
    this.addEventListener("decide", (event) => {
      if (event.target.contains(document.activeElement)) this.#talk.focus(); // its buttons are about to be removed
      this.#decide(event.detail);
    });
  }

  disconnectedCallback() {
    this.#turn++;
    this.#close?.();
    clearInterval(this.#ticking);
    window.removeEventListener("beforeprint", this.#drawAll);
  }

  /** Paper has no place to scroll to. */
  #drawAll = () => {
    if (!this.#branch.length) return;
    this.#most = Infinity;
    this.#draw();
  };

  get branch() {
    return this.#branch;
  }

  get head() {
    return this.#head;
  }

  get session() {
    return this.#id;
  }

  /** The last entry of each branch, the newest first. */
  get heads() {
    return (this.#details.heads ?? []).toReversed();
  }

  /** Show a session; the empty id is a new one. */
  open(id, head = null) {
    this.#opening = this.#open(id, head);
    return this.#opening;
  }

  /** Show a session at an entry that a search has found, on the newest branch that has it. */
  async openAt(id, entryId, seq) {
    await (id !== this.#id || this.#head ? this.open(id) : this.#opening);
    for (const head of [null, ...this.heads.slice(1)]) {
      const page = await get(sessionPath(id, "/entries"), { before: seq + 1, limit: 1, head }).catch(() => null);
      if (id !== this.#id) return;
      if (page?.items[0]?.id !== entryId) continue;
      if (head) await this.open(id, head);
      return this.#showFound(entryId, seq);
    }
  }

  async #showFound(entryId, seq) {
    const turn = this.#turn;
    while (this.#earlier && this.#branch[0].seq > seq) if (!(await this.#loadEarlier()) || turn !== this.#turn) return;
    const keys = keysOf(this.#branch, entryId);
    const present = items(this.#branch).filter((item) => !item.queued);
    const at = present.findIndex((item) => keys.includes(item.key));
    if (at < 0) return;
    this.#most = Math.max(this.#most, present.length - at + CONTEXT);
    this.#draw();
    for (const element of this.#list.querySelectorAll(".found")) element.classList.remove("found");
    const found = keys.map((key) => this.#shown.get(key));
    for (const element of found) {
      element.classList.add("found");
      if (element.matches("details")) element.open = true;
    }
    found[0].scrollIntoView({ block: found[0].offsetHeight < this.#talk.clientHeight / 2 ? "center" : "start" });
  }

  async #open(id, head) {
    const turn = ++this.#turn;
    this.#close?.();
    this.#close = null;
    if (id !== this.#id) { // clear the details of the previous session
      write(this.#titleText, "");
      write(this.#where, "");
    }
    this.#id = id;
    this.#head = head;
    this.#branch = [];
    this.#earlier = null;
    this.#loading = null;
    this.#most = DRAWN;
    this.#details = {};
    this.#interrupted.hidden = true;
    this.#allowed.hidden = true;
    this.#shown.clear();
    this.#list.replaceChildren(...(id ? [h("div", { class: "skeleton", "aria-label": "Loading" }, h("i", {}), h("i", {}), h("i", {}))] : []));
    this.#clearAnswer();
    this.#do(null);
    this.#composer.outstanding([]);
    this.#title.disabled = !id;
    forgetColours();
    this.#say("");
    const page = id && get(sessionPath(id, "/entries"), { before: 2 ** 52, limit: FIRST, html: 1, head });
    const details = id && this.#loadDetails();
    for (const request of [page, details]) request && request.catch(() => {}); // awaited below
    const focused = document.activeElement; // whoever moves the focus while this loads keeps it
    const models = await get("models").catch(() => ({ items: [] }));
    if (turn !== this.#turn) return;
    this.#models = models.items;
    if (!id) {
      write(this.#titleText, "New session");
      document.title = "Bartack";
      const agents = await get("agents").catch(() => ({ items: [] }));
      if (turn !== this.#turn) return;
      this.#agent = "";
      this.#list.replaceChildren(newSession(agents.items, this.#setupModel, (agent) => this.#chooseAgent(agent)));
      this.#agents = agents.items;
      this.#composer.state("idle");
      this.#composer.details({ model: this.#models[0]?.name, mode: "ask", modes: agents.items[0]?.modes }, this.#models);
      if (document.activeElement === focused) this.#composer.focus();
      this.#emit("changed");
      return;
    }
    try {
      const { items: branch, cursor } = await page;
      if (turn !== this.#turn) return;
      this.#branch = branch;
      this.#earlier = cursor;
      this.#draw(true);
      await details;
      if (turn !== this.#turn) return;
      this.#composer.details(this.#details, this.#models);
      this.#follow(head ? this.#details.tail.seq : branch.at(-1)?.seq ?? 0);
      if (this.#earlier && (await this.#loadEarlier())) this.#draw(); // the inspector shows whole runs
    } catch (error) {
      if (turn !== this.#turn) return;
      document.title = error.status === 404 ? "Not found" : "Bartack";
      write(this.#titleText, document.title);
      this.#list.replaceChildren();
      this.#composer.details({ model: this.#models[0]?.name }, this.#models);
      this.#gone(error);
      if (error.status === 0 || error.status >= 429) setTimeout(() => turn === this.#turn && this.open(id, head), RETRY_MS);
    }
  }

  /** Choose the agent of a new session, and with it the models. */
  async #chooseAgent(agent) {
    const turn = this.#turn;
    this.#agent = agent;
    const models = await get("models", { agent }).catch(() => null);
    if (turn !== this.#turn || !models || agent !== this.#agent) return;
    this.#models = models.items;
    const { modes } = this.#agents.find(({ name }) => name === agent);
    this.#composer.details({ model: this.#models[0]?.name, mode: "ask", modes }, this.#models);
  }

  #follow(seq) {
    this.#close = follow(this.#id, seq, {
      entry: (entry) => {
        if (this.#head) {
          return this.#say("There is something new on another branch.", ["Show it", () => this.open(this.#id)]);
        }
        const branch = hides(this.#branch, entry) ? null : extended(this.#branch, entry);
        if (branch === null) return this.open(this.#id);
        this.#branch = branch;
        if (this.#isAtEnd()) this.#most = DRAWN; // nobody reads the earlier ones
        this.#draw(false, endsAnswer(entry) ? entry : null);
        this.#refreshSoon();
      },
      answer: (changes) => this.#head || this.#grow(changes),
      replaced: () => this.open(this.#id),
      connected: (is, again) => {
        this.#say(is ? "" : "Connection lost. Runs continue on the server, and what you write stays here.", is ? null : ["Try now", again], "offline");
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
    this.#say(isMissing ? "This session no longer exists, or is not yours." : error.message);
  }

  #say(text, action = null, sign = action ? "fork" : "offline") {
    if (text && !this.#banner.hidden && this.#banner.textContent.startsWith(text)) return;
    this.#banner.hidden = !text;
    this.#banner.replaceChildren(icon(sign), h("span", {}, text), action ? h("button", { class: "b sm", onclick: action[1] }, action[0]) : "");
  }

  /** Reload the details once per burst of entries. */
  #refreshSoon() {
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = null;
      this.#refresh();
    }, REFRESH_MS);
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
    write(this.#titleText, details.title || "Untitled");
    document.title = `${details.title || id} · Bartack`;
    write(this.#where, [details.gatewayKey ?? details.origin ?? details.agent, details.directory, money(details.totals?.spend?.costUsd)].filter(Boolean).join(" · "));
    this.#composer.details(details, this.#models);
    if (this.#branch.length) this.#draw();
    this.#emit("changed");
  }

  #showAllowed(texts) {
    this.#allowed.hidden = !texts.length;
    write(this.#allowedText, visible(`Allowed here without asking, until the server stops: ${texts.join("; ")}.`));
  }

  #askAgain() {
    return remove(sessionPath(this.#id, "/allowed")).then(() => this.#refresh(), (error) => this.#composer.failed(error.message));
  }

  // -- the session as a whole

  #rename() {
    const field = h("input", { class: "field", "aria-label": "Title", dir: "auto", maxlength: "200" });
    field.value = this.#titleText.textContent;
    const done = async (isKept) => {
      if (!field.isConnected) return;
      const title = field.value.trim();
      this.#heading.replaceChildren(this.#title);
      if (isKept && title && title !== this.#titleText.textContent) {
        write(this.#titleText, title);
        await this.#act({ type: "rename", title });
        this.#emit("listed");
      }
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" || event.key === "Escape") done(event.key === "Enter");
    });
    field.addEventListener("blur", () => done(true));
    this.#heading.replaceChildren(field);
    field.select();
  }

  #sessionMenu(close) {
    const id = this.#id;
    if (!id) return [h("h2", {}, "Nothing to do with a session that has not begun.")];
    const option = (name, text, act, kind = "") => h("button", { type: "button", class: `opt ${kind}`, onclick: () => { close(); act(); } }, icon(name), h("span", {}, text));
    const link = (text, format) => h("a", { class: "opt", href: address(sessionPath(id, "/export"), { format, head: this.#head }).href, download: "", onclick: () => setTimeout(close) }, icon("download"), h("span", {}, text));
    const isPinned = marked("pinned").has(id);
    return [
      option("pin", isPinned ? "Unpin" : "Pin", () => { setMark("pinned", id, !isPinned); this.#emit("listed"); }),
      option("pencil", "Rename", () => this.#rename()),
      link("Export as a page", "html"), link("Export as JSON", "json"),
      h("hr", {}), option("trash", "Delete", () => this.dispatchEvent(new CustomEvent("delete-session", { bubbles: true, detail: id })), "bad"),
    ];
  }

  // -- drawing

  /** `stored` is the entry, if any, that replaces the streamed answer. */
  #draw(isFirst = false, stored = null) {
    const wasAtEnd = isFirst || this.#isAtEnd();
    if (stored) this.#keepAnswer(stored);
    const all = items(this.#branch);
    const present = all.filter((item) => !item.queued);
    const asked = present.findIndex((item) => item.state === "ask"); // a question is always drawn
    const shown = present.slice(Math.min(Math.max(0, present.length - this.#most), asked < 0 ? Infinity : asked));
    if (this.#sending && shown.some((item) => item.type === "you" && item.entry.seq > this.#sending.after)) this.#sent();
    const elements = shown.map((item) => this.#element(item));
    const keys = new Set(shown.map((item) => item.key));
    for (const key of this.#shown.keys()) if (!keys.has(key)) this.#shown.delete(key);
    if (this.#earlier || shown.length < present.length) elements.unshift(this.#more);
    for (const key of this.#unfolded) if (this.#shown.has(key)) this.#shown.get(key).open = true;
    this.#unfolded.clear();
    if (stored) keepingPlace(this.#answer, () => place(this.#list, elements));
    else place(this.#list, elements);
    this.#settle();
    if (stored) this.#clearAnswer(); // before the next layout, so that the text does not move under the reader
    this.#showState();
    this.#showOutstanding(all);
    if (shown.some((item) => item.state === "ask")) this.#loadRules();
    if (wasAtEnd) this.#toEnd();
    this.#emit("changed");
  }

  /** Leave out of the layout what is out of sight, once its size is known: a guess would move the end. */
  #settle() {
    this.#settling ??= setTimeout(() => {
      this.#settling = null;
      for (const element of this.#list.children) element.classList.add("settled");
    }, SETTLED_MS);
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
    if (this.#sending) return;
    this.#do(state === "running" && !this.#live.length ? activity(this.#branch, this.#details.model?.replace(/^[^:]*:/, "")) : null);
  }

  /** Say what happens, at once and with its time. */
  #do(doing) {
    this.#doing = doing;
    this.#now.hidden = !doing;
    if (doing) write(this.#nowText, doing.text);
    this.#tick();
  }

  #tick() {
    if (this.#doing) write(this.#nowTime, `${Math.max(0, Math.round((now() - new Date(this.#doing.since)) / 1000))} s`);
  }

  /** Questions, steering and queued messages are with the composer until the model has seen them. */
  #showOutstanding(all) {
    const asks = all.filter((item) => item.state === "ask");
    this.#asked.hidden = !asks.length;
    write(this.#asked, asks.length ? String(asks.length) : "");
    this.#drawer.setAttribute("aria-label", asks.length ? `Sessions, ${asks.length} needs you` : "Sessions");
    this.#composer.outstanding([
      ...asks.map((item) => ({ key: item.key, icon: "ask", isAsked: true, text: `Asks you: ${item.name} ${brief(item)}`, when: "", show: () => this.#shown.get(item.key)?.scrollIntoView({ block: "center" }) })),
      ...all.filter((item) => item.queued).map((item) => {
        const withdraw = () => this.#act({ type: "redact", entryId: item.entry.id });
        return { key: item.key, icon: item.queued, text: item.text || item.files.map((file) => file.name).join(", "), when: this.#state === "idle" ? "with the next run" : item.queued === "steer" ? "at the next step" : "after this run", withdraw,
          edit: () => withdraw().then(() => this.#composer.edit(item.text)) };
      }),
    ]);
  }

  #element(item) {
    const existing = this.#shown.get(item.key);
    if (existing && item.type === "tool") existing.show(item, this.#id);
    if (existing && item.type === "retry") write(existing.querySelector("summary span"), retryTitle(item));
    if (existing && item.type === "you") this.#fillBranches(existing.querySelector(".branches"), item);
    if (existing && item.answer && !existing.querySelector(".acts")) existing.append(this.#answerActions(item));
    if (existing) return existing;
    const element = this.#newElement(item);
    this.#shown.set(item.key, element);
    return element;
  }

  #newElement(item) {
    switch (item.type) {
      case "you": {
        const branches = h("span", { class: "branches", role: "group", "aria-label": "Branches of this message", hidden: true });
        this.#fillBranches(branches, item);
        return h("section", { class: "you", "aria-label": "You" },
          item.files.length ? fileList(item.files, this.#id) : "",
          item.text ? h("div", { class: "text", dir: "auto" }, textBlocks(item.blocks, item.text)) : "",
          h("div", { class: "acts" }, h("span", { class: "hid" },
            action("copy", "Copy", (event) => copy(item.text, event.currentTarget)),
            this.#isPrompt(item.entry) && action("pencil", "Edit this message", () => this.#edit(item), "edit")), branches));
      }
      case "say":
        return h("section", { class: "said" }, h("div", { class: "say" }, textBlocks(item.blocks, item.text)), item.answer ? this.#answerActions(item) : "");
      case "thought":
        return fold(thinkingTitle(item), textBlocks(item.blocks, item.text));
      case "retry":
        return fold(retryTitle(item), [h("p", {}, "What this attempt had written is not part of the conversation."), ...textBlocks([], item.text)]);
      case "tool": {
        const card = h("tool-card", {});
        card.show(item, this.#id);
        return card;
      }
      default: {
        const buttons = item.canRetry ? h("div", { class: "buttons" }, h("button", { class: "b sm", onclick: () => this.#regenerate() }, "Try again"),
          item.entry && h("button", { class: "b q sm", onclick: () => this.#inspect(item.entry) }, "Open request")) : "";
        return h("div", { class: "note", role: item.isBad ? "alert" : null }, icon(item.icon ?? "dots", item.isBad ? "bad" : ""), h("p", {}, item.title ? h("b", {}, item.title) : "", item.title ? " " : "", item.text), buttons);
      }
    }
  }

  #edit(item) {
    this.#composer.edit(item.text, headBefore(this.#branch, item.entry));
    this.#composer.attach(Promise.all(item.files.filter((file) => !file.url).map((file) => download(file, this.#id))));
  }

  #answerActions(item) {
    const { meta } = item.answer.payload;
    const usage = meta?.usage;
    const facts = [meta?.model?.model, meta?.durationMs && duration(meta.durationMs), usage?.outputTokens && `${usage.outputTokens} tokens`];
    return h("div", { class: "acts" }, h("span", { class: "hid" },
      action("copy", "Copy answer", async (event) => { const button = event.currentTarget; copy(item.text || (await this.#source(item.answer)), button); }),
      action("again", "Regenerate", () => this.#regenerate(item.answer)),
      popButton({ class: "b q sm ic", "aria-label": "Answer again with another model", title: "Answer again with…" }, [icon("fork")],
        (close) => modelOptions(this.#models, this.#details.model, (model) => { close(); this.#regenerate(item.answer, model); }), "above start"),
      action("request", "Open the request", () => this.#inspect(item.answer))),
      h("span", { class: "hid meta num" }, facts.filter(Boolean).join(" · ")));
  }

  /** The text of an answer that arrived as it was written. */
  async #source(entry) {
    const page = await get(sessionPath(this.#id, "/entries"), { before: entry.seq + 1, limit: 1, head: this.#head });
    return page.items[0].payload.parts.filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n\n");
  }

  #inspect(entry) {
    this.dispatchEvent(new CustomEvent("inspect-request", { bubbles: true, detail: entry.id }));
  }

  /** Answer the message before this answer again, on a branch; without an answer, the last message. */
  async #regenerate(answer = null, model = null) {
    const prompts = items(this.#branch).filter((item) => item.type === "you" && !item.queued && this.#isPrompt(item.entry) && (!answer || item.entry.seq < answer.seq));
    const prompt = prompts.at(-1);
    if (!prompt) return;
    try {
      const attachments = await Promise.all(prompt.files.filter((file) => !file.url).map(async (file) => encoded(await download(file, this.#id))));
      await this.#send({ how: "send", text: prompt.text, attachments, head: headBefore(this.#branch, prompt.entry), model, isAgain: true });
    } catch (error) {
      this.#composer.failed(error.message);
    }
  }

  /** The other branches that begin where this message stands. */
  #fillBranches(element, item) {
    const start = this.#branch.indexOf(item.entry);
    const fork = (this.#details.forks ?? []).findLast(({ entryId }) => {
      const at = this.#branch.findIndex((entry) => entry.id === entryId);
      return at >= 0 && at <= start && !this.#branch.slice(at, start).some((entry) => entry.kind === "message");
    });
    element.hidden = !fork;
    if (!fork) return;
    const { heads, index } = fork;
    const go = (step) => () => {
      const head = heads[index + step];
      if (head) this.open(this.#id, head === this.#details.tail.entryId ? null : head).then(() => this.#list.querySelector(`[data-step="${step}"]`)?.focus());
    };
    const step = (name, label, by) => h("button", { type: "button", class: "b q sm ic", "aria-label": label, "data-step": String(by), "aria-disabled": String(!heads[index + by]), onclick: go(by) }, icon(name, "s"));
    if (element.dataset.place === `${index} ${heads.join()}`) return;
    element.dataset.place = `${index} ${heads.join()}`;
    element.replaceChildren(step("left", "Previous branch", -1), h("span", { class: "num" }, `${index + 1} / ${heads.length}`), step("right", "Next branch", 1),
      action("columns", "Compare branches", () => this.#emit("compare-branches")));
  }

  /** Whether a run began with this message. A message that joined a live run was queued earlier on the same
   * branch: a branch between the two would deliver it again. */
  #isPrompt(entry) {
    return !entry.payload.meta?.requestId;
  }

  /** The stored answer takes over what arrived: the elements of its texts if they are complete, else their state. */
  #keepAnswer(entry) {
    this.#live.forEach(({ element, text, thought }, index) => {
      const key = `${entry.id}/${index}`;
      text?.end();
      if (entry.isShown && text) {
        this.#shown.set(key, element);
        const time = entry.payload.parts[index]?.payload.time;
        if (thought) write(element.querySelector("summary span"), time?.start && time?.end ? `Thought for ${duration(new Date(time.end) - new Date(time.start))}` : "Thinking");
      } else if (thought?.open) this.#unfolded.add(key);
    });
  }

  #grow(changes) {
    const wasAtEnd = this.#isAtEnd();
    for (const [index, ...growth] of changes) {
      if (index === undefined) this.#clearAnswer();
      else if (growth[0] === null) this.#startPart(index, growth.slice(1));
      else this.#live[index]?.grow(growth);
    }
    if (this.#live.length && !this.#sending) this.#do(null);
    if (wasAtEnd) this.#toEnd();
  }

  #startPart(index, [kind, id, name]) {
    if (kind === "call") {
      const card = this.#answer.appendChild(h("tool-card", {}));
      let raw = "";
      const grow = (pieces) => {
        raw += pieces.join("");
        card.show({ name, id, state: "writing", raw }, this.#id);
      };
      grow([]);
      this.#live[index] = { element: card, grow };
      return;
    }
    const say = h("div", { class: "say" });
    const text = new GrowingText(say);
    const thought = kind === "thinking" && fold("Thinking…", []);
    if (thought) thought.lastChild.replaceWith(say);
    const element = thought || h("section", { class: "said" }, say);
    this.#answer.append(element);
    this.#live[index] = { element, text, thought, grow: (growth) => text.grow(growth) };
  }

  #clearAnswer() {
    this.#live = [];
    this.#answer.replaceChildren();
    if (this.#sending) this.#answer.append(this.#sending.element);
  }

  /** Show a message that is on its way, before the server has it. */
  #showSending(text, attachments) {
    const names = attachments.map((file) => h("span", {}, icon("file", "s"), file.name));
    const element = h("section", { class: "you sending", "aria-label": "You, sending" }, names.length ? h("div", { class: "files" }, names) : "", text ? h("div", { class: "text plain", dir: "auto" }, text) : "");
    this.#sending = { element, after: this.#branch.at(-1)?.seq ?? 0 };
    if (!this.#id) this.#list.replaceChildren();
    this.#answer.append(element);
    this.#do({ text: "Sending…", since: new Date(now()).toISOString() });
    this.#toEnd();
  }

  #sent() {
    this.#sending?.element.remove();
    this.#sending = null;
  }

  #isAtEnd() {
    return this.#talk.scrollHeight - this.#talk.scrollTop - this.#talk.clientHeight < 80;
  }

  #toEnd() {
    this.#talk.scrollTop = this.#talk.scrollHeight;
  }

  /** Draw what comes before, and load more of it if necessary. */
  async #showEarlier() {
    const isLoaded = items(this.#branch).filter((item) => !item.queued).length > this.#most;
    if (!isLoaded && !(await this.#loadEarlier())) return;
    const height = this.#talk.scrollHeight;
    this.#most += DRAWN;
    this.#draw();
    this.#talk.scrollTop += this.#talk.scrollHeight - height;
  }

  /** Load a page of earlier entries; false if that fails, or another session is shown by then. */
  #loadEarlier() {
    this.#loading ??= this.#requestEarlier().finally(() => { this.#loading = null; });
    return this.#loading;
  }

  async #requestEarlier() {
    const [turn, before] = [this.#turn, this.#branch[0].seq];
    const page = await get(sessionPath(this.#id, "/entries"), { before, limit: PAGE, html: 1, head: this.#head }).catch(() => null);
    if (!page || turn !== this.#turn || before !== this.#branch[0].seq) return false;
    this.#branch = [...page.items, ...this.#branch];
    this.#earlier = page.cursor;
    return true;
  }

  // -- acting

  async #send({ how, text, attachments, head, model, mode, isAgain }) {
    const isNew = !this.#id;
    const from = head ?? this.#head;
    const state = this.#runState();
    if (state === "idle" && !isAgain) this.#showSending(text, attachments);
    const toLive = () => this.#request({ type: how === "queue" ? "queue" : "steer", text, attachments });
    try {
      if (state !== "idle" && head === null) {
        await toLive();
      } else {
        if (state !== "idle") throw new Error("A run is live. Stop it before you begin a branch.");
        const id = this.#id || (await get("me")).prefix + randomId(); // created together with the run
        const chosen = model && ((isNew && model !== this.#models[0]?.name) || isAgain) ? { model } : {};
        const agent = isNew ? { ...(this.#agent && { agent: this.#agent }), ...(mode && mode !== "ask" && { mode }) } : {};
        const body = { text, attachments, ...agent, ...chosen, ...(from ? { head: from } : {}) };
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
      if (!isAgain) this.#composer.sent();
      this.#toEnd();
      this.#emit("listed");
    } catch (error) {
      this.#sent();
      this.#showState();
      if (isAgain) this.#composer.failed(error.message);
      else this.#composer.unsent(error.message);
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

  async #switchMode(mode) {
    if (!this.#id) return; // the first run begins in it
    await post(sessionPath(this.#id, "/mode"), { mode }).catch((error) => this.#composer.failed(error.message));
    await this.#refresh();
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

function action(name, label, act, kind = "") {
  return h("button", { type: "button", class: `b q sm ic ${kind}`, "aria-label": label, title: label, onclick: act }, icon(name));
}

function fold(title, content) {
  return h("details", { class: "thought" }, h("summary", {}, icon("right", "s"), h("span", {}, title)), h("div", { class: "say" }, content));
}

/** Move elements without losing the selection, the focus and the places to which blocks in them are scrolled. */
function keepingPlace(element, move) {
  const { anchorNode, anchorOffset, focusNode, focusOffset } = getSelection();
  const isSelected = element.contains(anchorNode) || element.contains(focusNode);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = [...element.querySelectorAll("pre, .wide")].filter((block) => block.scrollLeft || block.scrollTop).map((block) => [block, block.scrollLeft, block.scrollTop]);
  move();
  if (isSelected && anchorNode.isConnected && focusNode.isConnected) getSelection().setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
  for (const [block, left, top] of scrolled) block.scrollTo(left, top);
}

function retryTitle({ times, reason }) {
  return `Retried ${times === 1 ? "once" : `${times} times`}: ${reason}`;
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
