// The models to choose from, grouped by their provider.

import { h } from "./dom.js";
import { icon } from "./icons.js";

const MANY = 8; // with more than this, there is a filter

/** The content of the popover. `choose` is called with the name of a model. */
export function modelOptions(models, current, choose) {
  const list = h("div", {});
  const draw = (words) => {
    const groups = Map.groupBy(models.filter((model) => model.toLowerCase().includes(words)), (model) => model.split(":")[0]);
    list.replaceChildren(...[...groups].flatMap(([provider, names]) => [h("h2", {}, provider), ...names.map(option)]));
    if (!groups.size) list.append(h("h2", {}, "No such model is offered here."));
  };
  const option = (model) => h("button", { type: "button", class: "opt", "aria-current": model === current ? "true" : null, onclick: () => choose(model) },
    h("span", {}, model === current ? icon("check") : ""), h("span", {}, model.replace(/^[^:]*:/, "")));
  draw("");
  if (models.length <= MANY) return [list];
  const filter = h("input", { class: "field", type: "search", "aria-label": "Filter models", placeholder: `Filter ${models.length} models`, oninput: () => draw(filter.value.trim().toLowerCase()) });
  return [h("div", { class: "find" }, icon("search"), filter), list];
}
