// A page with `useChat` of the AI SDK in React, for a real browser. The build replaces `react-ai` and `ai` with those of
// one version. The address has the API and the authorization: page.html#api=...&authorization=...

import { createElement as h } from "react";
import { createRoot } from "react-dom/client";
import * as ai from "ai";
import { useChat } from "react-ai";

const given = new URLSearchParams(location.hash.slice(1));
const [api, authorization] = [given.get("api"), given.get("authorization")];
const headers = { authorization };

function Chat({ messages: stored }) {
  const chat = useChat({
    id: "trip",
    messages: stored,
    transport: new ai.DefaultChatTransport({ api, headers }),
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const parts = chat.messages.at(-1)?.parts ?? [];
  const asked = parts.find((part) => part.state === "approval-requested"); // from version 6 on
  const question = parts.find((part) => part.type === "data-approval"); // in version 5
  const approve = () => (asked
    ? chat.addToolApprovalResponse({ id: asked.approval.id, approved: true })
    : chat.sendMessage(undefined, { body: { approvals: [{ id: question.id, approved: true }] } }));
  const isAsking = chat.status === "ready" && (asked || (question && !parts.some((part) => part.state === "output-available")));
  return h("main", {},
    chat.messages.map((message) => h("section", { key: message.id, className: message.role }, message.parts.map((part, at) => h("p", { key: at }, part.text ?? part.type)))),
    h("output", {}, chat.error?.message ?? chat.status),
    h("button", { id: "send", onClick: () => chat.sendMessage({ text: "Pay" }) }, "Send"),
    isAsking && h("button", { id: "approve", onClick: approve }, "Approve"),
    h("script", { type: "application/json" }, JSON.stringify(chat.messages)));
}

const response = await fetch(`${api}/trip/messages`, { headers });
const messages = response.ok ? await response.json() : [];
createRoot(document.getElementById("page")).render(h(Chat, { messages }));
