// The chat of the AI SDK, unmodified, driven by commands on stdin: one JSON object per line, one reply per command.
//
//   node ai_sdk.mjs 6
//   {"do": "open", "api": "http://127.0.0.1:1234/chat", "id": "trip", "messages": []}
//   {"do": "send", "text": "Hello"}                         the reply comes when the chat is ready again
//   {"do": "send", "text": "Hello", "until": "Hel"}         ... or when the answer contains this text
//   {"do": "send", "message": {"parts": [...]}}             a message with other parts, or metadata
//   {"do": "approve", "id": "c1", "approved": true}         sends the decision as `sendAutomaticallyWhen` does
//   {"do": "decide", "approvals": [...]}                    the same for version 5, in the body of a request
//   {"do": "output", "toolCallId": "c1", "output": 1}       the page has executed a tool
//   {"do": "stop"} {"do": "resume"} {"do": "wait"}
//   {"do": "assemble", "streams": [[chunk, ...], ...]}      what the chat makes of each stream
//   {"do": "validate", "chats": [[message, ...], ...]}      what is wrong with the messages of each chat, or null

import { createInterface } from "node:readline";

const version = process.argv[2];
const ai = await import(`ai${version}`);

class State {
  constructor(messages) {
    this.messages = messages;
    this.status = "ready";
    this.error = undefined;
  }
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, structuredClone(message)); };
  snapshot = (value) => structuredClone(value);
}

class Chat extends ai.AbstractChat {
  constructor({ messages = [], ...init }) {
    super({ ...init, state: new State(messages) });
  }
}

let chat, last, settled;

function open({ api, id, messages, headers }) {
  const transport = new ai.DefaultChatTransport({ api, headers });
  last = {};
  chat = new Chat({
    id,
    messages,
    transport,
    sendAutomaticallyWhen: (state) =>
      Boolean(ai.lastAssistantMessageIsCompleteWithApprovalResponses?.(state)) ||
      ai.lastAssistantMessageIsCompleteWithToolCalls(state) && last.output,
    onFinish: ({ isAbort, isError, isDisconnect, finishReason }) => { last = { isAbort, isError, isDisconnect, finishReason }; },
  });
}

const report = () => ({
  status: chat.status,
  error: chat.error?.message,
  messages: chat.messages,
  isAbort: last.isAbort,
  isError: last.isError,
  finishReason: last.finishReason,
});

const pause = () => new Promise((resolve) => setTimeout(resolve, 5));
const isBusy = () => chat.status === "submitted" || chat.status === "streaming";

async function untilReady() {
  do { await pause(); } while (isBusy());
}

async function untilText(text) {
  const seen = () => JSON.stringify(chat.messages.at(-1)?.parts ?? "").includes(text);
  while (!seen()) await pause();
}

async function assembled(chunks) {
  const stream = { sendMessages: async () => ReadableStream.from(chunks), reconnectToStream: async () => null };
  const one = new Chat({ id: "x", transport: stream });
  let finishReason;
  one.onFinish = (end) => { finishReason = end.finishReason; };
  await one.sendMessage({ text: "?" });
  return { status: one.status, error: one.error?.message, finishReason, message: one.messages[1] };
}

async function problem(messages) {
  const result = await ai.safeValidateUIMessages({ messages });
  return result.success ? null : result.error.message;
}

const commands = {
  open: async (command) => { open(command); },
  send: async ({ text, until, body, message }) => {
    settled = chat.sendMessage(message ?? { text }, { body });
    await (until === undefined ? settled : untilText(until));
    if (until === undefined) await untilReady();
  },
  regenerate: async ({ messageId }) => { await chat.regenerate({ messageId }); await untilReady(); },
  edit: async ({ messageId, text }) => { await chat.sendMessage({ messageId, text }); },
  approve: async ({ id, approved, reason }) => {
    await chat.addToolApprovalResponse({ id, approved, reason });
    await untilReady();
  },
  decide: async ({ approvals }) => {
    await chat.sendMessage(undefined, { body: { approvals } });
    await untilReady();
  },
  output: async ({ toolCallId, output }) => {
    last.output = true;
    await chat.addToolOutput({ tool: "any", toolCallId, output });
    await untilReady();
  },
  resume: async () => { await chat.resumeStream(); await untilReady(); },
  stop: async () => { await chat.stop(); await settled; },
  wait: async () => { await settled; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let reply;
  if (command.do === "assemble") {
    reply = await Promise.all(command.streams.map(assembled));
  } else if (command.do === "validate") {
    reply = await Promise.all(command.chats.map(problem));
  } else {
    await commands[command.do](command);
    reply = report();
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
process.exit(0);
