// Icons on a grid of 16 pixels, drawn as strokes in the colour of the text.

import { s } from "./dom.js";

const PATHS = {
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h6.5",
  plus: "M8 3.2v9.6M3.2 8h9.6",
  search: "M11.2 6.8a4.4 4.4 0 1 1-8.8 0 4.4 4.4 0 0 1 8.8 0zM10.1 10l3.6 3.6",
  settings: "M2.5 5h5.2M11.3 5h2.2M2.5 11h2.2M8.3 11h5.2M9.5 3.2v3.6M6.5 9.2v3.6",
  copy: "M5.6 5.6V3.4a.9.9 0 0 1 .9-.9h6.1a.9.9 0 0 1 .9.9v6.1a.9.9 0 0 1-.9.9h-2.2M3.4 5.6h6.1a.9.9 0 0 1 .9.9v6.1a.9.9 0 0 1-.9.9H3.4a.9.9 0 0 1-.9-.9V6.5a.9.9 0 0 1 .9-.9z",
  check: "M3 8.6 6.3 12 13 4.8",
  cross: "M4 4l8 8M12 4l-8 8",
  right: "M6 3.6 10.4 8 6 12.4",
  left: "M10 3.6 5.6 8l4.4 4.4",
  down: "M3.6 6 8 10.4 12.4 6",
  pencil: "M10.6 3 13 5.4 5.6 12.8 3 13.2l.3-2.6z",
  again: "M12.9 8.2a4.9 4.9 0 1 1-1.5-3.7M12.9 2.6v2.5h-2.5",
  fork: "M4.6 5.4v5.2M6 4a1.4 1.4 0 1 1-2.8 0A1.4 1.4 0 0 1 6 4zM6 12a1.4 1.4 0 1 1-2.8 0A1.4 1.4 0 0 1 6 12zM12.8 4a1.4 1.4 0 1 1-2.8 0 1.4 1.4 0 0 1 2.8 0zM11.4 5.4c0 3.2-6.8 2-6.8 5.2",
  request: "M5.4 4 2 8l3.4 4M10.6 4 14 8l-3.4 4",
  clip: "M12.8 7.4 7.6 12.6a3.1 3.1 0 0 1-4.4-4.4l5.5-5.5a2.1 2.1 0 0 1 3 3L6.3 11a1 1 0 0 1-1.5-1.5l4.8-4.8",
  up: "M8 13V3.4M3.9 7.5 8 3.3l4.1 4.2",
  stop: "M4.6 4.6h6.8v6.8H4.6z",
  wrap: "M2.5 4h11M2.5 8h8.3a2 2 0 0 1 0 4H8.4M9.9 10.4 8.3 12l1.6 1.6M2.5 12h2.8",
  terminal: "M3.4 4.6 6.4 7.6l-3 3M8.4 11.4h4.2",
  file: "M4 2.5h4.8L12 5.7v7.8H4zM8.8 2.5v3.2H12",
  ask: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM6.4 6.6a1.6 1.6 0 1 1 2.4 1.4c-.6.3-.8.7-.8 1.2M8 11.2v.1",
  alert: "M8 2.6 14 13H2zM8 6.6v3M8 11.2v.1",
  offline: "M2.6 2.6l10.8 10.8M2 6.6a9 9 0 0 1 3-1.9M8.2 4A9 9 0 0 1 14 6.6M4.6 9.3A5 5 0 0 1 7 7.9M8 12v.1",
  queue: "M2.5 4.5h11M2.5 8h6M2.5 11.5h6M11.6 7.8v5.1M9.6 11l2 2 2-2",
  steer: "M3 13V9.2A3.2 3.2 0 0 1 6.2 6H13M10 3l3 3-3 3",
  pin: "M6 2.6h4l-.5 3.9 2 2.5h-7l2-2.5zM8 9v4.4",
  panel: "M2.5 3.5h11v9h-11zM10 3.5v9",
  columns: "M2.5 3.5h4.5v9H2.5zM9 3.5h4.5v9H9z",
  dots: "M3.6 8v.1M8 8v.1M12.4 8v.1",
  trash: "M3 4.6h10M6 4.6v-2h4v2M4.5 4.6l.6 8.8h5.8l.6-8.8",
  expand: "M9.6 2.6h3.8v3.8M13.4 2.6 9 7M6.4 13.4H2.6V9.6M2.6 13.4 7 9",
  stopped: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0zM6.2 6.2h3.6v3.6H6.2z",
  undo: "M5.6 3 2.6 6l3 3M2.6 6h6.9a3.5 3.5 0 0 1 0 7H6",
  download: "M8 2.6v7M5 6.8l3 3 3-3M2.5 13.4h11",
  tool: "M9 7l4.4-4.4M7 9l-4 4M10.6 2.6l2.8 2.8M3 10.6 5.4 13M9.4 6.6l-2.8 2.8",
  usage: "M3.4 13.2V8.6M8 13.2V2.8M12.6 13.2V6",
  model: "M2 11.4 4.2 5l2.5 6.4L9.2 5l2.5 6.4L14 5",
};

/** An icon that says nothing by itself: the text or the label next to it does. */
export function icon(name, kind = "") {
  return s("svg", { class: `i ${kind}`.trim(), viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}

const MARK = "M2 12 5 2 8 12 11 2 14 12 17 2 20 12 23 2";

/** The mark of the product; as a stitch it is sewn while something is live. */
export function mark(kind) {
  return s("svg", { class: kind, viewBox: "0 0 26 14", "aria-hidden": "true" }, s("path", { d: MARK }));
}
