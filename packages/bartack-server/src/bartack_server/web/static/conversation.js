// Turns the entries of one branch into the items that the page shows. Pure functions, no DOM access.

const SHOWN_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]); // others are downloads
const ENDS_ANSWER = new Set(["stream_failed", "run_started", "run_ended"]);

export function endsAnswer(entry) {
  return ENDS_ANSWER.has(entry.kind) || (entry.kind === "message" && entry.payload.role === "assistant");
}

/** The branch with the entry appended, cut back to its parent if necessary; null if the entry is on another branch. */
export function extended(branch, entry) {
  if (branch.some((other) => other.id === entry.id)) return branch;
  const last = branch.at(-1);
  if (!last || entry.parentId === last.id || !entry.parentId) return [...branch, entry];
  const parent = branch.findIndex((other) => other.id === entry.parentId);
  return parent < 0 ? null : [...branch.slice(0, parent + 1), entry];
}

/** Whether this entry redacts one that may be on screen. Redacting a queued message only withdraws it. */
export function hides(branch, entry) {
  return entry.kind === "redaction" && branch.find((other) => other.id === entry.payload.entryId)?.kind !== "message_queued";
}

/** The entry to continue from so that this message is replaced: the one before the run that it started. */
export function headBefore(branch, entry) {
  for (let index = branch.indexOf(entry) - 1; index >= 0; index--) {
    if (branch[index].kind === "run_started") return branch[index].parentId;
    if (branch[index].kind === "message" || branch[index].kind === "run_ended") break;
  }
  return entry.parentId;
}

const drawn = new WeakMap(); // a branch, which never changes -> its items

/** What a branch shows: messages, thinking, tool calls with their state, notices; each with a key. The states are the
 * server's: an entry names the calls that it changes. */
export function items(branch) {
  if (!drawn.has(branch)) drawn.set(branch, folded(branch));
  return drawn.get(branch);
}

function folded(branch) {
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
    } else notice(entry, shown);
    for (const change of entry.calls ?? []) call(entry, change, shown, calls);
  }
  return shown;
}

/** The keys of the items that show an entry. */
export function keysOf(branch, entryId) {
  const parts = branch.find((entry) => entry.id === entryId)?.payload.parts ?? [];
  const calls = new Set(parts.map((part) => `call/${part.payload.toolCallId}`));
  return items(branch).filter(({ key, queued }) => !queued && (key === entryId || key.startsWith(`${entryId}/`) || calls.has(key))).map(({ key }) => key);
}

function texts(entry, payload) {
  const parts = payload.parts ?? [];
  return {
    text: parts.filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n\n"),
    blocks: parts.flatMap((part, index) => (part.kind === "text" ? entry.html?.[index] ?? [] : [])),
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
      name: part.payload.path ?? part.payload.metadata?.name ?? part.payload.mimeType ?? "file",
      url: part.payload.url,
    }));
}

function message(entry, shown, calls, queued) {
  const { payload } = entry;
  if (payload.role === "user") {
    const request = queued.get(payload.meta?.requestId);
    if (request) shown.splice(shown.indexOf(request), 1);
    const isSynthetic = payload.parts.every((part) => part.payload.synthetic);
    if (isSynthetic) shown.push({ type: "notice", key: entry.id, icon: "steer", text: texts(entry, payload).text });
    else shown.push({ ...texts(entry, payload), type: "you", key: entry.id, entry });
  } else if (payload.role === "assistant") {
    parts(entry, payload.parts, shown, calls);
    const last = shown.at(-1);
    if (last?.type === "say") last.answer = entry; // what can be done with an answer is shown below its last text
  }
}

function parts(entry, all, shown, calls) {
  all.forEach((part, index) => {
    const key = `${entry.id}/${index}`;
    const blocks = entry.html?.[index] ?? [];
    if (part.kind === "text") shown.push({ type: "say", key, blocks, text: part.payload.text, entry });
    else if (part.kind === "thinking") shown.push({ type: "thought", key, blocks, text: part.payload.text, took: span(part.payload.time) });
    else if (part.kind === "tool_call") {
      const { toolCallId: id, toolName: name } = part.payload;
      addCall({ id, name, arguments: part.payload.arguments }, shown, calls);
    }
  });
}

function addCall(fields, shown, calls) {
  const item = { type: "tool", key: `call/${fields.id}`, state: "pending", ...fields };
  calls.set(item.id, item);
  shown.push(item);
}

/** Whether a tool, or the command that it ran, reported an error. */
export function hasFailed(payload) {
  return Boolean(payload.isError || payload.metadata?.exit_code);
}

/** How long something took, in milliseconds; null if unknown. */
function span(time) {
  return time?.start && time?.end ? new Date(time.end) - new Date(time.start) : null;
}

/** Apply the change that an entry makes to a call. The call of a sub-agent is shown once it needs someone; other calls
 * that are not here belong to an answer that is not loaded. */
function call(entry, { id, name, isNested, ...change }, shown, calls) {
  if (isNested && !calls.has(id)) addCall({ id, name, arguments: entry.payload.arguments }, shown, calls);
  const item = calls.get(id);
  if (item) Object.assign(item, change, details(entry, id, change.state));
}

/** What an entry says about a call. */
function details(entry, id, state) {
  const { kind, payload } = entry;
  if (kind === "message") {
    const about = payload.parts.find((part) => part.payload.toolCallId === id)?.payload;
    if (about) return result(entry, about.result ?? about);
  }
  if (payload.toolCallId !== id) return state === "done" ? { output: "The sub-agent has continued." } : {};
  if (kind === "approval_required") {
    return { question: payload, digest: entry.questionDigest, text: entry.questionText, asked: entry.timestamp };
  }
  if (kind === "approval_decided") return { decided: payload.decision, decidedBy: payload.decidedBy, waited: entry.timestamp };
  if (kind === "tool_started") return { started: entry.timestamp, arguments: payload.arguments };
  return kind === "tool_progress" ? { progress: payload.content } : {};
}

function result(entry, payload) {
  const content = payload.content;
  const isParts = Array.isArray(content);
  const text = isParts
    ? content.filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n")
    : typeof content === "string" ? content : JSON.stringify(content, null, 2);
  return {
    exitCode: payload.metadata?.exit_code,
    output: text,
    errorCode: payload.errorCode,
    files: isParts ? files(entry, [{ kind: "tool_result", payload }]) : [],
    took: span(payload.time),
    ...(payload.metadata?.sessionId ? { inner: payload.metadata.sessionId } : {}),
  };
}

/** One notice per event. A failed attempt is folded away with its text; if it ends the run, the end of the run says so. */
function notice(entry, shown) {
  const { kind, payload, id } = entry;
  const say = (text, more = {}) => shown.push({ type: "notice", key: id, text, ...more });
  if (kind === "stream_failed") {
    const text = (payload.parts ?? []).filter((part) => part.kind === "text").map((part) => part.payload.text).join("\n\n");
    const reason = payload.error.message || payload.error.errorCode;
    const earlier = shown.at(-1)?.type === "retry" ? shown.pop() : null;
    shown.push({ type: "retry", key: earlier?.key ?? id, times: (earlier?.times ?? 0) + 1, reason, entry, text: [earlier?.text, text].filter(Boolean).join("\n\n") });
  } else if (kind === "model_change") say(`Switched to ${payload.model.provider}:${payload.model.model}.`, { icon: "model" });
  else if (kind === "compaction_summary") say("Older turns are now sent to the model as a summary.", { icon: "queue" });
  else if (kind === "run_ended" && payload.status === "failed") {
    const attempts = shown.at(-1)?.type === "retry" ? shown.pop() : null;
    const tried = attempts?.times > 1 ? `Tried ${attempts.times} times. ` : "";
    const reason = payload.error?.message || payload.reason || attempts?.reason || "unknown reason";
    if (attempts?.text) shown.push({ type: "say", key: `${id}/partial`, blocks: [], text: attempts.text });
    say(`${tried}Nothing is lost: everything up to here is stored.`, { title: `The run failed: ${reason}`, icon: "alert", isBad: true, entry: attempts?.entry, canRetry: true });
  } else if (kind === "run_ended" && payload.status === "aborted") {
    const attempts = shown.at(-1)?.type === "retry" ? shown.pop() : null;
    if (attempts?.text) shown.push({ type: "say", key: `${id}/partial`, blocks: [], text: attempts.text });
    const who = payload.reason && payload.reason !== "user" ? `The run was stopped (${payload.reason}).` : "You stopped this run.";
    say(`${who} What was written is kept.`, { icon: "stopped" });
  }
}

/** What an open run is doing while it shows nothing: {text, since}; null if something on the page says so already. */
export function activity(branch, model) {
  const last = branch.findLast((entry) => !["message_queued", "custom", "redaction"].includes(entry.kind));
  const since = last?.timestamp;
  if (branch.some((entry, at) => entry.kind === "abort_requested" && at > branch.findLastIndex((other) => other.kind === "run_started"))) return { text: "Stopping…", since };
  if (items(branch).some((item) => item.type === "tool" && ["ask", "running"].includes(item.state))) return null;
  if (last?.kind === "stream_failed") return { text: `Retrying after: ${last.payload.error.message || last.payload.error.errorCode}`, since };
  return { text: `Waiting for ${model || "the model"}…`, since };
}

/** Whether a run is open at the end of the branch, and what it waits for; null if the start of the run is not loaded. */
export function runState(branch) {
  const last = branch.findLast((entry) => entry.kind === "run_started" || entry.kind === "run_ended");
  if (!last && branch.length && branch[0].kind !== "session_header") return null;
  if (last?.kind !== "run_started") return "idle";
  return items(branch).some((item) => item.state === "ask") ? "waiting" : "running";
}
