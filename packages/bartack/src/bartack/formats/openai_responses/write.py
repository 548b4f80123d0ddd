"""Deltas to the stream of the Responses API, and a message to the whole response.

Each part becomes an item of its own. An item begins with its first text, and its position in the output is that of its
beginning; the items of the client's calls end last (`response_writer`). The ids of items are derived from the id of the
response. Clients differ in what they read: Codex only `response.output_item.done` and the end, OpenAI's SDKs every
event from `response.created` on, so all of them are sent, numbered.

What a part keeps of its item is complete only when the part ends. Fields of the end (`encrypted_content`, annotations)
are written; the id and the type of a client's call were decided at its beginning. An item that is no message, reasoning
or client's call is written whole.
"""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, ClassVar

from bartack.formats.openai import custom_input, openai_error
from bartack.formats.openai_responses.items import NAME, Item, ResponsesContinuation
from bartack.formats.response_writer import (
    ErrorResponse,
    Json,
    ResponseWriter,
    WrittenCall,
    WrittenText,
    server_sent_event,
)
from bartack.nouns.deltas import Done, Failed, FinishReason, Usage
from bartack.nouns.parts import Image

__all__ = ["ResponsesWriter"]


class ResponsesWriter(ResponseWriter):
    """Writes `response.created`, items, and `response.completed`, `.incomplete` or `.failed`."""

    format: ClassVar[str] = NAME
    continuation_type: ClassVar[Any] = ResponsesContinuation
    # The status, or the reason for an incomplete response.
    words: ClassVar[dict[FinishReason, str]] = {
        "stop": "completed",
        "length": "max_output_tokens",
        "content_filter": "content_filter",
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sequence_number = 0
        self._items: list[Item] = []  # in the order of the output, as far as they are known
        self._finished: set[int] = set()  # their indexes

    def frame(self, event: Json) -> bytes:
        return server_sent_event(event, event["type"])

    def _emit(self, kind: str, **fields: Any) -> None:
        self.emit({"type": f"response.{kind}", "sequence_number": self._sequence_number, **fields})
        self._sequence_number += 1

    # -- texts

    def begin(self) -> None:
        self._emit("created", response=self._response("in_progress"))
        self._emit("in_progress", response=self._response("in_progress"))

    def add_text(self, part: WrittenText, piece: str) -> None:
        if part.place < 0:
            self._open_text(part)
        part.pieces.append(piece)
        if part.kind == "text":
            self._emit("output_text.delta", **self._text_place(part), delta=piece, logprobs=[])
        else:
            self._emit("reasoning_summary_text.delta", **self._text_place(part), delta=piece)

    def end_text(self, part: WrittenText) -> None:
        item = part.continuation.get("item", {})
        if item.get("type") not in (None, "message", "reasoning"):
            self._emit_whole(dict(item))
        encrypted = item.get("encrypted_content") if part.kind == "thinking" else None
        if part.place < 0 and encrypted is None:
            return
        if part.place < 0:
            part.place = self._add({"type": "reasoning", "summary": []}, "rs")
        if part.pieces:
            self._close_text(part)
        if encrypted is not None:
            self._items[part.place]["encrypted_content"] = encrypted
        self._finish_item(part.place)

    def _open_text(self, part: WrittenText) -> None:
        if part.kind == "text":
            fields = {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
            part.place = self._add(fields, "msg")
            self._emit("content_part.added", **self._text_place(part), part=_output_text("", []))
        else:
            part.place = self._add({"type": "reasoning", "summary": []}, "rs")
            summary = {"type": "summary_text", "text": ""}
            self._emit("reasoning_summary_part.added", **self._text_place(part), part=summary)

    def _close_text(self, part: WrittenText) -> None:
        place, text = self._text_place(part), part.text
        if part.kind == "text":
            annotations = part.continuation.get("part", {}).get("annotations")
            entry = _output_text(text, annotations if isinstance(annotations, list) else [])
            self._items[part.place]["content"] = [entry]
            self._emit("output_text.done", **place, text=text, logprobs=[])
            self._emit("content_part.done", **place, part=entry)
        else:
            entry = {"type": "summary_text", "text": text}
            self._items[part.place]["summary"] = [entry]
            self._emit("reasoning_summary_text.done", **place, text=text)
            self._emit("reasoning_summary_part.done", **place, part=entry)

    def _text_place(self, part: WrittenText) -> Json:
        name = "content_index" if part.kind == "text" else "summary_index"
        return {**self._place(part.place), name: 0}

    # -- calls

    def shows(self, call: WrittenCall) -> bool:
        return True  # what its item is becomes known at its end

    def open_call(self, call: WrittenCall) -> None:
        if call.is_provider_call:
            return
        identity = {"call_id": call.id, "name": call.name}
        if call.name in self.namespaces:
            namespace, name = self.namespaces[call.name]
            identity |= {"name": name, "namespace": namespace}
        if call.name in self.tool_searches:
            fields = {"type": "tool_search_call", "status": "in_progress", "call_id": call.id, "execution": "client"}
            call.place = self._add({**fields, "arguments": {}}, "tsc")
        elif call.name in self.custom_tools:
            fields = {"type": "custom_tool_call", "status": "in_progress", **identity, "input": ""}
            call.place = self._add(fields, "ctc")
        else:
            fields = {"type": "function_call", "status": "in_progress", **identity, "arguments": ""}
            call.place = self._add(fields, "fc")

    def add_args(self, call: WrittenCall, piece: str) -> None:
        if call.place >= 0 and call.name not in self.custom_tools | self.tool_searches:
            self._emit("function_call_arguments.delta", **self._place(call.place), delta=piece)

    def end_call(self, call: WrittenCall) -> None:
        if call.is_provider_call:
            self._end_provider_call(call)
            return
        item, place = self._items[call.place], self._place(call.place)
        if call.name in self.tool_searches:
            item["arguments"] = call.arguments
        elif call.name in self.custom_tools:
            item["input"] = custom_input(call)
            if call.is_complete:
                self._emit("custom_tool_call_input.delta", **place, delta=item["input"])
                self._emit("custom_tool_call_input.done", **place, input=item["input"])
        else:
            item["arguments"] = call.text
            if call.is_complete:
                self._emit("function_call_arguments.done", **place, name=item["name"], arguments=call.text)
        if call.is_complete:
            self._finish_item(call.place)
        else:
            item["status"] = "incomplete"

    def _end_provider_call(self, call: WrittenCall) -> None:
        item = dict(call.continuation.get("item", {}))
        # xAI's own free-text calls look like those of a client, which would run them.
        if item.get("type") in (None, "custom_tool_call"):
            self.losses.add(
                call.where, f"call of {call.name}", "the provider executed it, and its item would not show it"
            )
            return
        if item.get("type") == "image_generation_call" and isinstance(call.result, tuple):
            images = [part.data for part in call.result if isinstance(part, Image) and part.data]
            item["result"] = b64encode(b"".join(images)).decode()
        self._emit_whole(item)
        if "output" in call.continuation:
            self._emit_whole(dict(call.continuation["output"]))

    # -- items

    def _add(self, fields: Item, prefix: str) -> int:
        index = len(self._items)
        item = {"id": f"{prefix}_{self.response_id.removeprefix('resp_')}_{index}", **fields}
        self._items.append(item)
        self._emit("output_item.added", output_index=index, item=dict(item))
        return index

    def _place(self, index: int) -> Json:
        return {"item_id": self._items[index]["id"], "output_index": index}

    def _finish_item(self, index: int) -> None:
        item = self._items[index]
        if "status" in item:
            item["status"] = "completed"
        self._finished.add(index)
        self._emit("output_item.done", output_index=index, item=dict(item))

    def _emit_whole(self, item: Item) -> None:
        index = len(self._items)
        self._items.append(item)
        self._finished.add(index)
        self._emit("output_item.added", output_index=index, item=item)
        self._emit("output_item.done", output_index=index, item=item)

    # -- the response

    def finish(self, done: Done) -> None:
        word = self.finish_word(done)
        if word == "completed":
            self._emit("completed", response=self._response("completed"))
        else:
            self._emit("incomplete", response=self._response("incomplete", incomplete_details={"reason": word}))

    def fail(self, failed: Failed) -> None:
        error = openai_error(failed).body["error"]
        reported = {"code": error["code"], "message": error["message"]}
        finished = [item for index, item in enumerate(self._items) if index in self._finished]
        self._emit("failed", response=self._response("failed", error=reported, output=finished))

    @classmethod
    def error_response(cls, failed: Failed) -> ErrorResponse:
        return openai_error(failed)

    def joined(self, events: Iterable[Json]) -> Json:
        *_, last = events
        response: Json = last["response"]
        return response

    def _response(self, status: str, **fields: Any) -> Json:
        """The response object. OpenAI's SDKs require its settings, which the writer does not know, too."""
        ended = status != "in_progress"
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": int(self.created.timestamp()),
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "model": self.model_id,
            "output": list(self._items) if ended else [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": _counts(self.usage) if ended and self.usage is not None else None,
            "user": None,
            "metadata": {},
            **fields,
        }


def _output_text(text: str, annotations: list[Any]) -> Item:
    return {"type": "output_text", "text": text, "annotations": annotations}


def _counts(usage: Usage) -> Json:
    counts: Json = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens or 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }
    if usage.cache_write_tokens is not None:
        counts["input_tokens_details"]["cache_write_tokens"] = usage.cache_write_tokens
    if usage.cost is not None:
        counts["cost"] = usage.cost
    return counts
