// What all sessions have used, by day, project, agent or model.

import { get } from "./api.js";
import { count, h, money, visible } from "./dom.js";

const GROUPINGS = ["day", "project", "agent", "model"];
const LIMIT = 31; // rows; the latest days, or the largest of the others

/** The content of the popover. */
export function usagePanel() {
  const report = h("div", { class: "usage", role: "status" }, h("div", { class: "skeleton" }, h("i", {}), h("i", {})));
  const buttons = GROUPINGS.map((by) => h("button", { type: "button", role: "radio", onclick: () => show(by) }, `${by[0].toUpperCase()}${by.slice(1)}`));
  async function show(chosen) {
    buttons.forEach((button, at) => button.setAttribute("aria-checked", String(GROUPINGS[at] === chosen)));
    const { items, total, message } = await get("usage", { by: chosen }).catch((error) => error);
    if (buttons[GROUPINGS.indexOf(chosen)].getAttribute("aria-checked") !== "true") return; // another one was chosen since
    if (!items) report.replaceChildren(h("p", { class: "bad" }, message));
    else if (!items.length) report.replaceChildren(h("p", {}, "No session has used a model yet."));
    else report.replaceChildren(table(items, total, chosen));
  }
  show("day");
  return [h("h2", {}, "Usage of all sessions"), h("div", { class: "seg", role: "radiogroup", "aria-label": "Usage by" }, buttons), report];
}

function table(items, total, by) {
  const heads = [by[0].toUpperCase() + by.slice(1), "Sessions", "Tokens", "Cost"];
  const shown = by === "day" ? items.toReversed() : items;
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, shown.slice(0, LIMIT).map((row) => line(row, row.name || "unknown"))), h("tfoot", {}, line(total, "Total")));
}

/** The stored cost or, without one, what the tokens cost at list prices. */
function line({ sessions, spend = {}, pricedUsd, unpriced }, name) {
  const cost = spend.costUsd ? money(spend.costUsd) : pricedUsd ? `≈ ${money(pricedUsd)}${unpriced ? "+" : ""}` : "";
  return h("tr", {}, h("th", { scope: "row", title: name }, visible(name)), [count(sessions), count((spend.inputTokens ?? 0) + (spend.outputTokens ?? 0)), cost].map((text) => h("td", { class: "num" }, text)));
}
