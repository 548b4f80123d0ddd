// An editor on the SDK of the Agent Client Protocol, driven by commands on stdin: one JSON object per line, one reply
// per command. It starts the agent as `node editor.mjs COMMAND ARGUMENT...` and has files and terminals of its own.
//
//   {"do": "call", "method": "session/new", "params": {...}}    the result, or the error
//   {"do": "start", ...} {"do": "wait"}                         the same in two steps
//   {"do": "notify", "method": "session/cancel", "params": {}}
//   {"do": "set", "offers": {...}, "answer": "allow", "files": {"/path": "unsaved text"}}
//                                                             the answer "later" is given by {"do": "answer"}
//   {"do": "pid"} {"do": "end"}                                 of the agent's process; closes its stdin and waits for it
//   {"do": "seen"}                                              updates, questions, files and commands since the last time

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const [command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

const exited = new Promise((resolve) => agent.on("exit", (code) => resolve(code)));

let isEnding = false;
let answer = "allow";
let unanswered = [];
let files = {};
let seen;
const forget = () => { seen = { updates: [], sessions: [], questions: [], read: [], written: {}, commands: [], released: 0 }; };
forget();
const terminals = new Map();

const handlers = {
  "session/request_permission": ({ params }) => {
    seen.questions.push(params);
    if (answer === "later") return new Promise((resolve) => unanswered.push(resolve));
    if (answer === "cancel") return { outcome: { outcome: "cancelled" } };
    return { outcome: { outcome: "selected", optionId: answer } };
  },
  "fs/read_text_file": ({ params }) => {
    seen.read.push(params.path);
    if (!(params.path in files)) throw new acp.RequestError(-32002, "no such buffer");
    return { content: files[params.path] };
  },
  "fs/write_text_file": ({ params }) => {
    seen.written[params.path] = params.content;
    files[params.path] = params.content;
    return {};
  },
  "terminal/create": ({ params }) => {
    seen.commands.push([params.command, ...(params.args ?? [])]);
    const terminalId = `term-${terminals.size + 1}`;
    const child = spawn(params.command, params.args ?? [], { cwd: params.cwd });
    const terminal = { output: "" };
    child.stdout.on("data", (data) => { terminal.output += data; });
    child.stderr.on("data", (data) => { terminal.output += data; });
    terminal.ended = new Promise((resolve) => child.on("close", (exitCode, signal) => resolve({ exitCode, signal })));
    terminal.child = child;
    terminals.set(terminalId, terminal);
    return { terminalId };
  },
  "terminal/output": ({ params }) => ({ output: terminals.get(params.terminalId).output, truncated: false }),
  "terminal/wait_for_exit": ({ params }) => terminals.get(params.terminalId).ended,
  "terminal/kill": ({ params }) => { terminals.get(params.terminalId).child.kill(); return {}; },
  "terminal/release": ({ params }) => { seen.released += 1; terminals.get(params.terminalId).child.kill(); return {}; },
};

let editor = acp.client({ name: "test-editor" });
for (const [method, handler] of Object.entries(handlers)) editor = editor.onRequest(method, handler);
editor = editor.onNotification("session/update", ({ params }) => {
  seen.updates.push(params.update);
  seen.sessions.push(params.sessionId);
});

await editor.connectWith(stream, async (context) => {
  let pending;
  const call = ({ method, params }) =>
    context.request(method, params).then((result) => ({ result: result ?? null }), (error) => ({ error: error.message, code: error.code }));
  const commands = {
    call,
    start: async (sent) => { pending = call(sent); return {}; },
    wait: async () => pending,
    notify: async ({ method, params }) => { await context.notify(method, params); return {}; },
    set: async (values) => { answer = values.answer ?? answer; files = values.files ?? files; return {}; },
    pid: async () => agent.pid,
    end: async () => { isEnding = true; agent.stdin.end(); return new Promise(() => {}); }, // the end replies
    answer: async ({ outcome }) => { for (const resolve of unanswered.splice(0)) resolve({ outcome }); return {}; },
    asked: async () => {
      while (seen.questions.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      return {};
    },
    seen: async () => { const found = seen; forget(); return found; },
    until: async ({ text }) => {
      while (!JSON.stringify(seen.updates).includes(text)) await new Promise((resolve) => setTimeout(resolve, 5));
      return {};
    },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const sent = JSON.parse(line);
    process.stdout.write(JSON.stringify(await commands[sent.do](sent)) + "\n");
  }
}).catch((error) => { if (!isEnding) throw error; });
if (isEnding) process.stdout.write(JSON.stringify(await exited) + "\n");
agent.kill();
process.exit(0);
