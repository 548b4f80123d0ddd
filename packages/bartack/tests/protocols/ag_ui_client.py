"""A client of AG-UI in Python: the rules of its verifier, and the messages that it assembles.

The npm client is the judge: a test compares this one with it on the same streams.
"""

from copy import deepcopy
from typing import Any

Json = dict[str, Any]


class Refused(Exception):
    """The verifier does not accept an event."""


class AgUiClient:
    """Verifies and applies the events of one or more runs."""

    def __init__(self, messages: Any = ()) -> None:
        self.messages: list[Json] = deepcopy(list(messages))
        self.state: Any = None
        self.outcome: Json | None = None
        self.error: str | None = None
        self.interrupts: list[Json] = []
        self.snapshots = 0  # of messages
        self._is_running = False
        self._has_begun = False
        self._open: set[tuple[str, str]] = set()
        self._ended_subagents: set[str] = set()

    def add(self, event: Json) -> None:
        kind = event["type"]
        if not self._has_begun or not self._is_running:
            if kind not in ("RUN_STARTED", "RUN_ERROR"):
                raise Refused(f"{kind} outside of a run")
        elif kind == "RUN_STARTED":
            raise Refused("a run is active")
        self._has_begun = True
        getattr(self, f"_on_{kind.lower()}", self._ignore)(event)

    def _ignore(self, event: Json) -> None:
        assert event["type"] == "CUSTOM", event

    def _begin(self, kind: str, key: str) -> None:
        if (kind, key) in self._open:
            raise Refused(f"{kind} {key} is open")
        self._open.add((kind, key))

    def _continue(self, kind: str, key: str) -> None:
        if (kind, key) not in self._open:
            raise Refused(f"{kind} {key} is not open")

    def _end(self, kind: str, key: str) -> None:
        self._continue(kind, key)
        self._open.remove((kind, key))

    def _message(self, message_id: str) -> Json | None:
        return next((message for message in self.messages if message["id"] == message_id), None)

    # -- runs and steps

    def _on_run_started(self, event: Json) -> None:
        assert event["protocolVersion"] == "1.0"
        self._is_running, self._open, self._ended_subagents = True, set(), set()
        self.outcome = self.error = None

    def _on_run_finished(self, event: Json) -> None:
        if self._open:
            raise Refused(f"still open: {sorted(self._open)}")
        self._is_running = False
        outcome: Json = event.get("outcome", {"type": "success"})
        self.outcome = outcome
        self.interrupts = outcome["interrupts"] if outcome["type"] == "interrupt" else []

    def _on_run_error(self, event: Json) -> None:
        self._is_running, self.error = False, event["message"]

    def _on_step_started(self, event: Json) -> None:
        self._begin("step", event["stepName"])

    def _on_step_finished(self, event: Json) -> None:
        self._end("step", event["stepName"])

    def _on_subagent_started(self, event: Json) -> None:
        if event["subagentRunId"] in self._ended_subagents:
            raise Refused("a sub-agent starts once in a run")
        self._begin("subagent", event["subagentRunId"])

    def _on_subagent_finished(self, event: Json) -> None:
        self._end("subagent", event["subagentRunId"])
        self._ended_subagents.add(event["subagentRunId"])

    _on_subagent_error = _on_subagent_finished

    # -- messages

    def _start(self, kind: str, event: Json, **fields: Any) -> None:
        self._begin(kind, event["messageId"])
        if self._message(event["messageId"]) is None:
            self.messages.append({"id": event["messageId"], "content": "", **fields})

    def _grow(self, kind: str, event: Json) -> None:
        self._continue(kind, event["messageId"])
        assert event["delta"]
        message = self._message(event["messageId"])
        assert message is not None
        message["content"] = message.get("content", "") + event["delta"]

    def _on_text_message_start(self, event: Json) -> None:
        self._start("text", event, role=event["role"])

    def _on_text_message_content(self, event: Json) -> None:
        self._grow("text", event)

    def _on_text_message_end(self, event: Json) -> None:
        self._end("text", event["messageId"])

    def _on_reasoning_start(self, event: Json) -> None:
        self._begin("span", event["messageId"])

    def _on_reasoning_end(self, event: Json) -> None:
        self._end("span", event["messageId"])

    def _on_reasoning_message_start(self, event: Json) -> None:
        self._start("reasoning", event, role="reasoning")

    def _on_reasoning_message_content(self, event: Json) -> None:
        self._grow("reasoning", event)

    def _on_reasoning_message_end(self, event: Json) -> None:
        self._end("reasoning", event["messageId"])

    def _on_messages_snapshot(self, event: Json) -> None:
        self.snapshots += 1
        new = {message["id"]: message for message in deepcopy(event["messages"])}
        has_reasoning = any(message["role"] == "reasoning" for message in new.values())
        kept = [
            new.pop(message["id"], message)
            for message in self.messages
            if message["id"] in new or (message["role"] == "reasoning" and not has_reasoning)
        ]
        self.messages = [*kept, *new.values()]

    def _on_state_snapshot(self, event: Json) -> None:
        self.state = event["snapshot"]

    # -- calls

    def _function(self, call_id: str) -> Json:
        calls = (call for message in self.messages for call in message.get("toolCalls", ()))
        function: Json = next(call for call in calls if call["id"] == call_id)["function"]
        return function

    def _on_tool_call_start(self, event: Json) -> None:
        call_id, parent = event["toolCallId"], event["parentMessageId"]
        self._begin("call", call_id)
        if any(call["id"] == call_id for message in self.messages for call in message.get("toolCalls", ())):
            return
        owner = self._message(parent)
        if owner is None:
            owner = {"id": parent, "role": "assistant"}
            self.messages.append(owner)
        function = {"name": event["toolCallName"], "arguments": ""}
        owner.setdefault("toolCalls", []).append({"id": call_id, "type": "function", "function": function})

    def _on_tool_call_args(self, event: Json) -> None:
        self._continue("call", event["toolCallId"])
        self._function(event["toolCallId"])["arguments"] += event["delta"]

    def _on_tool_call_end(self, event: Json) -> None:
        self._end("call", event["toolCallId"])

    def _on_tool_call_result(self, event: Json) -> None:
        message = {"id": event["messageId"], "role": "tool"}
        message |= {key: event[key] for key in ("toolCallId", "content")}
        for at, owner in enumerate(self.messages):
            if any(call["id"] == event["toolCallId"] for call in owner.get("toolCalls", ())):
                while at + 1 < len(self.messages) and self.messages[at + 1]["role"] == "tool":
                    at += 1
                self.messages.insert(at + 1, message)
                return
        self.messages.append(message)
