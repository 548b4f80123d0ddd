// The timeline of a run: model calls, tools, retries and waits, from the timestamps of entries. No DOM access.

import { hasFailed } from "./conversation.js";

/** The runs of a branch, in order, each with its entries. A decision that was posted from outside names no run; it
 * belongs to the one that asked. */
export function runs(branch) {
  const entriesOf = new Map();
  const asking = new Map(); // the id of a call -> the run that asked about it last
  for (const entry of branch) {
    const { kind, payload } = entry;
    const runId = entry.runId ?? (kind === "approval_decided" ? asking.get(payload.toolCallId) : undefined);
    if (!runId) continue;
    if (kind === "approval_required") asking.set(payload.toolCallId, runId);
    if (!entriesOf.has(runId)) entriesOf.set(runId, []);
    entriesOf.get(runId).push(entry);
  }
  return [...entriesOf.values()];
}

/** When the first part of an answer began; undefined if unknown. */
function firstToken(payload, at) {
  const starts = payload.parts.map((part) => part.payload.time?.start).filter(Boolean);
  return starts.length ? Math.min(...starts.map(at)) : undefined;
}

/** The bars of one run: {name, kind, start, end, first}, in milliseconds since its start; an open one ends `now`. If
 * no tool is running and no approval is pending, a model call is open. */
export function bars(entries, now) {
  const zero = new Date(entries[0].timestamp).getTime();
  const at = (time) => new Date(time).getTime() - zero;
  const shown = [];
  const open = new Map();
  let model = 0;
  for (const entry of entries) {
    const { kind, payload } = entry;
    if (kind === "message" && payload.role === "assistant") {
      const start = at(payload.timestamp ?? entry.timestamp);
      const name = `model ${(payload.meta?.modelCallIndex ?? model) + 1}`;
      model = (payload.meta?.modelCallIndex ?? model) + 1;
      shown.push({ name, kind: payload.meta?.aborted ? "cut" : "model", start, end: start + (payload.meta?.durationMs ?? at(entry.timestamp) - start), first: firstToken(payload, at), usage: payload.meta?.usage, entry });
    } else if (kind === "stream_failed") {
      const end = at(entry.timestamp);
      const name = payload.modelCallIndex === undefined ? "summary" : `model ${payload.modelCallIndex + 1}`;
      shown.push({ name, kind: "cut", start: Math.max(0, end - (payload.durationMs ?? 0)), end, why: payload.error.message || payload.error.errorCode, entry: payload.modelCallIndex === undefined ? undefined : entry });
    } else if (kind === "approval_required") open.set(`ask/${payload.toolCallId}`, { name: "approval", kind: "wait", start: at(entry.timestamp) });
    else if (kind === "approval_decided") close(`ask/${payload.toolCallId}`, at(entry.timestamp));
    else if (kind === "tool_started") open.set(payload.toolCallId, { name: payload.toolName, kind: "tool", start: at(entry.timestamp) });
    else if (kind === "message" && payload.role === "tool") {
      for (const part of payload.parts) close(part.payload.toolCallId, at(entry.timestamp), hasFailed(part.payload));
    }
  }
  const last = entries.at(-1);
  if (last.kind !== "run_ended" && !open.size) open.set("model", { name: `model ${model + 1}`, kind: "model", start: at(last.timestamp) });
  const end = last.kind === "run_ended" ? at(last.timestamp) : Math.max(now - zero, at(last.timestamp));
  for (const bar of open.values()) shown.push({ ...bar, end, isOpen: last.kind !== "run_ended" });
  return shown.sort((one, two) => one.start - two.start);

  function close(key, end, isFailed) {
    const bar = open.get(key);
    open.delete(key);
    if (bar) shown.push({ ...bar, end, kind: isFailed ? "failed" : bar.kind });
  }
}
