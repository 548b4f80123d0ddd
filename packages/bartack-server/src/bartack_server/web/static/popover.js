// A popover below or above its button. It closes with Escape, a click outside and a choice, and returns the focus.

import { h, place } from "./dom.js";

let open = null;

export function closePopover(returnsFocus = true) {
  if (!open) return false;
  const { button, panel, leave } = open;
  open = null;
  panel.remove();
  button.setAttribute("aria-expanded", "false");
  document.removeEventListener("pointerdown", leave, true);
  if (returnsFocus) button.focus();
  return true;
}

/** A button that opens a popover with the content that `fill` returns. */
export function popButton(properties, label, fill, kind = "") {
  const button = h("button", { type: "button", "aria-haspopup": "dialog", "aria-expanded": "false", ...properties }, ...label);
  const holder = h("span", { class: `at ${kind}`.trim() }, button);
  button.addEventListener("click", () => {
    const isOpen = open?.button === button;
    closePopover(false);
    if (isOpen) return;
    const panel = h("div", { class: "pop", role: "dialog", "aria-label": properties["aria-label"] ?? button.textContent });
    const leave = (event) => holder.contains(event.target) || closePopover(false);
    open = { button, panel, leave };
    place(panel, [...fill(() => closePopover())]);
    holder.append(panel);
    const box = panel.getBoundingClientRect();
    if (box.left < 8) panel.style.setProperty("translate", `${8 - box.left}px`);
    if (box.right > innerWidth - 8) panel.style.setProperty("translate", `${innerWidth - 8 - box.right}px`);
    button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", leave, true);
    panel.querySelector("input, button")?.focus();
  });
  return holder;
}
