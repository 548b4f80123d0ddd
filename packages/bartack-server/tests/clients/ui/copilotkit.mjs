// The client of CopilotKit, unmodified, with an agent of AG-UI and a tool of the page: sends two messages, and prints the
// messages and the errors, as JSON.
//
//   node copilotkit.mjs URL AUTHORIZATION

import { createRequire } from "node:module";

const core = await import("@copilotkit/core");
const own = createRequire(createRequire(import.meta.url).resolve("@copilotkit/core")); // its version of the AG-UI client
const { HttpAgent } = own("@ag-ui/client");
const [url, authorization] = process.argv.slice(2);

const agent = new HttpAgent({ url, agentId: "default", threadId: "trip", headers: { authorization } });
const copilot = new core.CopilotKitCore({ headers: { authorization }, agents__unsafe_dev_only: { default: agent } });
const errors = [];
copilot.subscribe({ onError: ({ error }) => { errors.push(String(error)); } });

copilot.addTool({ name: "pick_colour", description: "Ask the user for a colour.", handler: async () => "red" });

for (const [at, content] of ["Paint it.", "And now?"].entries()) {
  agent.addMessage({ id: `p${at}`, role: "user", content });
  await copilot.runAgent({ agent: copilot.getAgent("default") });
}
console.log(JSON.stringify({ messages: copilot.getAgent("default").messages, errors }));
process.exit(0);
