// What the page shows before a session has begun: what it can be, and what it begins with.

import { h, place, visible } from "./dom.js";

/** The agent brings its model, its tools and its directory. `choose` is called with the name of another one. */
export function newSession(agents, modelButton, choose) {
  const setup = h("dl", { class: "setup" });
  const select = h("select", { "aria-label": "Agent", onchange: () => { choose(select.value); draw(); } }, agents.map(({ name }) => h("option", {}, name)));
  const draw = () => {
    const agent = agents.find(({ name }) => name === select.value);
    const rows = [["Agent", agents.length > 1 ? select : agent.name], ["Model", modelButton],
      ["Directory", agent.directory && h("code", {}, visible(agent.directory))], ["Tools", String(agent.tools)]];
    place(setup, rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  };
  if (agents.length) draw();
  return h("div", { class: "hello" }, h("h1", {}, "What should be done?"),
    h("p", {}, "Write a message to start a session. Everything is stored as it happens: you can stop, branch, change the model or close this window at any time."),
    agents.length ? setup : "");
}
