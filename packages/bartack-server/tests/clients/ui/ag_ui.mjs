// The client of AG-UI, unmodified and with its verifier on, driven by commands on stdin: one JSON object per line, one
// reply per command.
//
//   {"do": "open", "url": "http://127.0.0.1:1234/api/ag-ui", "threadId": "trip", "headers": {}}
//   {"do": "run", "text": "Hello", "tools": [], "state": {}}     the reply comes when the run has ended
//   {"do": "run", "until": "Hel"}                                ... or when the messages, or a custom event, contain this text
//   {"do": "run", "resume": [{"interruptId": "c1", "status": "resolved", "payload": {"approved": true}}]}
//   {"do": "output", "toolCallId": "c1", "content": "1"}         adds the result of a tool of the page
//   {"do": "wait"} {"do": "leave"}
//   {"do": "assemble", "streams": [{"messages": [], "events": []}, ...]}

import { createInterface } from "node:readline";
import { AbstractAgent, HttpAgent } from "@ag-ui/client";
import { from } from "rxjs";

let agent, ended, seen;
console.warn = () => {};
console.error = () => {};
process.on("unhandledRejection", () => {}); // the client leaves one behind when a connection is lost; browsers log it

const shown = () => JSON.stringify([agent.messages, seen.custom]);
const report = (more) => ({ messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts, ...seen, ...more });

function start({ text, tools, resume }) {
  if (text !== undefined) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  seen = { types: [] };
  const subscriber = {
    onEvent: ({ event }) => { seen.types.push(event.type); },
    onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => { seen.outcome = outcome; seen.pending = pendingToolCallIds; },
    onRunErrorEvent: ({ event }) => { seen.runError = event.message; },
    onSubagentStartedEvent: ({ event }) => { (seen.subagents ??= []).push(event); },
    onSubagentFinishedEvent: ({ event }) => { seen.subagents.push(event); },
    onSubagentErrorEvent: ({ event }) => { seen.subagents.push(event); },
    onCustomEvent: ({ event }) => { (seen.custom ??= []).push([event.name, event.value]); },
  };
  ended = agent.runAgent({ tools: tools ?? [], resume }, subscriber).then(() => {}, (error) => { seen.failure = String(error); });
}

async function untilText(text) {
  while (!shown().includes(text)) await new Promise((resolve) => setTimeout(resolve, 5));
}

class Played extends AbstractAgent {
  constructor(events, messages) {
    super({ initialMessages: messages });
    this.events = events;
  }
  run() { return from(this.events); }
}

async function assembled({ events, messages }) {
  const played = new Played(events, messages);
  let failure, outcome, runError;
  const subscriber = {
    onRunFinishedEvent: (end) => { outcome = end.outcome; },
    onRunErrorEvent: ({ event }) => { runError = event.message; },
  };
  await played.runAgent({}, subscriber).catch((error) => { failure = String(error); });
  return { messages: played.messages, outcome, runError, failure };
}

const commands = {
  open: async ({ url, threadId, headers, state, messages }) => {
    agent = new HttpAgent({ url, threadId, headers, initialState: state, initialMessages: messages });
    seen = {};
  },
  run: async (command) => {
    start(command);
    await (command.until === undefined ? ended : untilText(command.until));
  },
  output: async ({ toolCallId, content }) => {
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content });
  },
  wait: async () => { await ended; },
  leave: async () => { agent.abortRun(); await ended; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let reply;
  if (command.do === "assemble") {
    reply = [];
    for (const stream of command.streams) reply.push(await assembled(stream));
  } else {
    await commands[command.do](command);
    reply = report();
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
process.exit(0);
