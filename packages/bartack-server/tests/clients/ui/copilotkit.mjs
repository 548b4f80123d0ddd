// The client of CopilotKit, unmodified, with an agent of AG-UI and a tool of the page: sends two messages, and prints the
// messages, the types of the last events and the errors, as JSON. A message that is given replaces the two, and its run
// is stopped on the server as soon as its answer begins.
//
//   node copilotkit.mjs URL AUTHORIZATION [MESSAGE STOP_URL]

import { createRequire } from "node:module";

const core = await import("@copilotkit/core");
const own = createRequire(createRequire(import.meta.url).resolve("@copilotkit/core")); // its version of the AG-UI client
const { HttpAgent } = own("@ag-ui/client");
const [url, authorization, stopped, stopUrl] = process.argv.slice(2);

const agent = new HttpAgent({ url, agentId: "default", threadId: "trip", headers: { authorization } });
const copilot = new core.CopilotKitCore({ headers: { authorization }, agents__unsafe_dev_only: { default: agent } });
const errors = [];
copilot.subscribe({ onError: ({ error }) => { errors.push(String(error)); } });

copilot.addTool({ name: "pick_colour", description: "Ask the user for a colour.", handler: async () => "red" });

const types = [];
let isStopping = false;
const stop = () => {
  if (!stopUrl || isStopping) return;
  isStopping = true;
  fetch(stopUrl, { method: "POST", headers: { authorization, "content-type": "application/json" }, body: '{"type": "abort"}' });
};
agent.subscribe({ onEvent: ({ event }) => { types.push(event.type); }, onTextMessageContentEvent: stop });

for (const [at, content] of (stopped ? [stopped] : ["Paint it.", "And now?"]).entries()) {
  agent.addMessage({ id: `p${at}`, role: "user", content });
  await copilot.runAgent({ agent: copilot.getAgent("default") });
}
console.log(JSON.stringify({ messages: copilot.getAgent("default").messages, last: types.at(-1), errors }));
process.exit(0);
