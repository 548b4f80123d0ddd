// A state table as a diagram: states in columns by their distance from the first one, arrows between them, one lit.

import { h, s } from "./dom.js";

const BOX = { width: 118, height: 26, gapX: 46, gapY: 18, margin: 34 };

/** The columns of a table: a state is one column after the first that leads to it; some final states are one further. */
export function columns(states) {
  const names = Object.keys(states);
  const columnOf = new Map([[names[0], 0]]);
  const queue = [names[0]];
  for (const name of queue) {
    for (const next of Object.values(states[name])) {
      if (columnOf.has(next)) continue;
      columnOf.set(next, columnOf.get(name) + 1);
      queue.push(next);
    }
  }
  for (const name of queue.slice(1)) {
    const column = columnOf.get(name);
    const isEnd = Object.values(states[name]).every((next) => next === name || columnOf.get(next) < column);
    const hasPeer = queue.some((one) => columnOf.get(one) === column && one !== name && Object.values(states[one]).includes(name));
    if (isEnd && hasPeer) columnOf.set(name, column + 1);
  }
  const found = [];
  for (const name of [...queue, ...names.filter((one) => !columnOf.has(one))]) (found[columnOf.get(name) ?? 0] ??= []).push(name);
  return found;
}

/** One arrow for each pair of states, with all events that lead from one to the other. */
export function arrows(states) {
  const found = new Map();
  for (const [from, row] of Object.entries(states)) {
    for (const [event, to] of Object.entries(row)) {
      if (from === to) continue; // self-loops have no arrow; the text lists them
      const key = `${from} ${to}`;
      found.set(key, { from, to, events: [...(found.get(key)?.events ?? []), event] });
    }
  }
  return [...found.values()];
}

export function stateDiagram(table) {
  const all = columns(table.states);
  const places = new Map();
  const rows = Math.max(...all.map((column) => column.length));
  const columnOf = new Map(all.flatMap((column, x) => column.map((name) => [name, x])));
  const steps = arrows(table.states).map(({ from, to }) => columnOf.get(to) - columnOf.get(from));
  const top = BOX.margin + (steps.some((step) => step > 1) ? 20 : 0); // arrows that skip a column run above the boxes,
  const below = BOX.margin + (steps.some((step) => step < 0) ? 24 : 0); // and backward ones below
  all.forEach((column, x) => column.forEach((name, y) => {
    const shift = ((rows - column.length) * (BOX.height + BOX.gapY)) / 2;
    places.set(name, { x: BOX.margin + x * (BOX.width + BOX.gapX), y: top + shift + y * (BOX.height + BOX.gapY), column: x });
  }));
  const width = 2 * BOX.margin + all.length * BOX.width + (all.length - 1) * BOX.gapX;
  const height = top + rows * BOX.height + (rows - 1) * BOX.gapY + below;
  const id = `arrow-${table.name}`;
  const head = s("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0 8 4 0 8z" }));
  const lines = arrows(table.states).map((arrow) => {
    const isNext = arrow.from === table.current;
    return s("path", { class: isNext ? "edge next" : "edge", d: route(places.get(arrow.from), places.get(arrow.to), height), "marker-end": `url(#${id})` },
      s("title", {}, `${arrow.from} → ${arrow.to}: ${arrow.events.join(", ")}`));
  });
  const boxes = [...places].map(([name, { x, y }]) => s("g", { class: name === table.current ? "state lit" : "state" },
    s("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    s("text", { x: x + BOX.width / 2, y: y + BOX.height / 2 + 4, "text-anchor": "middle" }, name)));
  const label = table.current ? `States of ${table.title}; now ${table.current}` : `States of ${table.title}`;
  return h("div", { class: "diagram", tabindex: "0", role: "group", "aria-label": label },
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, s("defs", {}, head), ...lines, ...boxes));
}

function route(from, to, height) {
  const middle = BOX.height / 2;
  if (from.column === to.column) { // an arc: down on the right, up on the left
    const side = to.y > from.y ? 1 : -1;
    const x = from.x + (side > 0 ? BOX.width : 0);
    const far = x + side * Math.min(30, 10 + Math.abs(to.y - from.y) / 6);
    return `M${x} ${from.y + middle + side * 5} C${far} ${from.y + middle} ${far} ${to.y + middle} ${x} ${to.y + middle - side * 5}`;
  }
  if (to.column === from.column + 1) {
    const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + middle, to.x, to.y + middle];
    return `M${x1} ${y1} C${x1 + 22} ${y1} ${x2 - 22} ${y2} ${x2} ${y2}`;
  }
  const isBack = to.column < from.column;
  const [x1, x2] = [from.x + BOX.width / 2 + (isBack ? -9 : 9), to.x + BOX.width / 2 + (isBack ? 9 : -9)];
  const [y1, y2] = isBack ? [from.y + BOX.height, to.y + BOX.height] : [from.y, to.y];
  const y = isBack ? height - 5 : 5;
  return `M${x1} ${y1} C${x1} ${y} ${x1} ${y} ${(x1 + x2) / 2} ${y} S${x2} ${y} ${x2} ${y2}`;
}
