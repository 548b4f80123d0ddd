// The models to choose from, grouped by their provider, with what they cost.

import { count, h } from "./dom.js";
import { icon } from "./icons.js";

const MANY = 8; // with more than this, there is a filter

/** The content of the popover. `choose` is called with the name of a model. */
export function modelOptions(models, current, choose) {
  const list = h("div", {});
  const draw = (words) => {
    const groups = Map.groupBy(models.filter(({ name }) => name.toLowerCase().includes(words)), ({ name }) => name.split(":")[0]);
    list.replaceChildren(...[...groups].flatMap(([provider, offered]) => [h("h2", {}, provider), ...offered.map(option)]));
    if (!groups.size) list.append(h("h2", {}, "No such model is offered here."));
  };
  const option = ({ name, prices, contextWindow }) => h("button", { type: "button", class: "opt", "aria-current": name === current ? "true" : null, onclick: () => choose(name) },
    h("span", {}, name === current ? icon("check") : ""), h("span", {}, name.replace(/^[^:]*:/, "")), prices && h("span", { class: "num price", title: "Input and output, for a million tokens" }, priceText(prices)),
    contextWindow && h("small", {}, `${count(contextWindow)} context`));
  draw("");
  if (models.length <= MANY) return [list];
  const filter = h("input", { class: "field", type: "search", "aria-label": "Filter models", placeholder: `Filter ${models.length} models`, oninput: () => draw(filter.value.trim().toLowerCase()) });
  return [h("div", { class: "find" }, icon("search"), filter), list];
}

function priceText({ input, output }) {
  if (typeof input !== "number" || typeof output !== "number") return "";
  return input || output ? `$${input} / $${output}` : "free";
}
