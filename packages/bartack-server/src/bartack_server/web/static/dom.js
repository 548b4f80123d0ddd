// Builds elements without parsing markup: strings always become text nodes. Only `rendered` inserts HTML, which the
// server has sanitised; browsers that support Trusted Types enforce this.

const policy = window.trustedTypes?.createPolicy("bartack", { createHTML: (text) => text });

/** A new element: h("button", {class: "go", onclick: send}, "Send"). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** A new SVG element: s("rect", {x: 1, width: 10}). */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Set the children of an element. Children that are already in place are not touched: an element that is removed or
 * replaced loses the focus, the selection and a click in progress. */
export function place(parent, children) {
  const wanted = new Set(children);
  const focused = document.activeElement;
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  children.forEach((child, at) => {
    if (parent.childNodes[at] !== child) parent.insertBefore(child, parent.childNodes[at] ?? null);
  });
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

const placed = new WeakMap(); // an element -> its children by key

/** Give an element one child per value: created once per key, and updated on every call. */
export function each(parent, values, keyOf, make, update = () => {}) {
  const known = placed.get(parent) ?? new Map();
  const children = new Map(values.map((value) => [keyOf(value), known.get(keyOf(value)) ?? make(value)]));
  for (const value of values) update(children.get(keyOf(value)), value);
  placed.set(parent, children);
  place(parent, [...children.values()]);
}

/** Set the text of an element, unless it is unchanged. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An element that contains HTML which the server has sanitised. */
export function rendered(html) {
  const element = document.createElement("div");
  element.innerHTML = policy ? policy.createHTML(html) : html;
  return element;
}

// Controls and formats, blanks that are not spaces, and letters, marks and selectors that look like nothing.
const INVISIBLE = new RegExp(
  "[^\\P{C}\\n\\t]|[\\u2028\\u2029]|[^\\P{Zs} \\u3000]|[\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180d\\u180f\\u2800\\u3164\\ufe00-\\ufe0d\\uffa0]"
  + "|[\\u{e0100}-\\u{e01ef}]|(?<!\\p{Emoji})[\\ufe0e\\ufe0f]", "gu");

/** The text with invisible characters escaped, for anything that a user has to approve. */
export function visible(text) {
  return text.replace(INVISIBLE, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** A session id, shortened if it is long. */
export function shortId(id) {
  return id.length > 24 ? `…${id.slice(-8)}` : id;
}

export function count(number) {
  if (number >= 1_000_000) return `${(number / 1_000_000).toFixed(1)}M`;
  if (number >= 10_000) return `${Math.floor(number / 1000)}k`;
  return number >= 1000 ? `${(number / 1000).toFixed(1)}k` : String(number);
}

/** A number of bytes or characters, as a person reads it. */
export function size(number) {
  return number < 1000 ? `${number} B` : `${number < 10_000 ? (number / 1000).toFixed(1) : Math.round(number / 1000)} KB`;
}

export function money(dollars) {
  return dollars ? `$${dollars.toFixed(dollars < 0.1 ? 3 : 2)}` : "";
}
