// `useChat` of the AI SDK in React, in jsdom: sends a message, approves the call that needs it, and prints what the page
// shows in the end, as JSON: {"status", "error", "messages", "text"}.
//
//   node use_chat.mjs VERSION API AUTHORIZATION

import { JSDOM } from "jsdom";

const [version, api, authorization] = process.argv.slice(2);
const { window } = new JSDOM("<!doctype html><div id=page></div>", { url: api });
Object.assign(globalThis, { window, document: window.document });
globalThis.navigator ??= window.navigator; // newer versions of Node have one
globalThis.IS_REACT_ACT_ENVIRONMENT = false;

const React = await import("react");
const { createRoot } = await import("react-dom/client");
const { useChat } = await import(`react-ai${version}`);
const ai = await import(`ai${version}`);

let chat;

function Page() {
  chat = useChat({
    id: "trip",
    transport: new ai.DefaultChatTransport({ api, headers: { authorization } }),
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  return chat.messages.map((message) =>
    React.createElement("p", { key: message.id }, message.parts.map((part) => part.text ?? "").join("")));
}

const until = async (condition) => { while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10)); };
const isReady = () => chat?.status === "ready" || chat?.status === "error";
const asked = () => chat.messages.at(-1)?.parts.find((part) => part.state === "approval-requested");
const shown = () => window.document.getElementById("page").textContent;

createRoot(window.document.getElementById("page")).render(React.createElement(Page));
await until(() => chat !== undefined);
chat.sendMessage({ text: "Pay" });
if (version === "5") {
  const question = () => chat.messages.at(-1)?.parts.find((part) => part.type === "data-approval");
  await until(() => isReady() && question());
  chat.sendMessage(undefined, { body: { approvals: [{ id: question().id, approved: true }] } });
} else {
  await until(() => isReady() && asked());
  chat.addToolApprovalResponse({ id: asked().approval.id, approved: true });
}
await until(() => isReady() && (chat.status === "error" || shown().includes("Done.")));
console.log(JSON.stringify({ status: chat.status, error: chat.error?.message, messages: chat.messages, text: shown() }));
process.exit(0);
