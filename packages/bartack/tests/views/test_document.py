"""The document view: how facts are represented, and how it is read back."""

import logging
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from bartack import (
    CompactionSummary,
    FileRef,
    Image,
    Message,
    Meta,
    PartValidationError,
    Redaction,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    tool_message,
    user,
)
from bartack.nouns import ids
from bartack.nouns.deltas import TOKEN_COUNTS
from bartack.nouns.entries import (
    Fact,
    ModelChange,
    RunStarted,
    RuntimeInit,
    SessionHeader,
    SystemPromptOverride,
    ThinkingLevelChange,
    ToolProgress,
    ToolStarted,
)
from bartack.nouns.errors import MissingRequiredField
from bartack.nouns.messages import FileDiff, ModelRef, Step, Summary, Workspace
from bartack.nouns.parts import Span
from bartack.nouns.wire import LEDGER
from bartack.session.tool_state import NO_OUTPUT
from bartack.views import document
from bartack.views.document_parts import ToolPart, UserInfo
from tests.sample_session import SESSION, at, chain


def shown(*facts: Fact) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = document.dump(chain(*facts))["messages"]
    return messages


def ms(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


MESSAGES = document.dump(SESSION)["messages"]


def parts_of(message: dict[str, Any], type: str) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == type]


def test_every_part_has_the_three_ids_and_they_are_uuids() -> None:
    """003-3.1.1, 003-BR-01, 003-BR-04, D-7.3, D-1.7"""
    for message in MESSAGES:
        for part in message["parts"]:
            assert UUID(part["id"])
            assert part["sessionID"] == ids.as_uuid("s")
            assert part["messageID"] == message["info"]["id"]
            assert UUID(part["messageID"])


def test_the_id_of_a_part_is_unique_in_its_message() -> None:
    """003-BR-02"""
    for message in MESSAGES:
        part_ids = [part["id"] for part in message["parts"]]
        assert len(set(part_ids)) == len(part_ids)


def test_a_duplicate_part_id_is_kept_for_the_first_part_only() -> None:
    """003-BR-02"""
    (message,) = shown(user(Text("a", id="p1"), Text("b", id="p1")))
    first, second = (part["id"] for part in message["parts"])
    assert first == "p1" != second


def test_a_uuid_is_kept_and_other_ids_map_to_stable_uuids() -> None:
    """D-7.3, 003-BR-04"""
    uuid = "0198c0de-0000-7000-8000-000000000001"
    assert ids.as_uuid(uuid) == uuid
    assert ids.as_uuid("msg_1") == ids.as_uuid("msg_1") != ids.as_uuid("msg_2")
    assert UUID(ids.as_uuid("msg_1")).version == 5


def test_a_user_message_has_its_text_and_its_files() -> None:
    """003-7.2.2, 003-3.2.1, 003-3.7.1"""
    question = MESSAGES[0]
    assert question["info"]["role"] == "user"
    assert parts_of(question, "text")[0]["text"] == "Rain?"
    image, file = parts_of(question, "file")
    assert (image["mime"], image["url"]) == ("image/png", "data:image/png;base64,iQ==")
    assert (file["filename"], file["url"]) == ("notes.txt", "file://notes.txt")


def test_a_step_has_a_start_its_content_and_a_finish() -> None:
    """003-7.2.2, 003-3.6.1, 003-3.6.2, 003-3.9.4, D-1.7"""
    step = MESSAGES[1]
    types = [part["type"] for part in step["parts"]]
    assert types == ["step-start", "reasoning", "text", "tool", "tool", "step-finish"]
    finish = step["parts"][-1]
    assert (finish["reason"], finish["cost"]) == ("tool_calls", 0.25)
    assert finish["tokens"] == {"input": 20, "output": 7, "reasoning": 3, "cache": {"read": 5, "write": 0}}


def test_an_unfinished_answer_has_no_step_finish() -> None:
    """003-7.2.2"""
    (message,) = shown(assistant("partial"))
    assert [part["type"] for part in message["parts"]] == ["step-start", "text"]


def test_the_info_of_an_assistant_has_cost_tokens_agent_path_and_times() -> None:
    """003-3.8.2, 003-3.9.1, 003-3.9.2, 003-3.9.3, 003-BR-12, 003-BR-13, 003-BR-14"""
    info = MESSAGES[1]["info"]
    assert info == {
        "role": "assistant",
        "id": ids.as_uuid("m4"),
        "time": {"created": ms(4), "completed": ms(4.5)},
        "agent": "main",
        "model": {"providerID": "anthropic", "modelID": "claude"},
        "cost": 0.25,
        "tokens": {"input": 20, "output": 7, "reasoning": 3, "cache": {"read": 5, "write": 0}},
        "path": {"cwd": "src", "root": "."},
    }


def test_times_are_whole_milliseconds_here_and_exact_in_the_ledger() -> None:
    """003-7.1.5, D-7.6"""
    (entry,) = chain(replace(user("hi"), timestamp=at(1.001999)))
    created = document.dump([entry])["messages"][0]["info"]["time"]["created"]
    assert (type(created), created) == (int, ms(1.001))
    assert LEDGER.dump(entry)["payload"]["timestamp"].endswith(".001999Z")


def test_fields_without_a_fact_are_omitted() -> None:
    """003-BR-12: a cost that the provider did not report is not made up."""
    assert MESSAGES[2]["info"].keys() == {"role", "id", "time"}


def test_the_info_of_a_user_has_all_its_fields() -> None:
    """003-3.8.1"""
    meta = Meta(
        agent="main",
        model=ModelRef("openai", "gpt"),
        summary=Summary(title="Rain", body="About rain", diffs=(FileDiff(file="a.py"),)),
        system="Be brief.",
        tools={"weather": True},
        variant="b",
    )
    (message,) = shown(user("hi", meta=meta))
    assert message["info"] == {
        "role": "user",
        "id": ids.as_uuid("m0"),
        "time": {"created": ms(0)},
        "agent": "main",
        "model": {"providerID": "openai", "modelID": "gpt"},
        "summary": {"title": "Rain", "body": "About rain", "diffs": [{"file": "a.py"}]},
        "system": "Be brief.",
        "tools": {"weather": True},
        "variant": "b",
    }


def test_text_keeps_its_flags_times_and_metadata() -> None:
    """003-3.2.1, 003-3.2.2, 003-3.2.3"""
    text = Text("x", id="p1", synthetic=True, ignored=True, time=Span(start=at(1), end=at(2)), metadata={"a": 1})
    (message,) = shown(user(text))
    (part,) = message["parts"]
    assert part["id"] == "p1"
    assert (part["synthetic"], part["ignored"], part["metadata"]) == (True, True, {"a": 1})
    assert part["time"] == {"start": ms(1), "end": ms(2)}


def test_reasoning_always_has_a_start() -> None:
    """003-3.3.1"""
    timed, bare, open_ended = (
        Thinking("a", time=Span(start=at(1), end=at(2)), metadata={"b": 1}),
        Thinking("b"),
        Thinking("c", time=Span()),
    )
    (message,) = shown(assistant(timed, bare, open_ended))
    first, second, third = parts_of(message, "reasoning")
    assert (first["time"], first["metadata"]) == ({"start": ms(1), "end": ms(2)}, {"b": 1})
    assert second["time"] == third["time"] == {"start": ms(0)}


def test_a_tool_part_has_the_state_of_its_call() -> None:
    """003-3.5.1, 003-7.2.4, 003-3.4.4, 003-3.4.5, 003-BR-07, 003-BR-08"""
    done, denied = parts_of(MESSAGES[1], "tool")
    assert (done["callID"], done["tool"]) == ("c1", "weather")
    assert done["state"]["status"] == "completed"
    assert done["state"]["output"] == "rain"
    assert done["state"]["title"] == "Weather in Paris"
    assert done["state"]["metadata"] == {"percent": 50}
    assert done["state"]["time"] == {"start": ms(5), "end": ms(8), "compacted": ms(12)}
    (attachment,) = done["state"]["attachments"]
    assert (attachment["type"], attachment["mime"]) == ("file", "image/png")
    assert denied["state"] == {
        "status": "error",
        "input": {},
        "error": "denied",
        "time": {"start": ms(7), "end": ms(7)},
    }


def test_the_state_of_a_call_changes_as_the_session_grows() -> None:
    """003-7.2.4, 003-3.4.2, 003-3.4.3"""
    states = [parts_of(document.dump(SESSION[:end])["messages"][1], "tool")[0]["state"] for end in (5, 6, 7, 9)]
    assert [state["status"] for state in states] == ["pending", "running", "running", "completed"]
    assert states[0] == {"status": "pending", "input": {"city": "Paris"}, "raw": '{"city":"Paris"}'}
    assert states[1] == {
        "status": "running",
        "input": {"city": "Paris"},
        "title": "Weather in Paris",
        "time": {"start": ms(5)},
    }
    assert states[2]["metadata"] == {"percent": 50}


def test_an_empty_output_is_shown_as_a_placeholder_and_read_back_as_empty() -> None:
    """003-3.4.4, 003-BR-09, D-7.4"""
    entries = chain(assistant(ToolCall("c1", "quiet", {})), tool_message(ToolResult("c1", "")))
    view = document.dump(entries)
    (part,) = parts_of(view["messages"][0], "tool")
    assert part["state"]["output"] == NO_OUTPUT
    assert part["state"]["title"] == "quiet"
    assert document.load(view)[-1].fact.tool_results[0].content == ""  # type: ignore[union-attr]


def test_a_summary_appears_only_after_a_compaction() -> None:
    """003-BR-11"""
    assert "summary" not in document.dump(SESSION[:12])["messages"][0]["info"]
    text = "They talked about rain."
    assert MESSAGES[0]["info"]["summary"] == {"title": text, "body": text}


def test_a_compaction_marks_only_the_outputs_it_removed() -> None:
    """003-3.4.4"""
    calls = [assistant(ToolCall(f"c{n}", "t", {})) for n in (1, 2)]
    results = [tool_message(ToolResult(f"c{n}", "x")) for n in (1, 2)]
    view = shown(
        user("hi"), calls[0], results[0], calls[1], results[1], CompactionSummary(summary="s", first_kept_entry_id="e3")
    )
    times = [parts_of(message, "tool")[0]["state"]["time"] for message in view[1:]]
    assert ["compacted" in time for time in times] == [True, False]


def test_what_the_document_cannot_represent_is_counted() -> None:
    view = document.dump(
        [
            *SESSION,
            *chain(tool_message(ToolResult("c9", "x")), CompactionSummary(summary="s", first_kept_entry_id="e1")),
        ]
    )
    assert list(view)[:3] == ["view", "sessionID", "omitted"]
    assert view["omitted"] == {
        "continuation": 1,
        "meta.duration_ms": 1,
        "meta.koding": 1,
        "meta.response_id": 1,
        "orphan tool_result": 1,
        "run_ended": 1,
        "run_started": 1,
        "session_header": 1,
        "stream_failed": 1,
        "system message": 1,
    }
    assert document.dump(chain(CompactionSummary(summary="s", first_kept_entry_id="e1")))["omitted"] == {
        "compaction_summary": 1
    }


def test_redacted_content_is_not_shown() -> None:
    """D-5.6"""
    (message,) = shown(user("secret"), Redaction(entry_id="e0"))
    assert parts_of(message, "text")[0]["text"] == "[redacted]"


# -- reading back


def facts_of(view: Any) -> list[Fact]:
    return [entry.fact for entry in document.load(view)]


def test_the_document_reads_back() -> None:
    """D-1.7.1"""
    view = document.dump(SESSION)
    again = document.dump(document.load(view))
    assert again["messages"] == view["messages"]


def test_a_running_tool_reads_back_as_its_start_and_its_progress() -> None:
    """D-1.7.1"""
    started = ToolStarted(tool_call_id="c1", tool_name="t", arguments={}, title="T")
    for facts in ([started], [started, ToolProgress(tool_call_id="c1", content="half", metadata={"a": 1})]):
        view = document.dump(chain(assistant(ToolCall("c1", "t", {})), *facts))
        assert document.dump(document.load(view))["messages"] == view["messages"]
        assert [fact.kind for fact in facts_of(view)][2:] == ["tool_started", "tool_progress"][: len(facts)]


def test_a_pending_call_reads_back_with_invalid_argument_text() -> None:
    """003-BR-06"""
    broken = assistant(ToolCall("c1", "t", {}, raw_args_text='{"a'))
    (message,) = facts_of(document.dump(chain(broken)))[1:]
    assert isinstance(message, Message)
    assert message.tool_calls[0].raw_args_text == '{"a'


def test_a_message_of_several_steps_is_split_into_one_message_each() -> None:
    """D-7.9"""
    view = document.dump(
        chain(assistant("one", meta=Meta(finish_reason="tool_calls", usage=Usage(5, 1), completed_at=at(1))))
    )
    message = view["messages"][0]
    second = [{**part, "id": part["id"][:-4] + "beef"} for part in message["parts"]]
    bare = [{**message["parts"][1], "id": "p-bare"}]
    message["parts"] += [*second, *bare]
    messages = [fact for fact in facts_of(view) if isinstance(fact, Message)]
    assert [fact.text for fact in messages] == ["one", "one", "one"]
    assert len({fact.id for fact in messages}) == 3
    assert messages[0].id == message["info"]["id"]
    metas = [fact.meta or Meta() for fact in messages]
    assert [meta.completed_at for meta in metas] == [None, None, at(1)]
    assert [meta.finish_reason for meta in metas] == ["tool_calls", "tool_calls", None]
    assert metas[0].usage == Usage(5, 1)


def test_an_unknown_finish_reason_is_kept_beside_other() -> None:
    """D-3.4.6"""
    view = document.dump(chain(assistant("x", meta=Meta(finish_reason="other", raw_finish_reason="flagged"))))
    assert view["messages"][0]["parts"][-1]["reason"] == "flagged"
    message = facts_of(view)[1]
    assert isinstance(message, Message)
    assert message.meta is not None
    assert (message.meta.finish_reason, message.meta.raw_finish_reason) == ("other", "flagged")
    assert (
        document.dump(chain(assistant("x", meta=Meta(finish_reason="other"))))["messages"][0]["parts"][-1]["reason"]
        == "other"
    )


def test_snapshots_of_a_step_survive() -> None:
    """003-3.6.1, 003-3.6.2"""
    meta = Meta(
        finish_reason="stop", step=Step(start_id="s1", start_snapshot="a1", finish_id="s2", finish_snapshot="b2")
    )
    view = document.dump(chain(assistant("x", meta=meta)))
    assert [part.get("snapshot") for part in view["messages"][0]["parts"]] == ["a1", None, "b2"]
    message = facts_of(view)[1]
    assert isinstance(message, Message)
    assert message.meta == meta


@pytest.mark.parametrize(
    "part",
    [
        Image("image/png", data=b"x"),
        Image("image/png", data=b"y", metadata={"name": "a.png"}),
        Image("image/png", url="https://example.org/a.png"),
        Image("image/png", url="data:image/png;base64,???"),
        FileRef("a.txt", mime_type="text/plain"),
        FileRef(",\x80", mime_type="text/plain"),
        FileRef("a.pdf", mime_type="application/pdf", data=b"%PDF"),
        FileRef("a.pdf", mime_type="application/pdf", url="https://example.org/a.pdf"),
        FileRef("https://example.org/a.bin", mime_type="x/y", url="https://example.org/a.bin"),
        FileRef("a.py", mime_type="x/y", metadata={"source": {"type": "symbol", "path": "a.py", "name": "f"}}),
    ],
    ids=lambda part: f"{part.kind}-{part.url or part.data}",
)
def test_files_read_back_as_they_were(part: Image | FileRef) -> None:
    """003-3.7.1, 003-3.7.2"""
    view = document.dump(chain(user(part)))
    message = facts_of(view)[1]
    assert isinstance(message, Message)
    (back,) = message.parts
    assert document.dump(document.load(view))["messages"] == view["messages"]
    assert isinstance(back, Image | FileRef)
    assert (back.data, back.url, back.mime_type, back.metadata) == (part.data, part.url, part.mime_type, part.metadata)


def test_a_source_that_is_not_one_of_003_is_counted_as_omitted() -> None:
    """003-3.7.2"""
    odd = FileRef("a.py", metadata={"source": "elsewhere"})
    calls = assistant(ToolCall("c1", "read", {}))
    view = document.dump(chain(user(odd), calls, tool_message(ToolResult("c1", (odd,)))))
    assert view["omitted"] == {"file source": 2}
    assert "source" not in view["messages"][0]["parts"][0]


def test_a_user_message_shows_the_run_and_the_settings_that_it_met() -> None:
    """003-3.8.1"""
    first, second = ModelRef("openai", "gpt"), ModelRef("anthropic", "claude")
    view = document.dump(
        chain(
            user("before"),
            RunStarted(agent="main", model=first, tools=("weather",)),
            user("one"),
            ModelChange(model=second),
            RunStarted(agent="other"),
            ThinkingLevelChange(level="high"),
            SystemPromptOverride(text="Be kind."),
            user("two"),
            ThinkingLevelChange(level="default"),
            SystemPromptOverride(text=None),
            user("three", meta=Meta(agent="mine")),
        )
    )
    before, with_tools, changed, with_agent = (message["info"] for message in view["messages"])
    keys = {"agent", "model", "system", "tools", "variant"}
    assert not keys & before.keys()
    assert {key: with_tools[key] for key in keys & with_tools.keys()} == {
        "agent": "main",
        "model": {"providerID": "openai", "modelID": "gpt"},
        "tools": {"weather": True},
    }
    claude = {"providerID": "anthropic", "modelID": "claude"}
    assert {key: changed[key] for key in keys & changed.keys()} == {
        "agent": "other",
        "model": claude,
        "system": "Be kind.",
        "variant": "high",
    }
    assert {key: with_agent[key] for key in keys & with_agent.keys()} == {"agent": "mine", "model": claude}
    assert document.dump(document.load(view))["messages"] == view["messages"]


def test_an_answer_shows_the_directory_of_the_runtime() -> None:
    """003-3.8.2"""
    (answer,) = shown_answers(RuntimeInit(runtime="local", data={"root": "/work"}), assistant("x"))
    assert answer["info"]["path"] == {"cwd": "/work", "root": "/work"}
    (answer,) = shown_answers(
        RuntimeInit(runtime="local", data={"root": "/work"}), assistant("x", meta=Meta(path=Workspace("src", ".")))
    )
    assert answer["info"]["path"] == {"cwd": "src", "root": "."}
    (answer,) = shown_answers(RuntimeInit(runtime="remote", data={"host": "h"}), assistant("x"))
    assert "path" not in answer["info"]


def test_an_answer_without_an_agent_shows_that_of_its_run() -> None:
    """003-3.8.2"""
    first, second = shown_answers(RunStarted(agent="mine"), assistant("x"), assistant("y", meta=Meta(agent="other")))
    assert (first["info"]["agent"], second["info"]["agent"]) == ("mine", "other")


def shown_answers(*facts: Fact) -> list[dict[str, Any]]:
    return [message for message in shown(*facts) if message["info"]["role"] == "assistant"]


def test_a_step_ends_with_the_snapshot_that_the_next_one_begins_with() -> None:
    """003-3.6.1, 003-3.6.2"""

    def step(snapshot: str | None, *content: str | ToolCall) -> Message:
        return assistant(*content, meta=Meta(finish_reason="stop", step=Step(start_snapshot=snapshot)))

    messages = shown(
        step("a", ToolCall("c1", "write", {})),
        tool_message(ToolResult("c1", "done")),
        step("b", "Thanks."),
        step(None, ToolCall("c2", "write", {})),
        step("c", ToolCall("c3", "search", {}, executed_by="provider", result=ToolResult("c3", "x"))),
        step("d", ToolCall("c4", "write", {})),
    )
    ends = [
        [part.get("snapshot") for part in message["parts"] if part["type"].startswith("step")] for message in messages
    ]
    assert ends == [["a", "b"], ["b", "b"], [None, None], ["c", "c"], ["d", None]]


@pytest.mark.parametrize(
    ("summary", "title"),
    [("# Rain\n\nIt rained.", "Rain"), ("\n---\n- **Paris**: rain", "Paris**: rain"), ("x" * 100, "x" * 80)],
)
def test_the_title_of_a_summary_is_its_first_line(summary: str, title: str) -> None:
    """003-3.8.1"""
    diffs = (FileDiff(file="a.py", additions=2),)
    (message,) = shown(user("hi"), CompactionSummary(summary=summary, first_kept_entry_id="e1", diffs=diffs))
    expected = {"title": title, "body": summary, "diffs": [{"file": "a.py", "additions": 2}]}
    assert message["info"]["summary"] == expected


def test_a_summary_without_words_has_no_title() -> None:
    (message,) = shown(user("hi"), CompactionSummary(summary="---", first_kept_entry_id="e1"))
    assert message["info"]["summary"] == {"body": "---"}


def test_a_compacted_output_stays_compacted() -> None:
    """003-3.4.4"""
    view = document.dump(SESSION)
    results = [r for fact in facts_of(view) if isinstance(fact, Message) for r in fact.tool_results]
    assert {result.tool_call_id: result.compacted_at for result in results} == {"c1": at(12), "c2": None}


def broken(path: list[str | int], value: Any) -> Any:
    view = document.dump(SESSION)
    place: Any = view
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return view


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (["view"], "feed", "$.view"),
        (["messages", 0, "parts", 0, "type"], "dream", "$.messages[0].parts[0].type"),
        (["messages", 0, "parts", 0, "text"], 5, "$.messages[0].parts[0].text"),
        (["messages", 1, "parts", 3, "state", "status"], "lost", "$.messages[1].parts[3].state.status"),
        (["messages", 1, "parts", 3, "state", "output"], "", "$.messages[1].parts[3].state.output"),
        (["messages", 1, "parts", 3, "state", "time", "start"], "now", "$.messages[1].parts[3].state.time.start"),
        (["messages", 1, "info", "role"], "tool", "$.messages[1].info.role"),
        (["messages", 0, "parts", 0, "messageID"], "x", "$.messages[0].parts[0]"),
        (["messages", 0, "info", "time", "created"], 10**30, "$.messages[0].info.time.created"),
    ],
)
def test_an_invalid_document_is_rejected_with_the_path(path: list[str | int], value: Any, error: str) -> None:
    """003-6.1.1"""
    with pytest.raises(PartValidationError) as caught:
        document.load(broken(path, value))
    assert caught.value.path == error


def test_load_raises_and_try_load_returns_none_for_a_missing_field(caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.3, D-7.5"""
    view = broken(["messages", 0, "parts", 0, "text"], None)
    with pytest.raises(MissingRequiredField) as caught:
        document.load(view)
    assert caught.value.path == "$.messages[0].parts[0].text"
    with caplog.at_level(logging.WARNING):
        assert document.try_load(view) is None
    assert "$.messages[0].parts[0].text" in caplog.text
    assert document.try_load(document.dump(SESSION)) == document.load(document.dump(SESSION))
    assert document.try_load(broken(["messages", 0, "parts", 0, "text"], 5)) is None  # invalid, not missing


def test_no_entries_give_an_empty_document() -> None:
    assert document.load(document.dump([])) == ()
    assert document.dump(chain(SessionHeader(), system("x")))["messages"] == []


def test_messages_returns_the_values() -> None:
    messages = document.Document.of(SESSION).messages()
    assert isinstance(messages[0].info, UserInfo)
    assert sum(isinstance(part, ToolPart) for part in messages[1].parts) == 2


@pytest.mark.parametrize("field", [name for name in TOKEN_COUNTS if name != "total_tokens"])
def test_every_token_count_reads_back(field: str) -> None:
    """003-BR-13"""
    usage = replace(Usage(11, 7), **{field: 5}, total_tokens=-1)
    dumped = document.dump(chain(assistant("hi", meta=Meta(usage=usage, finish_reason="stop"))))
    (loaded,) = [entry.fact for entry in document.load(dumped) if isinstance(entry.fact, Message)]
    assert loaded.meta is not None
    assert loaded.meta.usage == usage
