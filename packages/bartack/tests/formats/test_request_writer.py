"""`RequestWriter`: what is known is not encoded again, and the bytes are those of a full encode."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bartack.formats import Losses, ModelRequest, RequestWriter, encode, format_named
from bartack.formats import request_writer as module
from bartack.formats.losses import Trail
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, Meta, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, Image, Text, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import History

MODELS = {
    "anthropic-messages": "claude-opus-4-6",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
}
PNG = Image("image/png", data=b"\x89PNG")


class Conversation:
    """One writer, and how many messages its last request had to encode."""

    def __init__(self, format: str, *, provider: str = "", **config: Any) -> None:
        row = format_named(format)
        self.format, self.provider, self.config = format, provider, ModelConfig(MODELS[format], **config)
        self.encoded = 0
        self.tools: tuple[ToolSpec, ...] = ()

        def counting(request: ModelRequest, losses: Losses) -> dict[str, Any]:
            self.encoded = len(request.messages)
            return row.encode(request, losses)

        self.writer = RequestWriter(replace(row, encode=counting))

    def send(self, *history: Message | Sequence[Message]) -> dict[str, Any]:
        """The body, which must be the one that a full encode gives."""
        messages = [message for part in history for message in ([part] if isinstance(part, Message) else part)]
        request = ModelRequest(tuple(messages), config=self.config, tools=self.tools, provider=self.provider)
        expected = encode(self.format, request)
        request_body = self.writer.write(request)
        assert request_body.body == msgspec.json.encode(expected.body)
        assert request_body.report == expected.report
        assert request_body.call_ids == {call.tool_call_id for message in messages for call in message.tool_calls}
        body: dict[str, Any] = msgspec.json.decode(request_body.body)
        return body

    def send_thread(self, head: list[Message], tail: list[Message], thread: object) -> int:
        """How many messages were encoded for a `History`."""
        request = ModelRequest(History.of(head, tail, thread), config=self.config)
        assert self.writer.write(request).body == msgspec.json.encode(encode(self.format, request).body)
        return self.encoded


@cache
def turn(number: int) -> list[Message]:
    """The same messages for the same number."""
    call_id = f"call{number:05}"
    return [
        user(f"Question {number}"),
        assistant("Looking.", ToolCall(call_id, "look", {"place": number})),
        tool_message(ToolResult(call_id, f"Found {number}")),
        assistant(f"Answer {number}"),
    ]


def turns(count: int) -> list[Message]:
    return [message for number in range(count) for message in turn(number)]


def copies(messages: list[Message]) -> list[Message]:
    """Equal messages, as of a session that was loaded again."""
    return [replace(message) for message in messages]


every_format = pytest.mark.parametrize("format", MODELS)


@every_format
@pytest.mark.parametrize("cache_config", [None, CacheConfig()])
def test_a_turn_encodes_only_what_is_new(format: str, cache_config: CacheConfig | None) -> None:
    conversation = Conversation(format, cache_config=cache_config)
    history = turns(50)
    for end in range(1, len(history), 2):
        conversation.send(system("Be brief."), history[:end])
        assert conversation.encoded <= 10, end


@every_format
def test_a_long_run_of_tool_calls_encodes_only_what_is_new(format: str) -> None:
    conversation = Conversation(format, cache_config=CacheConfig())
    history = [user("Do all of it.")]
    for number in range(40):
        history += turn(number)[1:3]
        conversation.send(history)
        assert conversation.encoded <= 10


@every_format
def test_a_late_result_is_put_after_its_call(format: str) -> None:
    conversation = Conversation(format)
    first = [user("Look."), assistant(ToolCall("late00000", "look", {})), user("Well?"), assistant("I am waiting.")]
    conversation.send(first, turn(1))
    conversation.send(first, turn(1), turn(2))
    assert conversation.encoded <= 6
    conversation.send(first, turn(1), turn(2), tool_message(ToolResult("late00000", "found")), user("Thanks."))
    assert conversation.encoded > 8


@every_format
def test_results_without_a_call_are_reported_as_in_a_full_encode(format: str) -> None:
    conversation = Conversation(format)
    conversation.send(turns(3), user("And?"))
    repeated = tool_message(ToolResult("call00000", "again"), ToolResult("nobody", "?"))
    again = assistant(ToolCall("call00000", "look", {}))  # an id that was used before
    later = [user("And?"), repeated, assistant("So."), user("Yes."), again, *turn(4)]
    for end in range(len(later)):
        conversation.send(turns(3), later[: end + 1])
        assert conversation.encoded <= 10


@every_format
def test_calls_whose_results_come_later_stay_together(format: str) -> None:
    conversation = Conversation(format)
    calls = assistant(ToolCall("aaaaaaaaa", "look", {}), ToolCall("bbbbbbbbb", "look", {}))
    results = [tool_message(ToolResult(call_id * 9, "found")) for call_id in "abx"]
    mixed = tool_message(ToolResult("bbbbbbbbb", "found"), ToolResult("xxxxxxxxx", "?"))
    for last in (results[1], mixed):
        history = [user("Look."), calls, results[0], user("Well?"), assistant("One moment."), user("Go."), last]
        for end in range(2, len(history) + 1):
            conversation.send(history[:end])
        for number in range(3):
            history += turn(number)
            conversation.send(history)


@every_format
def test_a_call_that_was_cut_off_takes_its_late_result_with_it(format: str) -> None:
    conversation = Conversation(format)
    cut_off = assistant("I will", ToolCall("aaaaaaaaa", "look", {}), meta=Meta(open_calls=("aaaaaaaaa",)))
    history = [user("Look."), cut_off, user("Go on."), assistant("Yes.")]
    late = tool_message(ToolResult("aaaaaaaaa", "found"))
    for later in ([], [*turn(1)], [*turn(1), late, *turn(2)], [*turn(1), late, *turn(2), *turn(3)]):
        conversation.send(history, later)


@every_format
def test_what_was_taken_back_is_not_sent(format: str) -> None:
    conversation = Conversation(format, cache_config=CacheConfig())
    history = turns(6)
    conversation.send(history)
    for end in (22, 21, 20, 17, 13, 9, 24):
        conversation.send(history[:end])
    conversation.send(history, user(" "))  # left out as blank
    conversation.send(history, user(" "), system("Be kind."))
    conversation.send(history, assistant("More."))
    conversation.send(history[:-1], user("Stop."))


@every_format
def test_a_changed_message_is_sent_as_it_is_now(format: str) -> None:
    conversation = Conversation(format)
    history = turns(5)
    conversation.send(history)
    changed = [history[0], replace(history[1], parts=(Text("[redacted]"),)), *history[2:]]
    assert "redacted" in str(conversation.send(changed))
    summary = [user("So far they looked at places."), *history[12:]]
    conversation.send(summary)
    conversation.send(summary, turn(7))
    assert conversation.encoded <= 10


@every_format
def test_equal_messages_that_are_written_differently_are_not_confused(format: str) -> None:
    conversation = Conversation(format)
    for value in (1, 1.0, True):
        first = [user("Look."), assistant(ToolCall("aaaaaaaaa", "look", {"place": value}))]
        conversation.send(first, tool_message(ToolResult("aaaaaaaaa", "found")), turns(3))


@every_format
def test_a_system_prompt_is_known_by_its_text(format: str) -> None:
    conversation = Conversation(format, cache_config=CacheConfig())
    history = turns(5)
    conversation.send(system("Be brief."), system("Be kind."), history)
    conversation.send(system("Be brief."), system("Be kind."), copies(history))
    assert conversation.encoded > 20
    conversation.send(system("Be brief."), history)
    conversation.send(system("Be brief."), history, user("Next."))
    assert conversation.encoded <= 10
    conversation.send(system("Be verbose."), history, user("Next."))
    assert conversation.encoded > 20
    prompt = Message("system", (Text("Be brief.", continuation=Continuation(format, "m", {"message": {"name": "a"}})),))
    conversation.send(prompt, history)
    conversation.send(replace(prompt), history)
    assert conversation.encoded > 20


@every_format
def test_system_messages_between_turns_are_sent_in_place(format: str) -> None:
    conversation = Conversation(format, cache_config=CacheConfig())
    history = [system("Be brief."), *turns(3), system("Be kind."), *turn(3), *turn(4)]
    for end in range(10, len(history) + 1):
        conversation.send(history[:end])
    conversation.send(history, system("Be quick."), user("Next."))
    conversation.send(history, system("Be quick."), user("Next."), turn(5))


@every_format
def test_settings_may_change_between_calls(format: str) -> None:
    conversation = Conversation(format)
    history = turns(5)
    conversation.send(history)
    conversation.tools = (ToolSpec("look", {"type": "object"}),)
    conversation.send(history, user("Next."))
    assert conversation.encoded <= 10  # tools do not change the messages
    for config in (
        replace(conversation.config, cache_config=CacheConfig()),
        replace(conversation.config, temperature=1.0),
        replace(conversation.config, extra={"store": False}),
        replace(conversation.config, extra={"store": 0}),
        replace(conversation.config, extra={"metadata": {"a": "b"}}),
        replace(conversation.config, model_id="gpt-4.1"),
    ):
        conversation.config = config
        conversation.send(history)
        conversation.send(history, user("Next."))
    conversation.provider = "elsewhere"
    conversation.send(history)


@every_format
def test_a_history_of_a_known_thread_is_not_compared(format: str) -> None:
    conversation, thread = Conversation(format), object()
    history, send = turns(5), conversation.send_thread
    assert send([system("Be brief.")], history, thread) > 20
    assert send([system("Be brief.")], [*history, user("Next.")], thread) <= 10
    assert send([system("Be brief."), user("Summary.")], [*history, user("Next.")], thread) > 20
    assert send([system("Be kind."), user("Summary.")], [*history, user("Next.")], thread) > 20
    changed = [user("Other."), *history[1:], user("Next.")]
    assert send([system("Be kind."), history[0]], changed, object()) > 20
    assert send([system("Be kind."), history[0]], [*changed, *turn(7)], object()) <= 10


@every_format
def test_only_the_head_of_a_history_is_compared_in_its_thread(format: str) -> None:
    conversation, thread = Conversation(format), object()
    head, history, send = [system("Be brief."), user("Summary.")], turns(5), conversation.send_thread
    send(head, history, thread)
    # A copy shows that the messages of a thread are taken for the same without a look at them.
    assert send(head, [*copies(history[:1]), *history[1:], user("Next.")], thread) <= 10
    # Another thread, or another head, may have the same message at the same place by chance.
    assert send(head, [user("Other."), *history[1:], user("Next.")], object()) > 20
    question, answer = user("Again?"), assistant("Yes.")
    periodic = [question, answer, *turn(7), *[question, answer] * 8, user("Next.")]
    send(head, periodic, thread := object())
    assert send([*head, question, answer], periodic, thread) > 20


@every_format
def test_branches_and_conversations_are_kept_apart(format: str) -> None:
    conversation = Conversation(format)
    history, copy = turns(5), copies(turns(5))
    for number in range(5, 9):
        for branch in ([*history, *turn(number)], [*history[:12], *turn(number)], [*copy, *turn(number)]):
            conversation.send(branch)
            conversation.send(branch, user("Next."))
            assert conversation.encoded <= 10


def test_the_longest_known_beginning_is_used() -> None:
    conversation = Conversation("openai-chat")
    history = turns(20)
    conversation.send(history[:8])
    conversation.send(history[:4], turn(9))
    conversation.send(history)
    conversation.send(history, user("Next."))
    assert conversation.encoded <= 5


def test_only_the_last_conversations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation("openai-chat")
    first, conversations = turns(5), [copies(turns(5)) for _ in range(20)]
    for history in (first, *conversations):
        conversation.send(history)
    conversation.send(conversations[-1], user("Next."))
    assert conversation.encoded <= 5
    conversation.send(first, user("Next."))
    assert conversation.encoded > 20
    monkeypatch.setattr(module, "_MAX_BYTES", 100)
    conversation.send(conversations[-1], user("Next."))
    conversation.send(conversations[-1], user("Next."))
    assert conversation.encoded <= 5  # the last one is kept whatever its size
    conversation.send(conversations[-2], user("Next."))
    assert conversation.encoded > 20


def test_fields_of_a_vendor_are_added_and_left_out() -> None:
    history = turns(4)
    request = ModelRequest(tuple(history), config=ModelConfig("claude-opus-4-6"))
    expected = encode("anthropic-messages", request).body
    row = format_named("anthropic-messages")
    only = RequestWriter(row, without=[*(expected.keys() - {"messages"})])
    assert only.write(request).body == msgspec.json.encode({"messages": expected["messages"]})
    none = RequestWriter(row, without=("messages",), fields={"version": "1"})
    for _ in range(2):
        body = {key: value for key, value in expected.items() if key != "messages"} | {"version": "1"}
        assert none.write(request).body == msgspec.json.encode(body)


# -- openai-chat


@pytest.mark.parametrize("provider", ["openai", "mistral", "perplexity", "openrouter"])
def test_media_of_results_and_prompts_are_sent_in_place(provider: str) -> None:
    conversation = Conversation("openai-chat", provider=provider, cache_config=CacheConfig())
    result = tool_message(ToolResult("call00009", (PNG, Text("found"))))
    history = [system("Be brief."), *turns(2), *turn(9)[:2], result, assistant("A picture."), *turn(3), *turn(4)]
    for end in range(3, len(history) + 1):
        conversation.send(history[:end])
    conversation.send(history, system("Be kind."), user("Next."))
    conversation.send(history, system("Be kind."), user("Next."), turn(5))


# -- openai-responses


def own(**data: Any) -> Continuation:
    return Continuation("openai-responses", "gpt-5", data)


def test_an_id_that_was_sent_before_is_not_sent_again() -> None:
    conversation = Conversation("openai-responses")
    answer = assistant(Text("Yes.", continuation=own(item={"type": "message", "id": "msg_1"}, field="content")))
    history = [user("A?"), answer, *turns(3)]
    conversation.send(history)
    body = conversation.send(history, user("B?"), answer, user("C?"))
    assert conversation.encoded <= 10
    assert [item["id"] for item in body["input"] if "id" in item] == ["msg_1"]


def test_reasoning_without_its_ciphertext_depends_on_the_setting_store() -> None:
    conversation = Conversation("openai-responses")
    reasoning = Thinking("hm", continuation=own(item={"type": "reasoning", "id": "rs_1"}))
    history = [user("A?"), assistant(reasoning, Text("Yes.")), *turns(3)]
    for store in (False, 0, True, 1, False):
        conversation.config = replace(conversation.config, extra={"store": store})
        conversation.send(history)


def test_reasoning_waits_for_the_item_that_it_led_to() -> None:
    conversation = Conversation("openai-responses", cache_config=CacheConfig())
    reasoning = Thinking("hm", continuation=own(item={"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}))
    odd = tool_message(ToolResult("call00000", "found", continuation=own(output={"type": "reasoning", "id": "rs_2"})))
    first = [user("A?"), assistant(reasoning, Text("Yes."))]
    history = [*first, *turn(0)[:2], odd, *turn(0)[3:], *turns(3)]
    for end in range(1, len(history) + 1):
        conversation.send(history[:end])


def test_an_answer_between_reasoning_and_reasoning_is_sent_once() -> None:
    conversation = Conversation("openai-responses")
    result = ToolResult("call00000", "found", continuation=own(output={"type": "reasoning", "id": "rs_1"}))
    late = Text("", continuation=own(item={"type": "reasoning", "id": "rs_2", "encrypted_content": "x"}))
    answer = assistant(ToolCall("call00009", "look", {}), late)
    history = [*turn(0)[:2], tool_message(result), answer, assistant("Done."), user("Next.")]
    for end in range(1, len(history) + 1):
        conversation.send(history[:end])


def test_instructions_that_were_read_from_a_request_are_sent_there() -> None:
    conversation = Conversation("openai-responses", cache_config=CacheConfig())
    prompt = Message("system", (Text("Be brief.", continuation=own(instructions=True)), Text("-", ignored=True)))
    instructions = Message("system", (Text("Be kind.", continuation=own(instructions=True)),))
    history = turns(4)
    for end in range(1, len(history) + 1):
        conversation.send(prompt, history[:end])
    body = conversation.send(prompt, history, user("Next."), instructions, turn(5))
    assert body["instructions"] == "Be brief.\n\nBe kind."


def test_the_cache_key_covers_the_first_user_message_wherever_it_is() -> None:
    conversation = Conversation("openai-responses", cache_config=CacheConfig())
    history = [assistant("Hello."), *turn(0)[1:3], *turn(1)[1:3], *turn(2)[1:], *turns(3)]
    keys = {conversation.send(history[:end])["prompt_cache_key"] for end in range(9, len(history) + 1)}
    assert len(keys) == 1


# -- anthropic-messages


def claudes(**data: Any) -> Continuation:
    return Continuation("anthropic-messages", "claude-opus-4-6", data)


def test_a_provider_call_is_sent_once_its_result_arrives() -> None:
    conversation = Conversation("anthropic-messages")
    data = claudes(type="server_tool_use")
    search = ToolCall("srvtoolu_1", "web_search", {}, executed_by="provider", continuation=data)
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    result = assistant("Found.", Thinking("", continuation=claudes(block=block)), "That is all.")
    history = [user("Search."), assistant("Searching.", search), *turns(3)]
    conversation.send(history)
    conversation.send(history, user("Well?"))
    assert conversation.encoded <= 10
    conversation.send(history, user("Well?"), result, user("Thanks."))
    conversation.send(history, user("Well?"), result, user("Thanks."), turn(5))
    again = assistant("Once more.", search)
    conversation.send(history, user("Well?"), result, user("Thanks."), turn(5), user("More."), again, user("Thanks."))


def test_what_was_known_of_provider_calls_applies_to_later_messages() -> None:
    conversation = Conversation("anthropic-messages")
    result = {"type": "code_execution_tool_result", "content": []}
    data = claudes(type="server_tool_use", result=result)
    code = ToolCall("srvtoolu_1", "code", {}, executed_by="provider", continuation=data)
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_2", "content": []}
    carried = Thinking("", continuation=claudes(block=block))
    history = [user("Run it."), assistant("Running.", code, carried, "Ran."), *turns(3)]
    conversation.send(history)
    caller = claudes(caller={"type": "code_execution", "tool_id": "srvtoolu_1"})
    called = assistant(ToolCall("toolu_9", "look", {}, continuation=caller))
    body = conversation.send(history, user("Again."), called)
    assert conversation.encoded <= 10
    assert "tool_id" in str(body)
    search = ToolCall("srvtoolu_2", "search", {}, executed_by="provider", continuation=claudes(type="server_tool_use"))
    body = conversation.send(history, user("Search."), assistant("Searching.", search), user("Well?"))
    assert conversation.encoded <= 10
    assert str(body).count("srvtoolu_2") == 2


def test_an_answer_of_which_nothing_can_be_sent_is_left_out() -> None:
    conversation = Conversation("anthropic-messages")
    foreign = ToolCall("ws_1", "search", {}, executed_by="provider", result=ToolResult("ws_1", "found"))
    conversation.send(turns(3)[:-1], assistant("Done."))
    conversation.send(turns(3)[:-1], assistant(foreign), user("Next."))


def test_a_provider_call_may_stay_open_while_its_code_calls_tools() -> None:
    conversation = Conversation("anthropic-messages")
    code = ToolCall("srvtoolu_1", "code", {}, executed_by="provider", continuation=claudes(type="server_tool_use"))
    caller = claudes(caller={"type": "code_execution", "tool_id": "srvtoolu_1"})
    history = [
        *turns(3),
        user("Run it."),
        assistant("Running.", code, ToolCall("toolu_0", "look", {}, continuation=caller)),
    ]
    history.append(tool_message(ToolResult("toolu_0", "found")))
    for number in range(1, 5):
        history.append(assistant(ToolCall(f"toolu_{number}", "look", {}, continuation=caller)))
        history.append(tool_message(ToolResult(f"toolu_{number}", "found")))
        conversation.send(history)
    conversation.send(history, assistant("Done."), user("Thanks."))
    conversation.send(history, assistant("Done."), user("Thanks."), turn(7))
    late = [assistant(ToolCall("toolu_9", "look", {}, continuation=caller)), tool_message(ToolResult("toolu_9", "ok"))]
    conversation.send(history, assistant("Done."), user("Thanks."), turn(7), user("Again."), late)


def test_the_container_and_breakpoints_of_known_messages_apply() -> None:
    conversation = Conversation("anthropic-messages", cache_config=CacheConfig())
    conversation.tools = (ToolSpec("code", {}, native=claudes(type="code_execution_20250825", name="code")),)
    used = assistant(Text("Ran.", continuation=claudes(container={"id": "container_1"})))
    history = [user("Run."), used, *turns(4)]
    for end in range(3, len(history) + 1):
        assert conversation.send(history[:end])["container"] == "container_1"
    marked = user(Text("Long.", continuation=claudes(cache_control={"type": "ephemeral"})))
    history = [marked, assistant("Yes."), *turns(4)]
    for end in range(3, len(history) + 1):
        assert str(conversation.send(history[:end])).count("cache_control") == 1


def test_a_run_that_began_without_thinking_is_continued_without() -> None:
    conversation = Conversation("anthropic-messages", thinking=ThinkingConfig(budget_tokens=2048))
    conversation.config = replace(conversation.config, model_id="claude-sonnet-4-5")
    signed = Thinking("hm", continuation=claudes(signature="c2ln"))
    for opening in ((), (signed,)):
        history = [user("Look."), assistant(*opening, ToolCall("toolu_0", "look", {}))]
        history.append(tool_message(ToolResult("toolu_0", "found")))
        for number in range(1, 6):
            history.append(assistant(ToolCall(f"toolu_{number}", "look", {})))
            history.append(tool_message(ToolResult(f"toolu_{number}", "found")))
            assert ("thinking" in conversation.send(history)) is bool(opening)
        assert "thinking" in conversation.send(history, assistant("Done."), user("Thanks."))


def test_facts_replace_earlier_ones_with_the_same_key() -> None:
    trail = Trail()
    for index, value in enumerate("abc"):
        trail.note(index, "last", value=value)
    assert trail.facts_before(2) == {"last": {"": "b"}}
    assert Trail(2, trail.facts_before(2)).known("last") == {"": "b"}
