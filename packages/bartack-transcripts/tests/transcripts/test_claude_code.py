"""What the reader makes of the records of Claude Code."""

import json
from typing import Any

from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Entry,
    Fact,
    ModelChange,
    RunEnded,
    StreamFailed,
    branch,
    heads,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, ModelRef
from bartack.nouns.parts import Image, Text, Thinking, ToolCall
from bartack.session.context.fold import ContextFold
from bartack_transcripts.claude_code import (
    CLAUDE_CODE_WRITER,
    looks_like_claude_code,
    looks_like_kode,
    read_claude_code,
    read_kode,
)
from bartack_transcripts.formats import FORMATS, Transcript, entries_of, exported, source_files

NAME = "11111111-1111-4111-8111-111111111111.jsonl"
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 4, "output_tokens": 5}
Json = dict[str, Any]


class Writer:
    """Writes the lines of a session, each after the one before it by default."""

    def __init__(self) -> None:
        self.lines: list[Json] = []
        self.last: str | None = None

    def add(self, kind: str, *, parent_uuid: str | None = "last", **fields: Any) -> str:
        uuid = f"u{len(self.lines)}"
        parent = self.last if parent_uuid == "last" else parent_uuid
        time = f"2026-01-01T00:00:{len(self.lines):02}.000Z"
        line = {"type": kind, "uuid": uuid, "parentUuid": parent, "isSidechain": False, "timestamp": time}
        self.lines.append({**line, "cwd": "/work", "gitBranch": "main", "sessionId": "s", "version": "2.1.0", **fields})
        self.last = uuid
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def block(self, id: str, block: Json, *, model: str = "claude-x", **fields: Any) -> str:
        message = {"id": id, "role": "assistant", "model": model, "content": [block], "usage": USAGE}
        return self.add("assistant", message={**message, "stop_reason": "tool_use"}, **fields)

    def note(self, kind: str, **fields: Any) -> None:
        self.lines.append({"type": kind, **fields})

    @property
    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self.lines)

    def read(self) -> Transcript:
        return read_claude_code({NAME: self.data})[0]

    def facts(self) -> list[Fact]:
        return facts_of(self.read())


def facts_of(transcript: Transcript) -> list[Fact]:
    """The facts on the newest branch, without the header and the records."""
    entries = entries_of(transcript)
    return [entry.fact for entry in branch(entries, entries[-1].id)[1:] if entry.fact.kind != "custom"]


def texts(facts: list[Fact]) -> list[str]:
    return [fact.text for fact in facts if isinstance(fact, Message)]


def call(id: str, name: str = "Bash", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: Any = "done", **fields: Any) -> list[Json]:
    return [{"type": "tool_result", "tool_use_id": id, "content": content, **fields}]


def test_the_blocks_of_an_answer_become_one_message_whose_usage_counts_once() -> None:
    writer = Writer()
    writer.user("hi")
    writer.block("m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    writer.block("m1", {"type": "text", "text": "hello"})
    prompt, answer = writer.facts()
    assert isinstance(prompt, Message)
    assert isinstance(answer, Message)
    assert answer.meta is not None
    thinking, text = answer.parts
    assert isinstance(thinking, Thinking)
    assert thinking.continuation is not None
    assert (thinking.continuation.provider, thinking.continuation.model) == ("anthropic", "claude-x")
    assert thinking.continuation.data == {"signature": "c2ln"}
    assert isinstance(text, Text)
    assert text.text == "hello"
    usage = answer.meta.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (17, 5, 10)
    assert answer.meta.response_id == "m1"
    for line in writer.lines:
        line["message"].pop("model", None)
    assert [fact.meta.usage for fact in writer.facts() if isinstance(fact, Message) and fact.meta is not None] == [
        usage
    ]


def test_parallel_calls_keep_all_their_results_whichever_comes_last() -> None:
    writer = Writer()
    writer.user("go")
    first = writer.block("m1", call("c1"))
    second = writer.block("m1", call("c2"))
    writer.user(result("c2"), parent_uuid=second)
    last = writer.user(result("c1"), parent_uuid=first)
    writer.block("m2", {"type": "text", "text": "both"}, parent_uuid=last)
    transcript = writer.read()
    roles = [fact.role for fact in facts_of(transcript) if isinstance(fact, Message)]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert len(heads(entries_of(transcript))) == 1


def test_a_result_that_is_written_late_belongs_to_its_call() -> None:
    writer = Writer()
    writer.user("go")
    first = writer.block("m1", call("c1"))
    second = writer.block("m1", call("c2"))
    last = writer.user(result("c1"), parent_uuid=first)
    answer = writer.block("m2", {"type": "text", "text": "one"}, parent_uuid=last)
    writer.user(result("c2"), parent_uuid=second)
    writer.user("more", parent_uuid=answer)
    messages = [fact for fact in writer.facts() if isinstance(fact, Message)]
    assert [result.tool_call_id for message in messages for result in message.tool_results] == ["c1", "c2"]
    assert texts(writer.facts())[-1] == "more"


def test_a_result_between_the_blocks_of_an_answer_does_not_split_it() -> None:
    writer = Writer()
    writer.user("go")
    writer.block("m1", call("c1"))
    writer.user(result("c1"))
    writer.block("m1", call("c2"))
    writer.user(result("c2"))
    messages = [fact for fact in writer.facts() if isinstance(fact, Message)]
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [call_part.tool_call_id for call_part in messages[1].tool_calls] == ["c1", "c2"]


def test_going_back_to_an_earlier_prompt_is_a_branch() -> None:
    writer = Writer()
    writer.user("one")
    answer = writer.block("m1", {"type": "text", "text": "first"})
    writer.user("two")
    writer.block("m2", {"type": "text", "text": "second"})
    writer.user("another two", parent_uuid=answer)
    transcript = writer.read()
    assert texts(facts_of(transcript)) == ["one", "first", "another two"]
    entries = entries_of(transcript)
    for head in heads(entries):
        export = exported(entries, "claude-code", CLAUDE_CODE_WRITER, head=head, new_id="n")
        expected = [entry.fact for entry in branch(entries, head)]
        assert texts(facts_of(read_claude_code(export.files)[0])) == texts(expected)
        assert export.is_exact == (head == entries[-1].id)


def test_a_compaction_keeps_the_messages_that_it_names() -> None:
    writer = Writer()
    writer.user("one")
    kept_uuid = writer.block("m1", {"type": "text", "text": "kept"})
    details = {"preTokens": 100, "postTokens": 10, "preservedMessages": {"uuids": [kept_uuid]}}
    writer.add("system", subtype="compact_boundary", parent_uuid=None, compactMetadata=details)
    writer.user("what happened", isCompactSummary=True)
    writer.user("go on", parent_uuid=kept_uuid)
    transcript = writer.read()
    entries = entries_of(transcript)
    assert len(heads(entries)) == 1
    compaction = next(entry.fact for entry in entries if isinstance(entry.fact, CompactionSummary))
    assert (compaction.summary, compaction.tokens_before, compaction.tokens_after) == ("what happened", 100, 10)
    assert next(entry for entry in entries if entry.id == compaction.first_kept_entry_id).fact.kind == "message"
    assert texts(facts_of(transcript)) == ["one", "kept", "go on"]


def test_a_compaction_follows_the_message_that_it_names() -> None:
    writer = Writer()
    root = writer.user("one")
    writer.user("left")
    kept_uuid = writer.user("kept", parent_uuid=root)
    writer.add("progress", parent_uuid="u1")
    details = {"preservedSegment": {"headUuid": kept_uuid, "tailUuid": kept_uuid}}
    writer.add(
        "system", subtype="compact_boundary", parent_uuid=None, logicalParentUuid=kept_uuid, compactMetadata=details
    )
    writer.user("summary", isCompactSummary=True)
    entries = entries_of(writer.read())
    context = ContextFold.of(branch(entries, entries[-1].id))
    assert [item.message.text for item in context.items] == ["kept"]


def test_text_that_the_program_injects_is_synthetic() -> None:
    writer = Writer()
    writer.user("<command-name>/exit</command-name>")
    writer.user("caveat", isMeta=True)
    writer.user("typed")
    parts = [part for fact in writer.facts() if isinstance(fact, Message) for part in fact.parts]
    assert [part.synthetic for part in parts if isinstance(part, Text)] == [True, True, False]


def test_an_api_error_is_a_failed_stream() -> None:
    writer = Writer()
    writer.user("hi")
    block = {"type": "text", "text": "API Error: 429 slow down"}
    writer.block("x", block, model="<synthetic>", isApiErrorMessage=True)
    failed = writer.facts()[-1]
    assert isinstance(failed, StreamFailed)
    assert (failed.error.error_code, failed.error.status) == (ErrorCode.RATE_LIMITED, 429)


def test_an_interruption_ends_the_turn_as_aborted() -> None:
    writer = Writer()
    writer.user("hi")
    writer.user([{"type": "text", "text": "[Request interrupted by user]"}])
    assert writer.facts()[-1] == RunEnded(status="aborted", reason="user")


def test_another_model_is_a_change_of_models() -> None:
    writer = Writer()
    writer.block("m1", {"type": "text", "text": "a"})
    writer.block("m2", {"type": "text", "text": "b"}, model="claude-y")
    changes = [fact for fact in writer.facts() if isinstance(fact, ModelChange)]
    assert [(change.model.model, change.previous and change.previous.model) for change in changes] == [
        ("claude-y", "claude-x")
    ]


def shown(transcript: Transcript) -> list[str]:
    """The messages that a model gets, by their last lines."""
    entries = entries_of(transcript)
    context = ContextFold.of(branch(entries, entries[-1].id))
    messages = [*([context.summary] if context.summary else []), *(item.message for item in context.items)]
    return [message.text.splitlines()[-1] for message in messages]


def test_a_summary_of_the_end_follows_the_beginning_that_was_kept() -> None:
    writer = Writer()
    first = writer.user("one")
    answer_uuid = writer.block("m1", {"type": "text", "text": "two"})
    last = writer.user("three")
    preserved = {"uuids": [first, answer_uuid], "anchorUuid": f"u{len(writer.lines)}"}
    details = {"preservedMessages": preserved, "preTokens": 100}
    writer.add("system", subtype="compact_boundary", parent_uuid=None, logicalParentUuid=last, compactMetadata=details)
    writer.user("They counted.", isCompactSummary=True)
    writer.user("four")
    transcript = writer.read()
    assert shown(transcript) == ["one", "two", "They counted.", "four"]
    entries = entries_of(transcript)
    summary = next(entry.fact for entry in entries if isinstance(entry.fact, BranchSummary))
    abandoned = branch(entries, summary.from_entry_id)
    assert texts([entry.fact for entry in abandoned]) == ["one", "two", "three"]
    # What follows the summary in another program is the same.
    export = exported(entries, "codex", FORMATS["codex"].writer or CLAUDE_CODE_WRITER, new_id="0" * 32)
    (copy,) = FORMATS["codex"].read(export.files)
    assert shown(copy) == ["one", "two", "They counted.", "four"]


def test_a_rewound_session_ends_where_the_user_went_back_to() -> None:
    writer = Writer()
    writer.user("one")
    answer = writer.block("m1", {"type": "text", "text": "two"})
    writer.user("three")
    writer.note("last-prompt", leafUuid=answer)  # behind the conversation, which goes on
    assert shown(writer.read()) == ["one", "two", "three"]
    writer.note("last-prompt", leafUuid=answer, explicit=True)
    writer.note("mode", mode="normal")
    assert shown(writer.read()) == ["one", "two"]
    writer.user("four", parent_uuid=answer)
    assert shown(writer.read()) == ["one", "two", "four"]
    writer.note("last-prompt", leafUuid="u2")  # another branch
    assert shown(writer.read()) == ["one", "two", "three"]
    writer.note("last-prompt", explicit=True)
    writer.note("last-prompt", leafUuid="?", explicit=True)
    assert shown(writer.read()) == ["one", "two", "three"]
    writer.note("last-prompt", leafUuid=None, explicit=True)
    assert shown(writer.read()) == []
    export = exported(entries_of(writer.read()), "claude-code", CLAUDE_CODE_WRITER, new_id="0" * 32)
    assert export.files == {NAME: writer.data}


def test_a_message_that_the_program_only_shows_is_not_sent() -> None:
    writer = Writer()
    writer.user("one")
    writer.user("shown", isVirtual=True)
    transcript = writer.read()
    assert texts(facts_of(transcript)) == ["one", "shown"]
    assert shown(transcript) == ["one"]


def test_images_in_prompts_and_results_are_kept() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    writer = Writer()
    writer.user([{"type": "text", "text": "look"}, image])
    writer.block("m1", call("c1"))
    writer.user(result("c1", [image]))
    prompt, _, outcome = writer.facts()
    assert isinstance(prompt, Message)
    assert isinstance(prompt.parts[1], Image)
    assert isinstance(outcome, Message)
    assert isinstance(outcome.tool_results[0].content, tuple)


def test_a_repeated_call_id_gets_a_new_one_and_its_own_result() -> None:
    writer = Writer()
    for number in ("1", "2"):
        writer.user("go")
        writer.block(f"m{number}", call("c1"))
        writer.user(result("c1", number))
    messages = [fact for fact in writer.facts() if isinstance(fact, Message)]
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
    assert [call_part.tool_call_id for call_part in calls] == ["c1", "c1~2"]
    assert calls[1].metadata == {"originalId": "c1"}
    assert [result_part.content for message in messages for result_part in message.tool_results] == ["1", "2"]


def test_a_result_without_a_call_and_a_second_result_are_kept_as_records_only() -> None:
    writer = Writer()
    writer.user(result("nothing"))
    writer.block("m1", call("c1"))
    writer.user(result("c1", "one"))
    writer.user(result("c1", "two"))
    transcript = writer.read()
    results = [
        result_part.content
        for fact in facts_of(transcript)
        if isinstance(fact, Message)
        for result_part in fact.tool_results
    ]
    assert results == ["one"]
    assert transcript.report.counts["user", "opaque"] == 2


def test_a_sidechain_in_the_file_is_a_session_of_its_own_linked_to_its_call() -> None:
    writer = Writer()
    writer.user("delegate")
    outer = writer.block("m1", call("c1", "Task", prompt="count"))
    writer.user("count", isSidechain=True, parent_uuid=None)
    writer.block("m2", {"type": "text", "text": "four"}, isSidechain=True)
    writer.user(result("c1", "four"), parent_uuid=outer)
    main, child = read_claude_code({NAME: writer.data})
    assert texts(facts_of(child)) == ["count", "four"]
    assert child.header.metadata is not None
    assert child.header.metadata["parentSession"] == main.session_id
    assert child.header.metadata["toolCallId"] == "c1"
    last = facts_of(main)[-1]
    assert isinstance(last, Message)
    assert last.tool_results[0].metadata == {"sessionId": child.session_id}
    assert source_files(entries_of(main)) == {NAME: writer.data}
    assert not any(entry.fact.kind == "custom" for entry in entries_of(child))


def test_sidechains_that_were_asked_the_same_belong_to_the_calls_in_their_order() -> None:
    writer = Writer()
    writer.user("delegate")
    outer = [writer.block("m1", call(id, "Task", prompt="count")) for id in ("c1", "c2")]
    for _ in outer:
        writer.user("count", isSidechain=True, parent_uuid=None)
    for id, uuid in zip(("c1", "c2"), outer, strict=True):
        writer.user(result(id), parent_uuid=uuid)
    main, first, second = read_claude_code({NAME: writer.data})
    results = [part for fact in facts_of(main) if isinstance(fact, Message) for part in fact.tool_results]
    assert [part.metadata for part in results] == [{"sessionId": child.session_id} for child in (first, second)]


def test_a_repeated_line_of_a_sidechain_begins_no_other_session() -> None:
    writer = Writer()
    writer.user("delegate")
    writer.user("count", isSidechain=True, parent_uuid=None)
    writer.lines.append(writer.lines[-1])
    _, child = read_claude_code({NAME: writer.data})
    assert texts(facts_of(child)) == ["count"]


def test_the_file_of_a_sub_agent_names_the_session_and_the_call() -> None:
    writer = Writer()
    writer.user("count", isSidechain=True, agentId="a1")
    agent_info = json.dumps({"agentType": "general-purpose", "toolUseId": "c1"}).encode()
    files = {"main/subagents/agent-a1.jsonl": writer.data, "main/subagents/agent-a1.meta.json": agent_info}
    (child,) = read_claude_code(files)
    assert child.session_id == "claude-code:s/agent-a1"
    assert child.header.metadata is not None
    assert child.header.metadata["parentSession"] == "claude-code:s"
    assert child.header.metadata["toolCallId"] == "c1"
    assert source_files(entries_of(child)) == files


def test_a_result_of_a_sub_agent_names_its_session() -> None:
    writer = Writer()
    writer.block("m1", call("c1", "Agent", prompt="count"))
    writer.user(result("c1"), toolUseResult={"agentId": "a1"})
    last = writer.facts()[-1]
    assert isinstance(last, Message)
    session = "claude-code:s/agent-a1"
    assert last.tool_results[0].metadata == {"sessionId": session}


def test_an_answer_that_ends_the_file_on_another_branch_is_kept() -> None:
    writer = Writer()
    writer.block("m1", {"type": "text", "text": "one"})
    writer.user("a new beginning", parent_uuid=None)
    writer.block("m1", {"type": "text", "text": "one"})
    assert source_files(entries_of(writer.read())) == {NAME: writer.data}


def test_titles_directory_branch_and_version_are_in_the_header() -> None:
    writer = Writer()
    writer.user("the first prompt")
    header = writer.read().header
    assert (header.title, header.origin) == ("the first prompt", "claude-code")
    assert header.metadata == {"program": "claude-code", "directory": "/work", "gitBranch": "main", "version": "2.1.0"}
    writer.note("summary", summary="A summary", leafUuid="u0")
    assert writer.read().header.title == "A summary"
    writer.note("custom-title", customTitle="Mine", sessionId="s")
    assert writer.read().header.title == "Mine"


def test_damaged_and_torn_lines_are_reported_and_kept() -> None:
    writer = Writer()
    writer.user("one")
    data = b"{broken\n\n" + writer.data + b'\xff\xfe"\r\n[1]\n' + b"[" * 5000 + b"\n" + b'{"type": "us'
    (transcript,) = read_claude_code({NAME: data})
    assert [problem.place for problem in transcript.report.problems] == [0, 3, 4, 5, 6]
    assert "torn" in transcript.report.problems[-1].what
    assert texts(facts_of(transcript)) == ["one"]
    assert source_files(entries_of(transcript)) == {NAME: data}


def test_half_a_surrogate_pair_is_readable_text_and_its_bytes_are_kept() -> None:
    data = b'{"type":"user","uuid":"u","message":{"role":"user","content":"cut \\ud83d"}}\n'
    (transcript,) = read_claude_code({NAME: data})
    assert texts(facts_of(transcript)) == ["cut \ufffd"]
    assert source_files(entries_of(transcript)) == {NAME: data}


def test_a_file_is_recognised_by_its_records() -> None:
    writer = Writer()
    writer.user("hi")
    assert looks_like_claude_code(NAME, writer.data)
    assert not looks_like_kode(NAME, writer.data)
    assert not looks_like_claude_code("x.jsonl", b'{"id":"x"}\n')
    writer.user("hi", agentId="main")
    assert looks_like_kode(NAME, writer.data)
    assert read_kode({NAME: writer.data})[0].session_id == "kode:s"
    assert read_claude_code({}) == []


def test_entries_get_the_times_of_their_records() -> None:
    writer = Writer()
    writer.user("one")
    writer.note("mode", mode="default")
    entries: list[Entry] = entries_of(writer.read())
    assert {entry.timestamp.isoformat() for entry in entries} == {"2026-01-01T00:00:00+00:00"}


def test_a_summary_of_another_session_is_not_the_title() -> None:
    writer = Writer()
    prompt = writer.user("My prompt")
    writer.note("summary", summary="Of another session", leafUuid="elsewhere")
    assert writer.read().header.title == "My prompt"
    writer.note("summary", summary="Of this one", leafUuid=prompt)
    assert writer.read().header.title == "Of this one"


def test_prompts_that_were_queued_may_have_images_and_may_be_notices() -> None:
    writer = Writer()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    typed = {"type": "queued_command", "prompt": [{"type": "text", "text": "and this"}, image]}
    notice = {"type": "queued_command", "prompt": "A task is done", "commandMode": "task-notification"}
    writer.user("hi")
    writer.add("attachment", attachment=typed)
    writer.add("attachment", attachment=notice)
    _, first, second = (fact for fact in writer.facts() if isinstance(fact, Message))
    assert [type(part) for part in first.parts] == [Text, Image]
    assert [part.synthetic for part in (*first.parts, *second.parts) if isinstance(part, Text)] == [False, True]


def test_blocks_of_a_newer_version_are_left_out_and_the_others_read() -> None:
    writer = Writer()
    writer.user("hi")
    for block in ({"type": "text", "text": "look"}, {"type": "tool_use", "id": "c1", "name": "Bash"}):
        writer.block("m1", block)
    writer.block("m1", {"type": "tool_use", "name": "no id"})
    writer.user(result("c1", [{"type": "text", "text": "fine"}]))
    transcript = writer.read()
    _, answer, done = (fact for fact in facts_of(transcript) if isinstance(fact, Message))
    assert (answer.text, [call.tool_call_id for call in answer.tool_calls]) == ("look", ["c1"])
    assert [result_part.tool_call_id for result_part in done.tool_results] == ["c1"]
    assert transcript.report.counts["content", "opaque"] == 1
    assert "id" in transcript.report.problems[0].what
    assert source_files(entries_of(transcript)) == {NAME: writer.data}


def test_a_branch_has_its_own_models() -> None:
    writer = Writer()
    first = writer.user("one")
    writer.block("m1", {"type": "text", "text": "two"}, model="claude-x")
    writer.user("three")
    writer.block("m2", {"type": "text", "text": "four"}, model="claude-y")
    writer.user("again", parent_uuid=first)
    writer.block("m3", {"type": "text", "text": "five"}, model="claude-y")
    writer.user("and again")
    writer.block("m4", {"type": "text", "text": "six"}, model="claude-x")
    y, x = ModelRef("anthropic", "claude-y"), ModelRef("anthropic", "claude-x")
    entries = entries_of(writer.read())
    changes = [
        [entry.fact for entry in branch(entries, head) if isinstance(entry.fact, ModelChange)]
        for head in heads(entries)
    ]
    assert changes == [[ModelChange(model=y, previous=x)], [ModelChange(model=x, previous=y)]]


def test_a_line_that_is_in_the_file_already_changes_nothing() -> None:
    writer = Writer()
    writer.user("one")
    writer.block("m1", {"type": "text", "text": "two"})
    writer.user("three")
    writer.block("m2", {"type": "text", "text": "four"})
    for count in range(1, 5):
        data = writer.data + b"".join(writer.data.splitlines(keepends=True)[:count])
        (transcript,) = read_claude_code({NAME: data})
        assert shown(transcript) == ["one", "two", "three", "four"]
        assert transcript.report.counts["repeated line", "read"] == count
        assert source_files(entries_of(transcript)) == {NAME: data}
    writer.lines.append(writer.lines[0] | {"message": {"role": "user", "content": "other"}})
    assert shown(writer.read()) == ["other"]


def test_a_session_that_a_command_began_is_named_after_it() -> None:
    writer = Writer()
    text = (
        "<command-message>init</command-message>\n<command-name>/init</command-name>\n<command-args>fast</command-args>"
    )
    writer.user(text)
    writer.user("Please analyze this codebase.", isMeta=True)
    assert read_claude_code({NAME: writer.data})[0].header.title == "/init fast"
    writer.user("Thanks")
    assert read_claude_code({NAME: writer.data})[0].header.title == "Thanks"
