// Turns the entries of one branch into the items that the page shows. Pure functions, no DOM access.

const SHOWN_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]); // others are downloads
const ENDS_ANSWER = new Set(["stream_failed", "run_started", "run_ended"]);

export function endsAnswer(entry) {
  return ENDS_ANSWER.has(entry.kind) || (entry.kind === "message" && entry.payload.role === "assistant");
}

/** The branch with the entry appended, cut back to its parent if necessary; null if the entry is on another branch. */
export function extended(branch, entry) {
  if (branch.some((one) => one.id === entry.id)) return branch;
  const last = branch.at(-1);
  if (!last || entry.parentId === last.id || !entry.parentId) return [...branch, entry];
  const at = branch.findIndex((one) => one.id === entry.parentId);
  return at < 0 ? null : [...branch.slice(0, at + 1), entry];
}

/** Whether this entry redacts one that may be on screen. Redacting a queued message only withdraws it. */
export function hides(branch, entry) {
  return entry.kind === "redaction" && branch.find((one) => one.id === entry.payload.entryId)?.kind !== "message_queued";
}

/** The entry to continue from so that this message is replaced: the one before the run that it started. */
export function headBefore(branch, entry) {
  for (let at = branch.indexOf(entry) - 1; at >= 0; at--) {
    if (branch[at].kind === "run_started") return branch[at].parentId;
    if (branch[at].kind === "message" || branch[at].kind === "run_ended") break;
  }
  return entry.parentId;
}

/** What a branch shows: messages, thinking, tool calls with their state, notices; each with a key. */
export function items(branch) {
  const shown = [];
  const calls = new Map();
  const queued = new Map();
  for (const entry of branch) {
    const { kind, payload } = entry;
    if (kind === "message") message(entry, shown, calls, queued);
    else if (kind === "message_queued") {
      const item = { ...texts(entry, payload.message), type: "you", key: entry.id, entry, queued: payload.steer ? "steer" : "queue" };
      queued.set(entry.id, item);
      shown.push(item);
    } else if (kind === "redaction") {
      const item = queued.get(payload.entryId);
      if (item) shown.splice(shown.indexOf(item), 1);
    } else if (kind.startsWith("tool_") || kind.startsWith("approval_")) call(entry, shown, calls);
    else notice(entry, shown, calls);
  }
  return shown;
}

function texts(entry, payload) {
  const parts = payload.parts ?? [];
  return {
    text: parts.filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n\n"),
    blocks: parts.flatMap((part, at) => (part.kind === "text" ? entry.html?.[at] ?? [] : [])),
    files: files(entry, parts),
  };
}

/** Images and files, numbered as the server numbers them. */
function files(entry, parts) {
  return parts
    .flatMap((part) => (part.kind === "tool_result" && Array.isArray(part.payload.content) ? part.payload.content : [part]))
    .filter((part) => part.kind === "image" || part.kind === "file_ref")
    .map((part, number) => ({
      entryId: entry.id,
      number,
      isImage: part.kind === "image" && SHOWN_TYPES.has(part.payload.mimeType),
      isHere: part.payload.data !== undefined,
      name: part.payload.path ?? part.payload.mimeType ?? "file",
      url: part.payload.url,
    }));
}

function message(entry, shown, calls, queued) {
  const { payload } = entry;
  if (payload.role === "user") {
    const request = queued.get(payload.meta?.requestId);
    if (request) shown.splice(shown.indexOf(request), 1);
    const isSynthetic = payload.parts.every((part) => part.payload.synthetic);
    if (isSynthetic) shown.push({ type: "notice", key: entry.id, text: texts(entry, payload).text });
    else shown.push({ ...texts(entry, payload), type: "you", key: entry.id, entry });
  } else if (payload.role === "assistant") {
    parts(entry, payload.parts, shown, calls);
    if (payload.meta?.aborted) shown.push({ type: "notice", key: `${entry.id}/stopped`, text: "Stopped." });
  } else if (payload.role === "tool") {
    for (const part of payload.parts) result(entry, part.payload, calls);
  }
}

function parts(entry, all, shown, calls) {
  all.forEach((part, at) => {
    const key = `${entry.id}/${at}`;
    const blocks = entry.html?.[at] ?? [];
    if (part.kind === "text") shown.push({ type: "say", key, blocks, text: part.payload.text });
    else if (part.kind === "thinking") shown.push({ type: "thought", key, blocks, text: part.payload.text, took: span(part.payload.time) });
    else if (part.kind === "tool_call") {
      const { toolCallId: id, toolName: name } = part.payload;
      const item = { type: "tool", key: `call/${id}`, id, name, arguments: part.payload.arguments, state: "pending" };
      calls.set(id, item);
      shown.push(item);
      if (part.payload.result) result(entry, part.payload.result, calls);
    }
  });
}

/** Whether a tool, or the command that it ran, reported an error. */
export function hasFailed(payload) {
  return Boolean(payload.isError || payload.metadata?.exit_code);
}

/** How long something took, in milliseconds; null if unknown. */
function span(time) {
  return time?.start && time?.end ? new Date(time.end) - new Date(time.start) : null;
}

/** The calls of the sub-agent that a call runs: their ids are prefixed with that call's id. */
function nestedIn(id, calls) {
  return [...calls.values()].filter((item) => item.id.startsWith(`${id}/`));
}

/** A sub-agent's call, shown once it needs approval or a result; undefined for any other unknown call. */
function nested(entry, shown, calls) {
  const { kind, payload } = entry;
  const needsSomeone = kind === "approval_required" || (kind === "tool_started" && payload.deferred);
  const isNested = [...calls.keys()].some((id) => payload.toolCallId.startsWith(`${id}/`));
  if (!needsSomeone || !isNested) return undefined;
  const { toolCallId: id, toolName: name } = payload;
  const item = { type: "tool", key: `call/${id}`, id, name, arguments: payload.arguments, state: "pending" };
  calls.set(id, item);
  shown.push(item);
  return item;
}

function call(entry, shown, calls) {
  const { kind, payload } = entry;
  const item = calls.get(payload.toolCallId) ?? nested(entry, shown, calls);
  if (!item) return;
  if (kind === "approval_required") Object.assign(item, { state: "ask", question: payload, digest: entry.argumentsDigest, asked: entry.timestamp });
  else if (kind === "approval_decided") {
    const isOpen = payload.decision === "pause" || payload.decision === "resume";
    if (!isOpen) Object.assign(item, { state: payload.decision === "deny" ? "denied" : "pending" });
  } else if (kind === "tool_started") {
    Object.assign(item, { state: "running", started: entry.timestamp, arguments: payload.arguments });
  } else if (kind === "tool_progress") Object.assign(item, { progress: payload.content, inner: payload.metadata?.sessionId ?? item.inner });
}

function result(entry, payload, calls) {
  const item = calls.get(payload.toolCallId);
  if (!item) return;
  for (const one of nestedIn(item.id, calls)) {
    if (one.state !== "denied") Object.assign(one, { state: "done", output: "The sub-agent has continued." });
  }
  const content = payload.content;
  const isParts = Array.isArray(content);
  const text = isParts
    ? content.filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n")
    : typeof content === "string" ? content : JSON.stringify(content, null, 2);
  Object.assign(item, {
    state: hasFailed(payload) ? "failed" : "done",
    exitCode: payload.metadata?.exit_code,
    output: text,
    errorCode: payload.errorCode,
    files: isParts ? files(entry, [{ kind: "tool_result", payload }]) : [],
    took: span(payload.time),
    inner: payload.metadata?.sessionId ?? item.inner,
  });
}

function notice(entry, shown, calls) {
  const { kind, payload, id } = entry;
  const say = (text, isBad = false) => shown.push({ type: "notice", key: id, text, isBad });
  if (kind === "stream_failed") {
    parts({ ...entry, id: `${id}/partial` }, (payload.parts ?? []).filter((part) => part.kind === "text"), shown, calls);
    say(`The answer failed: ${payload.error.message || payload.error.errorCode}`, true);
  } else if (kind === "model_change") say(`Switched to ${payload.model.provider}:${payload.model.model}.`);
  else if (kind === "compaction_summary") say("Older turns are now sent to the model as a summary.");
  else if (kind === "abort_requested") say("Stop requested.");
  else if (kind === "run_ended" && payload.status === "failed") {
    say(`The run failed: ${payload.error?.message || payload.reason || "unknown reason"}`, true);
  } else if (kind === "run_ended" && payload.status === "aborted") say(`The run was stopped (${payload.reason ?? "user"}).`);
}

/** Whether a run is open at the end of the branch, and what it waits for; null if the start of the run is not loaded. */
export function runState(branch) {
  const last = branch.findLast((entry) => entry.kind === "run_started" || entry.kind === "run_ended");
  if (!last && branch.length && branch[0].kind !== "session_header") return null;
  if (last?.kind !== "run_started") return "idle";
  return items(branch).some((item) => item.state === "ask") ? "waiting" : "running";
}
