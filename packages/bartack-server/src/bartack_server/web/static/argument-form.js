// A form for the arguments of a tool call, generated from its JSON Schema. Values of other types are edited as JSON.

import { parse } from "./api.js";
import { h } from "./dom.js";

class ArgumentForm extends HTMLElement {
  #read = [];

  show(schema, given) {
    const names = [...new Set([...Object.keys(schema.properties ?? {}), ...Object.keys(given)])];
    const fields = names.map((name) => this.#field(name, schema.properties?.[name] ?? {}, given[name], schema.required?.includes(name)));
    const wrong = h("div", { class: "wrong", role: "alert" });
    const decide = () => {
      try {
        const values = Object.fromEntries(this.#read.map((read) => read()).filter(([, value]) => value !== undefined));
        this.dispatchEvent(new CustomEvent("decided", { detail: values }));
      } catch (error) {
        wrong.textContent = error.message;
      }
    };
    this.replaceChildren(...fields, wrong, h("div", { class: "buttons" },
      h("button", { type: "button", class: "b go", onclick: decide }, "Approve with these arguments"),
      h("button", { type: "button", class: "b", onclick: () => this.dispatchEvent(new CustomEvent("cancelled")) }, "Cancel")));
  }

  #field(name, schema, value, isRequired) {
    const label = h("span", {}, h("span", { class: "name" }, name), isRequired ? " (required)" : "", schema.description ? ` — ${schema.description}` : "");
    if (schema.type === "boolean") {
      const box = h("input", { type: "checkbox", checked: value ?? schema.default ?? false });
      this.#read.push(() => [name, value === undefined && box.checked === (schema.default ?? false) ? undefined : box.checked]);
      return h("label", { class: "flag" }, box, label);
    }
    const [input, read] = this.#input(name, schema, value);
    this.#read.push(() => [name, read()]);
    return h("label", {}, label, input);
  }

  #input(name, schema, value) {
    const empty = (text) => text === "" && value === undefined;
    const isKnown = value === undefined || schema.enum?.includes(value);
    if (isKnown && schema.enum?.every((one) => typeof one === "string")) {
      const none = value === undefined ? [h("option", {}, "")] : []; // an argument that is not given has no selected option
      const select = h("select", {}, none, schema.enum.map((one) => h("option", { value: one, selected: one === value }, one)));
      return [select, () => (select.selectedIndex < none.length ? undefined : select.value)];
    }
    if (schema.type === "integer" || schema.type === "number") {
      const input = h("input", { type: "text", inputmode: "decimal" });
      input.value = value === undefined ? "" : JSON.stringify(value);
      return [input, () => (empty(input.value) ? undefined : parsed(input.value, /^-?\d/, `${name} must be a number.`))];
    }
    if (schema.type === "string" || typeof value === "string") {
      const isLong = String(value ?? "").length > 60 || String(value ?? "").includes("\n");
      const input = isLong ? h("textarea", {}) : h("input", { type: "text" });
      input.value = value ?? "";
      return [input, () => (empty(input.value) ? undefined : input.value)];
    }
    const input = h("textarea", {});
    input.value = value === undefined ? "" : JSON.stringify(value, null, 2);
    return [input, () => (empty(input.value) ? undefined : parsed(input.value, /^/, `${name} must be JSON.`))];
  }
}
customElements.define("argument-form", ArgumentForm);

/** The JSON value of a field whose text matches the pattern; throws the problem otherwise. */
function parsed(text, pattern, problem) {
  try {
    if (pattern.test(text.trim())) return parse(text);
  } catch {
    // not JSON
  }
  throw new Error(problem);
}
