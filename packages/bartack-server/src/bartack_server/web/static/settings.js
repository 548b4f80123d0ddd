// What this browser remembers: theme, density, notifications, and which sessions are pinned or were read.

import { h } from "./dom.js";
import { icon } from "./icons.js";

const KEY = "bartack.";

export function setting(name) {
  return localStorage.getItem(KEY + name) ?? "";
}

export function set(name, value) {
  if (value) localStorage.setItem(KEY + name, value);
  else localStorage.removeItem(KEY + name);
  if (name === "theme" || name === "density") {
    if (value) document.documentElement.dataset[name] = value;
    else delete document.documentElement.dataset[name];
  }
}

/** The ids of the sessions with this mark: "pinned" or "unread". */
export function marked(name) {
  return new Set(JSON.parse(setting(name) || "[]"));
}

export function setMark(name, id, is) {
  const ids = marked(name);
  if (ids.has(id) === is) return;
  if (is) ids.add(id);
  else ids.delete(id);
  set(name, ids.size ? JSON.stringify([...ids]) : "");
}

/** Whether the user asked to be told what happens while they do not look at the page. */
export function mayNotify() {
  return Boolean(setting("notify")) && window.Notification?.permission === "granted";
}

/** Tell the user that something happened in a session. A click shows it. */
export function notify(title, text, id) {
  if (!document.hidden || !mayNotify()) return;
  const notification = new Notification(title, { body: text, tag: `bartack ${id}` });
  notification.onclick = () => {
    window.focus();
    location.hash = `session=${encodeURIComponent(id)}`;
    notification.close();
  };
}

function choice(name, label, values) {
  const buttons = values.map(([value, text]) => h("button", { type: "button", role: "radio", "aria-checked": String(setting(name) === value), onclick: choose(value) }, text));
  function choose(value) {
    return () => {
      set(name, value);
      buttons.forEach((button, at) => button.setAttribute("aria-checked", String(values[at][0] === value)));
    };
  }
  return [h("h2", {}, label), h("div", { class: "seg", role: "radiogroup", "aria-label": label }, buttons)];
}

/** The content of the settings popover. */
export function settingsPanel() {
  const isOn = () => Boolean(setting("notify"));
  const sign = h("span", {}, isOn() ? icon("check") : "");
  const notifications = h("button", { type: "button", class: "opt", role: "switch", "aria-checked": String(isOn()), onclick: async () => {
    const permission = isOn() ? "denied" : await window.Notification?.requestPermission();
    set("notify", permission === "granted" ? "on" : "");
    notifications.setAttribute("aria-checked", String(isOn()));
    sign.replaceChildren(isOn() ? icon("check") : "");
  } }, sign, h("span", {}, "An approval waits, or a run has ended"));
  return [
    ...choice("theme", "Theme", [["", "System"], ["light", "Light"], ["dark", "Dark"]]),
    ...choice("density", "Density", [["", "Comfortable"], ["compact", "Compact"]]),
    h("h2", {}, "Notify me when this window is hidden"), notifications,
    h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, [["Enter", "send"], ["Alt Enter", "queue"], ["Esc", "stop the run"], ["A E D", "approve, edit, deny"], ["/", "search"], ["N", "new session"], ["I", "inspector"]]
      .flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
  ];
}
