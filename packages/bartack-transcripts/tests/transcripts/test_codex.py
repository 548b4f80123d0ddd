"""What the reader makes of the lines of Codex."""

import json
from typing import Any

from msgspec.structs import replace

from bartack.nouns.entries import (
    CompactionSummary,
    Fact,
    ModelChange,
    RunEnded,
    StreamFailed,
    ThinkingLevelChange,
    branch,
    heads,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Text, Thinking
from bartack_transcripts.codex import CODEX_WRITER, base_of, looks_like_codex, read_codex
from bartack_transcripts.formats import Transcript, entries_of, exported, source_files

THREAD = "01a1e2a1-302e-7fa0-8a51-42d7b401ecf6"
NAME = f"rollout-2026-11-16T04-32-56-{THREAD}.jsonl"
META = {"id": THREAD, "cwd": "/work", "cli_version": "0.166.0", "model_provider": "openai", "git": {"branch": "main"}}
USAGE = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9, "reasoning_output_tokens": 4}


def line(type: str, payload: Any) -> bytes:
    return json.dumps({"timestamp": "2026-01-01T00:00:00Z", "type": type, "payload": payload}).encode() + b"\n"


def item(type: str, **fields: Any) -> bytes:
    return line("response_item", {"type": type, **fields})


def event(type: str, **fields: Any) -> bytes:
    return line("event_msg", {"type": type, **fields})


def said(role: str, text: str) -> bytes:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def call(id: str, arguments: str = "{}") -> bytes:
    return item("function_call", name="exec", arguments=arguments, call_id=id)


def output(id: str, text: str = "ok") -> bytes:
    return item("function_call_output", call_id=id, output=text)


def read(*lines: bytes) -> Transcript:
    return read_codex({NAME: b"".join([line("session_meta", META), *lines])})[0]


def facts_of(transcript: Transcript) -> list[Fact]:
    entries = entries_of(transcript)
    return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]


def messages(*lines: bytes) -> list[Message]:
    return [fact for fact in facts_of(read(*lines)) if isinstance(fact, Message)]


def test_the_items_of_a_response_become_one_message_with_its_usage() -> None:
    reasoning = {"summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA", "id": "rs_1"}
    lines = [item("reasoning", **reasoning), said("assistant", "hello"), call("c1"), call("c2")]
    usage = line("token_usage_record", {"response_id": "resp_1", "usage": USAGE})
    counted = event("token_count", info={"last_token_usage": USAGE})
    prompt, answer, first, second = messages(
        line("turn_context", {"model": "gpt-5"}), said("user", "hi"), *lines, usage, output("c1"), output("c2"), counted
    )
    assert [part.kind for part in answer.parts] == ["thinking", "text", "tool_call", "tool_call"]
    thinking = answer.parts[0]
    assert isinstance(thinking, Thinking)
    assert thinking.continuation is not None
    assert thinking.continuation.provider == "openai"
    assert "gAAA" in repr(thinking.continuation.data)
    assert answer.meta is not None
    assert answer.meta.usage is not None
    assert (answer.meta.usage.input_tokens, answer.meta.usage.cache_read_tokens) == (100, 60)
    assert answer.meta.usage.reasoning_tokens == 4
    assert (answer.meta.response_id, answer.meta.model) == ("resp_1", ModelRef("openai", "gpt-5"))
    assert prompt.text == "hi"
    assert [message.tool_results[0].tool_call_id for message in (first, second)] == ["c1", "c2"]


def test_older_versions_count_tokens_in_events_and_repeat_them() -> None:
    counted = event("token_count", info={"last_token_usage": USAGE})
    replies = messages(said("assistant", "a"), counted, counted, said("user", "b"), said("assistant", "c"))
    assert [message.meta is not None and message.meta.usage is not None for message in replies] == [True, False, False]


def test_results_are_errors_if_a_command_failed() -> None:
    failed = {"type": "CommandExecution", "id": "c1", "status": "failed", "exit_code": 3}
    old_output = json.dumps({"output": "x", "metadata": {"exit_code": 2}})
    texts = ["Process exited with code 3\n", old_output, "unsupported call: nope", "aborted by user", "fine"]
    lines = [call(f"c{number}") for number in range(len(texts) + 1)]
    lines += [event("item_completed", item=failed | {"id": "c5"})]
    lines += [output(f"c{number}", text) for number, text in enumerate([*texts, "fine, but failed"])]
    results = [message.tool_results[0] for message in messages(*lines) if message.role == "tool"]
    assert [result.is_error for result in results] == [True, True, True, True, False, True]
    assert results[3].error_code is ErrorCode.TOOL_ABORTED


def test_events_of_legacy_files_mark_failed_calls_and_searches_of_tools_have_results() -> None:
    ends: list[Any] = [{"result": {"Err": "no"}}, {"result": {"Ok": {"isError": True}}}, {"result": {"Ok": {}}}]
    lines = [call(f"c{number}") for number in range(4)]
    lines += [event("mcp_tool_call_end", call_id=f"c{number}", **end) for number, end in enumerate(ends)]
    lines += [event("patch_apply_end", call_id="c3", success=False)]
    lines += [output(f"c{number}") for number in range(4)]
    lines += [item("tool_search_call", call_id="t", execution="client", arguments={}, status="completed")]
    lines += [item("tool_search_output", call_id="t", execution="client", tools=[], status="completed")]
    results = [message.tool_results[0] for message in messages(*lines) if message.role == "tool"]
    assert [result.is_error for result in results] == [True, True, False, True, False]


def test_arguments_that_are_not_json_are_kept() -> None:
    (answer,) = messages(call("c1", '{"cmd": "ls'))
    assert answer.tool_calls[0].raw_args_text == '{"cmd": "ls'
    assert answer.meta is not None
    assert answer.meta.bad_args is not None


def test_two_calls_of_one_id_are_two_answers_and_the_result_is_that_of_the_later_one() -> None:
    _, first, second, result = messages(said("user", "hi"), call("c1"), call("c1", '{"a":1}'), output("c1"))
    assert [[part.tool_call_id for part in message.tool_calls] for message in (first, second)] == [["c1"], ["c1~2"]]
    assert second.tool_calls[0].metadata == {"originalId": "c1"}
    assert [part.tool_call_id for part in result.tool_results] == ["c1~2"]


def test_an_output_that_is_an_object_is_kept_as_its_json() -> None:
    lines = said("user", "hi"), call("c1"), item("function_call_output", call_id="c1", output={"rows": [1, 2]})
    assert messages(*lines)[-1].tool_results[0].content == '{"rows":[1,2]}'


def test_what_codex_adds_itself_is_shown_and_not_sent() -> None:
    lines = [said("developer", "<skills_instructions>"), said("user", "<environment_context>"), said("user", "typed")]
    parts = [part for message in messages(*lines) for part in message.parts if isinstance(part, Text)]
    assert [(part.synthetic, part.ignored) for part in parts] == [(True, True), (True, True), (False, False)]
    assert read(*lines).header.title == "typed"


def test_messages_of_other_agents_and_notices_are_synthetic() -> None:
    lines = [
        said("user", "<user_shell_command>\nls\n</user_shell_command>"),
        item("agent_message", author="/root", recipient="/root/a", content=[{"type": "input_text", "text": "look"}]),
        line("inter_agent_communication", {"author": "/root", "content": "go", "trigger_turn": True}),
        item("agent_message", author="/root", recipient="/root/a", content=[{"type": "encrypted_content"}]),
        said("user", "<div>typed</div>"),
    ]
    parts = [part for message in messages(*lines) for part in message.parts if isinstance(part, Text)]
    assert [part.synthetic for part in parts] == [True, True, True, False]
    assert read(*lines).header.title == "look"


def test_a_rollback_begins_a_branch() -> None:
    lines = [said("user", "one"), said("assistant", "1"), said("user", "two"), said("assistant", "2")]
    transcript = read(*lines, event("thread_rolled_back", num_turns=1), said("user", "three"))
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["one", "1", "three"]
    assert len(heads(entries_of(transcript))) == 2


def test_a_compaction_has_the_messages_that_replace_the_context() -> None:
    kept_item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]}
    summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary."}]}
    compacted = line("compacted", {"message": "Summary.", "replacement_history": [kept_item, summary]})
    facts = facts_of(read(said("user", "one"), said("assistant", "1"), compacted, said("user", "two")))
    assert [fact.summary for fact in facts if isinstance(fact, CompactionSummary)] == ["Summary."]
    assert [fact.text for fact in facts if isinstance(fact, Message)] == ["one", "1", "one", "two"]


def test_the_context_before_an_encrypted_summary_is_kept() -> None:
    history = [{"type": "compaction", "encrypted_content": "x"}]
    compacted = line("compacted", {"message": "", "replacement_history": history})
    transcript = read(said("user", "one"), compacted, said("user", "two"))
    assert [fact.kind for fact in facts_of(transcript)] == ["message", "message"]
    assert "encrypted" in transcript.report.problems[0].what


def test_settings_errors_and_interruptions_are_facts() -> None:
    facts = facts_of(
        read(
            line("turn_context", {"model": "gpt-5", "effort": "xhigh"}),
            line("turn_context", {"model": "gpt-5", "effort": "xhigh"}),
            event("task_complete", error={"message": "You have insufficient credits"}),
            event("turn_aborted", reason="interrupted"),
        )
    )
    assert facts[:2] == [ModelChange(model=ModelRef("openai", "gpt-5")), ThinkingLevelChange(level="max")]
    assert isinstance(facts[2], StreamFailed)
    assert facts[3] == RunEnded(status="aborted", reason="interrupted")


def test_the_header_names_the_session_that_called_a_sub_agent() -> None:
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": "p1"}}}
    meta = line("session_meta", META | {"source": spawned, "forked_from_id": "f1", "agent_nickname": "Rawls"})
    (transcript,) = read_codex({NAME: meta})
    assert transcript.session_id == f"codex:{THREAD}"
    assert transcript.header.metadata == {
        "program": "codex",
        "directory": "/work",
        "gitBranch": "main",
        "version": "0.166.0",
        "agent": "Rawls",
        "parentSession": "codex:p1",
        "forkedFrom": "codex:f1",
    }
    agent = messages(call("c1"), output("c1", json.dumps({"agent_id": THREAD})))[-1].tool_results[0]
    assert agent.metadata == {"sessionId": f"codex:{THREAD}"}


def test_a_fork_begins_with_the_lines_of_the_session_that_it_continues() -> None:
    base = b"".join([line("session_meta", META), said("user", "one"), said("assistant", "1"), said("user", "later")])
    history_base = {"thread_id": THREAD, "end_ordinal_exclusive": 3}
    fork = line("session_meta", META | {"history_base": history_base}) + said("user", "two")
    assert base_of(fork) == f"rollout-*{THREAD}.jsonl*"
    assert base_of(base) is None
    (transcript,) = read_codex({"fork.jsonl": fork, NAME: base})
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["one", "1", "two"]
    assert source_files(entries_of(transcript)) == {"fork.jsonl": fork}
    (alone,) = read_codex({"fork.jsonl": fork})
    assert [fact.text for fact in facts_of(alone) if isinstance(fact, Message)] == ["two"]
    assert "missing" in alone.report.problems[0].what


def numbered(first: int, *lines: bytes) -> bytes:
    """The lines as files with ordinals have them."""
    numbered_lines = (json.loads(line) | {"ordinal": number} for number, line in enumerate(lines, first))
    return b"".join(json.dumps(line).encode() + b"\n" for line in numbered_lines)


def forked(id: str, end: int) -> bytes:
    base = {"thread_id": id, "end_ordinal_exclusive": end}
    return line("session_meta", META | {"history_mode": "paginated", "history_base": base})


def test_a_fork_of_a_fork_begins_with_the_lines_of_both_up_to_their_ordinals() -> None:
    base = numbered(0, line("session_meta", META), said("user", "one"), said("assistant", "1"), said("user", "later"))
    fork = numbered(3, forked(THREAD, 3), said("user", "two"), said("assistant", "2"), said("user", "later"))
    again = numbered(6, forked("f", 6), said("user", "three"))
    (transcript,) = read_codex({"again.jsonl": again, "fork.jsonl": fork, NAME: base})
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == [
        "one",
        "1",
        "two",
        "2",
        "three",
    ]
    assert transcript.report.problems == []
    (partly,) = read_codex({"again.jsonl": again, "fork.jsonl": fork})
    assert "missing" in partly.report.problems[0].what


def test_lines_that_are_added_to_a_file_with_ordinals_are_numbered() -> None:
    data = numbered(7, line("session_meta", META | {"history_mode": "paginated"}), said("user", "one")) + b"{torn"
    entries = entries_of(read_codex({NAME: data})[0])
    last = entries[-1]
    answer = Message("assistant", (Text("two"),), id="a", timestamp=last.timestamp)
    entries.append(replace(last, id="a", parent_id=last.id, seq=last.seq + 1, fact=answer))
    file_data = exported(entries, "codex", CODEX_WRITER, new_id=THREAD).files[NAME]
    assert file_data.startswith(data + b"\n")
    added = [json.loads(line) for line in file_data[len(data) + 1 :].splitlines()]
    assert [line["ordinal"] for line in added] == [9, 10]


def test_lines_of_the_first_versions_are_items_themselves() -> None:
    first = json.dumps({"id": THREAD, "timestamp": "2025-05-01T00:00:00Z", "instructions": "x"}).encode() + b"\n"
    said_once = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old"}]}
    data = first + json.dumps(said_once).encode() + b"\n"
    assert looks_like_codex(NAME, data)
    (transcript,) = read_codex({NAME: data})
    assert [fact.text for fact in facts_of(transcript) if isinstance(fact, Message)] == ["old"]


def test_a_file_without_items_is_read_from_its_events() -> None:
    transcript = read(
        event("user_message", message="review it", images=["data:image/png;base64,iVBORw0KGgo="]),
        event("entered_review_mode", prompt="..."),
        event("agent_reasoning", text="hm"),
        event("agent_message", message="done"),
    )
    prompt, answer = (fact for fact in facts_of(transcript) if isinstance(fact, Message))
    assert (prompt.text, transcript.header.title, len(prompt.parts)) == ("review it", "review it", 2)
    assert [type(part) for part in answer.parts] == [Thinking, Text]
    assert transcript.report.counts["event_msg/agent_message", "read"] == 1
    with_items = read(event("user_message", message="once"), said("user", "once"), event("agent_message", message="x"))
    assert [fact.text for fact in facts_of(with_items) if isinstance(fact, Message)] == ["once"]


def test_completed_items_are_messages_calls_and_results() -> None:
    def completed(type: str, **fields: Any) -> bytes:
        return event("item_completed", item={"type": type, **fields})

    conversation = messages(
        event("user_message", message="twice"),
        completed("UserMessage", content=[{"type": "text", "text": "twice"}]),
        completed("Reasoning", summary_text=["hm"]),
        completed("AgentMessage", content=[{"type": "Text", "text": "look"}]),
        completed("CommandExecution", id="c1", command=["ls"], status="failed", aggregated_output="no"),
        completed("FileChange", id="c2", changes={"a": {}}, stdout="ok", stderr=""),
        completed("McpToolCall", id="c3", server="s", tool="t", arguments={"x": 1}, error={"message": "bad"}),
        completed("McpToolCall", id="c4", server="s", tool="t", result={"content": [{"type": "text", "text": "4"}]}),
        completed("Unknown"),
        completed("UserMessage", content="?"),
    )
    calls = [call for message in conversation for call in message.tool_calls]
    results = [result for message in conversation for result in message.tool_results]
    assert [message.text for message in conversation if message.role == "user"] == ["twice"]
    assert [(call.tool_name, call.tool_call_id) for call in calls] == [
        ("shell", "c1"),
        ("apply_patch", "c2"),
        ("s__t", "c3"),
        ("s__t", "c4"),
    ]
    assert [(result.content, result.is_error) for result in results][:2] == [("no", True), ("ok", False)]
    assert [result.content for result in results][2:] == ["bad", "4"]


def counted(total: int) -> bytes:
    return event("token_count", info={"last_token_usage": USAGE, "total_token_usage": {"total_tokens": total}})


def test_the_first_versions_store_the_items_of_a_response_after_its_usage_and_each_call_with_its_result() -> None:
    conversation = messages(
        said("user", "hi"),
        event("token_count", info=None),
        counted(109),
        *(call("c1"), output("c1"), call("c2"), output("c2")),
        counted(109),
        counted(218),
        said("assistant", "done"),
        said("user", "more"),
        counted(218),
        said("assistant", "no usage"),
    )
    assert [message.role for message in conversation] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [call.tool_call_id for call in conversation[1].tool_calls] == ["c1", "c2"]
    used = [
        message.meta is not None and message.meta.usage is not None
        for message in conversation
        if message.role == "assistant"
    ]
    assert used == [True, True, False]


def test_usage_that_is_reported_again_belongs_to_no_answer() -> None:
    replies = messages(said("assistant", "a"), counted(109), said("user", "b"), said("assistant", "c"), counted(109))
    assert [message.meta is not None and message.meta.usage is not None for message in replies] == [True, False, False]


def test_items_of_the_first_versions_have_no_ids_and_results_with_a_success_flag() -> None:
    searched = item("web_search_call", status="completed", action={"type": "search", "query": "q"})
    failed = item("function_call_output", call_id="c1", output={"content": "no", "success": False})
    answer, result, last = messages(searched, searched, call("c1"), failed, said("assistant", "x"))
    assert [call.tool_name for call in answer.tool_calls] == ["web_search", "web_search", "exec"]
    assert (result.tool_results[0].content, result.tool_results[0].is_error) == ("no", True)
    assert last.text == "x"


def test_a_compaction_of_the_first_versions_keeps_the_prompts() -> None:
    lines = [said("user", "x" * 80_000), said("assistant", "1"), said("user", "two"), said("assistant", "2")]
    facts = facts_of(read(*lines, line("compacted", {"message": "Summary."}), said("user", "three")))
    facts_after = facts[next(place for place, fact in enumerate(facts) if isinstance(fact, CompactionSummary)) + 1 :]
    assert [fact.text for fact in facts_after if isinstance(fact, Message)] == ["two", "three"]


def test_a_name_that_a_session_was_given_is_its_title() -> None:
    renaming = event("thread_name_updated", thread_name="A name")
    assert read(said("user", "first"), renaming, said("user", "second")).header.title == "A name"
