// The page as a whole: signing in, which session is open, drawers and keys.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import "./run-inspector.js";
import "./session-list.js";
import "./session-view.js";

class BartackApp extends HTMLElement {
  #list = null;
  #view = null;
  #inspector = null;
  #columns = null;

  async connectedCallback() {
    window.addEventListener("hashchange", () => this.#route());
    window.addEventListener("keydown", (event) => this.#key(event));
    this.addEventListener("signed-out", () => this.#signedOut());
    this.addEventListener("toggle-list", () => this.#columns.classList.toggle("listing"));
    this.addEventListener("click", (event) => this.#leaveList(event.target));
    this.addEventListener("toggle-inspector", () => this.#toggleInspector());
    this.addEventListener("listed", () => this.#list.refresh());
    this.addEventListener("changed", () => this.#inspector?.changed());
    await this.#start();
  }

  async #start() {
    const given = new URLSearchParams(location.hash.slice(1));
    const code = given.get("code");
    const session = given.get("session");
    try {
      if (code) {
        const rest = session ? `#session=${encodeURIComponent(session)}` : "";
        history.replaceState(null, "", location.pathname + rest); // keep the code out of the history and the address bar
        await post("login", { code });
      }
      await get("me");
    } catch (error) {
      if (code && error.status === 401 && (await get("me").then(() => true, () => false))) return this.#show();
      return error.status === 401 ? this.#signedOut(Boolean(code)) : this.#away(error);
    }
    this.#show();
  }

  #show() {
    this.#inspector = null;
    this.#list = h("session-list", {});
    this.#view = h("session-view", {});
    this.#columns = h("div", { class: "columns" }, this.#list, this.#view);
    this.replaceChildren(this.#columns);
    this.#route();
  }

  #route() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    if (parameters.get("code")) return void this.#start();
    if (!this.#view) return;
    const id = parameters.get("session") ?? "";
    this.#columns.classList.remove("listing");
    this.#list.select(id);
    this.#view.open(id);
  }

  /** Close the session drawer after a choice in it, even of the current session, or a click outside it. */
  #leaveList(target) {
    const stays = target.closest(".drawer") || (target.closest("session-list") && !target.closest("a, .brand button"));
    if (!stays) this.#columns?.classList.remove("listing");
  }

  #toggleInspector() {
    if (this.#inspector) {
      this.#inspector.remove();
      this.#columns.classList.remove("wide");
      this.#inspector = null;
    } else {
      this.#inspector = h("run-inspector", {});
      this.#inspector.view = this.#view;
      this.#columns.append(this.#inspector);
    }
    this.#columns.classList.toggle("inspecting", this.#inspector !== null);
  }

  #signedOut(wasUsed = false) {
    this.#view = null;
    this.replaceChildren(h("main", { class: "words" },
      h("h1", {}, wasUsed ? "This link has been used" : "Not signed in"),
      h("p", {}, "If ", h("code", {}, "bartack serve"), " is running, open the last link that it printed. Each link signs in one browser, once.")));
  }

  #away(error) {
    this.replaceChildren(h("main", { class: "words" },
      h("h1", {}, "The server cannot be reached"),
      h("p", {}, `${error.message} If only the connection is down, runs continue on the server.`),
      h("button", { onclick: () => this.#start() }, "Try again")));
    setTimeout(() => this.#view || this.#start(), 3000);
  }

  #key(event) {
    if (!this.#view || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.repeat) return; // holding a key down must not repeat a decision
    const field = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key === "Escape") {
      if (this.#columns.classList.contains("listing")) return this.#columns.classList.remove("listing");
      if (this.#view.pendingCard()?.back()) return;
      if (!field || field.matches("#message")) this.#view.stop(); // in other fields, Escape closes a list or clears the search
      return;
    }
    if (field) return;
    const card = this.#view.pendingCard();
    const act = {
      "/": () => this.#list.focusSearch(),
      i: () => this.#toggleInspector(),
      a: () => card?.decide("approve"),
      d: () => card?.decide("deny"),
      e: () => card?.edit(),
    }[event.key.toLowerCase()];
    if (act) {
      event.preventDefault();
      act();
    }
  }
}
customElements.define("bartack-app", BartackApp);
