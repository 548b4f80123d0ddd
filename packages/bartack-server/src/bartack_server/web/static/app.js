// The page as a whole: signing in, which session is open, drawers and keys.

import { get, post, remove, sessionPath } from "./api.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { closePopover } from "./popover.js";
import "./run-inspector.js";
import "./session-list.js";
import "./session-view.js";

const UNDO_MS = 6000;

class BartackApp extends HTMLElement {
  #list = null;
  #view = null;
  #inspector = null;
  #columns = null;

  async connectedCallback() {
    window.addEventListener("hashchange", () => this.#route());
    window.addEventListener("keydown", (event) => this.#key(event));
    this.addEventListener("signed-out", () => this.#signedOut());
    this.addEventListener("toggle-list", () => this.#toggleList(true));
    this.addEventListener("click", (event) => this.#leaveDrawer(event.target));
    window.matchMedia("(max-width: 1180px)").addEventListener("change", () => this.#showDrawers());
    window.matchMedia("(max-width: 860px)").addEventListener("change", () => this.#showDrawers());
    this.addEventListener("inspect-request", (event) => this.#openInspector().showRequest(event.detail));
    this.addEventListener("compare-branches", () => this.#openInspector().compare());
    this.addEventListener("delete-session", (event) => this.#delete(event.detail));
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
    this.#columns = h("div", { class: "columns" }, this.#list, this.#view, h("div", { class: "scrim" }));
    this.replaceChildren(this.#columns);
    this.#route();
  }

  #route() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    if (parameters.get("code")) return void this.#start();
    if (!this.#view) return;
    const id = parameters.get("session") ?? "";
    this.#toggleList(false);
    this.#list.select(id);
    const found = parameters.get("entry");
    if (found) this.#view.openAt(id, found, Number(parameters.get("seq")));
    else this.#view.open(id);
  }

  /** Close a drawer after a choice in it, even of the current session, or a click outside it. */
  #leaveDrawer(target) {
    if (target.closest(".scrim")) {
      if (this.#columns.classList.contains("listing")) this.#toggleList(false);
      else this.#toggleInspector();
    } else if (target.closest("session-list :is(a, .brand button)")) this.#toggleList(false);
  }

  #toggleList(is) {
    if (!this.#columns) return;
    const was = this.#columns.classList.contains("listing");
    this.#columns.classList.toggle("listing", is);
    this.#showDrawers();
    if (is) this.#list.querySelector("a, button")?.focus();
    else if (was) this.querySelector(".drawer")?.focus();
  }

  /** What is behind an open drawer cannot be reached. */
  #showDrawers() {
    if (!this.#columns) return;
    const isListing = this.#columns.classList.contains("listing") && window.matchMedia("(max-width: 860px)").matches;
    const isInspecting = this.#inspector !== null && window.matchMedia("(max-width: 1180px)").matches;
    this.querySelector("main.session")?.toggleAttribute("inert", isListing || isInspecting);
    this.#list.toggleAttribute("inert", isInspecting && !isListing);
    this.#inspector?.toggleAttribute("inert", isListing);
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
    this.#showDrawers();
  }

  #openInspector() {
    if (!this.#inspector) this.#toggleInspector();
    return this.#inspector;
  }

  /** Delete a session, after some time in which that can be undone. */
  #delete(id) {
    this.#list.hide(id, true);
    if (new URLSearchParams(location.hash.slice(1)).get("session") === id) location.hash = "";
    const finish = async () => {
      clearTimeout(timer);
      window.removeEventListener("pagehide", finish);
      toast.remove();
      await remove(sessionPath(id)).catch((error) => this.#tell(`The session was not deleted: ${error.message}`));
      this.#list.hide(id, false);
    };
    const timer = setTimeout(finish, UNDO_MS);
    window.addEventListener("pagehide", finish);
    const undo = () => {
      clearTimeout(timer);
      window.removeEventListener("pagehide", finish);
      toast.remove();
      this.#list.hide(id, false);
      location.hash = `session=${encodeURIComponent(id)}`;
    };
    const toast = this.#tell("Session deleted", h("button", { class: "b sm", onclick: undo }, icon("undo", "s"), "Undo"));
  }

  #tell(text, button = null) {
    const toast = h("div", { class: "toast", role: "status" }, h("span", {}, text), button);
    this.append(toast);
    if (!button) setTimeout(() => toast.remove(), UNDO_MS);
    return toast;
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
      h("button", { class: "b", onclick: () => this.#start() }, "Try again")));
    setTimeout(() => this.#view || this.#start(), 3000);
  }

  #key(event) {
    if (!this.#view || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.repeat) return; // holding a key down must not repeat a decision
    const field = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key === "Escape") {
      if (closePopover()) return;
      if (this.#columns.classList.contains("listing")) return this.#toggleList(false);
      if (this.#inspector && window.matchMedia("(max-width: 1180px)").matches) return this.#toggleInspector();
      if (this.#view.pendingCard()?.back()) return;
      if (!field || field.matches("#message")) this.#view.stop(); // in other fields, Escape closes a list or clears the search
      return;
    }
    if (field) return;
    const card = this.#view.pendingCard();
    const act = {
      "/": () => this.#list.focusSearch(),
      i: () => this.#toggleInspector(),
      n: () => { location.hash = ""; },
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
