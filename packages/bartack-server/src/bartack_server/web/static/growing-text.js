// Text that the server renders: whole, as HTML, or growing, as items. What is finished is never drawn again, so a
// selection, the focus and the place in a scrolled block survive the growth. See markdown.py for the items.

import { h, rendered } from "./dom.js";
import { icon } from "./icons.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const TAGS = new Set("p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a sup div table thead tbody tr th td".split(" "));
const ATTRIBUTES = new Set("start data-language data-task data-note data-footnote align".split(" "));
const NO_CARET = new Set(["TABLE", "THEAD", "TBODY", "TR", "UL", "OL"]);

// -- colours of code, drawn without elements

const colours = new Map("ksncfbdi".split("").map((letter) => [letter, window.Highlight ? new Highlight() : null]));
for (const [letter, ranges] of colours) if (ranges) CSS.highlights.set(`code-${letter}`, ranges);

/** Forget the colours of everything that has been removed from the page. */
export function forgetColours() {
  for (const ranges of colours.values()) {
    for (const range of ranges ?? []) if (!range.startContainer.isConnected) ranges.delete(range);
  }
}

function colour(code, runs) {
  const text = code.firstChild;
  let start = 0;
  for (const [, letter, length] of runs.matchAll(/(\D)(\d+)/g)) {
    const end = Math.min(start + Number(length), text?.length ?? 0);
    if (end > start) colours.get(letter)?.add(new StaticRange({ startContainer: text, startOffset: start, endContainer: text, endOffset: end }));
    start = end;
  }
}

// -- what the page adds to code and tables

export async function copy(text, button) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const before = [...button.childNodes];
  button.replaceChildren(icon(copied ? "check" : "alert"));
  button.title = copied ? "Copied" : "The browser does not allow copying here";
  setTimeout(() => button.replaceChildren(...before), 1500);
}

function codeFrame(pre) {
  const wrap = h("button", { type: "button", class: "b q sm ic", "aria-label": "Wrap lines", title: "Wrap lines", "aria-pressed": "false",
    onclick: () => wrap.setAttribute("aria-pressed", String(frame.classList.toggle("wrap"))) }, icon("wrap"));
  const take = h("button", { type: "button", class: "b q sm ic", "aria-label": "Copy code", title: "Copy", onclick: () => copy(pre.textContent, take) }, icon("copy"));
  const frame = h("div", { class: "code" }, h("header", {}, h("span", {}, pre.dataset.language ?? ""), wrap, take), pre);
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", "Code");
  pre.setAttribute("role", "region");
  return frame;
}

function tableFrame(table) {
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}

/** Each block of a rendered text, or the plain text if the server did not render it. */
export function textBlocks(blocks, text) {
  if (!blocks?.length) return text ? [h("div", { class: "plain" }, text)] : [];
  return blocks.flatMap((html) => {
    const block = rendered(html);
    for (const pre of block.querySelectorAll("pre")) {
      const place = h("span", {});
      pre.replaceWith(place);
      place.replaceWith(codeFrame(pre));
    }
    for (const table of block.querySelectorAll("table")) {
      const place = h("span", {});
      table.replaceWith(place);
      place.replaceWith(tableFrame(table));
    }
    for (const code of block.querySelectorAll("code[data-colours]")) colour(code, code.dataset.colours);
    return [...block.childNodes];
  });
}

/** Show the footnote that a sign refers to. */
export function followNote(event) {
  const label = event.target.closest?.("sup[data-note]")?.dataset.note;
  const note = label && [...event.target.closest(".say").querySelectorAll("[data-footnote]")].find((one) => one.dataset.footnote === label);
  note?.scrollIntoView({ block: "center" });
}

// -- growth

export class GrowingText {
  #items = []; // each with the node to remove if it is cut, and the element in which the text continues after it
  #caret = h("span", { class: "caret", "aria-hidden": "true" });

  constructor(root) {
    this.root = root;
  }

  get #place() {
    return this.#items.at(-1)?.place ?? this.root;
  }

  grow(growth) {
    this.#caret.remove();
    for (const item of growth) this.#add(item);
    if (!NO_CARET.has(this.#place.tagName) && this.#place.namespaceURI !== MATHML) this.#place.append(this.#caret);
  }

  /** The text is complete. */
  end() {
    this.#caret.remove();
  }

  #add(item) {
    const last = this.#items.at(-1);
    if (typeof item === "string") {
      if (last?.text) return last.text.appendData(item);
      const text = document.createTextNode(item);
      const place = this.#place;
      place.append(text);
      this.#items.push({ node: text, text, place });
    } else if (item === 0) {
      this.#items.push({ place: this.#parent() });
    } else if (typeof item[0] === "number") this.#cut(...item);
    else if (item[0] === "#") {
      colour(this.#place, item[1]);
      this.#items.push({ place: this.#place });
    } else this.#open(item[0], item[1] ?? {});
  }

  #parent() {
    const element = this.#place;
    const parent = element.parentElement;
    return parent?.matches?.(".code, .wide") ? parent.parentElement : parent;
  }

  #open(tag, attributes) {
    const isMath = !TAGS.has(tag);
    const element = isMath ? document.createElementNS(MATHML, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (isMath || ATTRIBUTES.has(name)) element.setAttribute(name, value);
      else if (name === "href" && /^(https?:|mailto:)/i.test(value)) {
        element.href = value;
        element.target = "_blank";
        element.rel = "noopener noreferrer nofollow";
      }
    }
    if (tag === "ul" || tag === "ol") element.dir = "auto";
    const place = this.#place;
    const node = tag === "pre" ? codeFrame(element) : tag === "table" ? tableFrame(element) : element;
    place.append(node);
    this.#items.push({ node, place: element });
  }

  #cut(count, length) {
    const text = length ? this.#items[count].text : null;
    for (const { node } of this.#items.splice(text ? count + 1 : count)) node?.remove();
    if (text) text.deleteData(length, text.length - length);
  }
}
