"""The updates of the Agent Client Protocol for every kind of change."""

from typing import Any

import pytest

from bartack.nouns.deltas import TextDelta, ThinkingDelta, ToolCallStart
from bartack.nouns.entries import Custom, RunEnded, RunStarted, ToolProgress, ToolStarted
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import FileRef, Image, Text, ToolCall
from bartack.protocols.acp import SessionUpdates, Update, call_update, fenced, one_line, replayed, shown_before
from tests.protocols.events import BUSY, CALL, END, START, Events, Log, answer, deltas, failed, result, run_of


def updates(events: Any) -> list[Update]:
    made = SessionUpdates("/project")
    return [update for event in events for update in made.of(event)]


def kinds(found: list[Update]) -> list[str]:
    return [update["sessionUpdate"] for update in found]


def call(**fields: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c1", **fields}


def content(text: str) -> list[Update]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def test_text_and_thinking() -> None:
    assert updates(deltas(START, ThinkingDelta("hm"), TextDelta("It "), TextDelta("rains."))) == [
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "It "}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "rains."}},
    ]


def test_a_call_from_its_start_to_its_result() -> None:
    read = ToolCall("c1", "read_file", {"path": "a.txt"})
    facts = (
        answer(read),
        ToolStarted(tool_call_id="c1", tool_name="read_file", arguments={"path": "a.txt"}),
        ToolProgress(tool_call_id="c1", content="half"),
    )
    assert updates(run_of(*facts, result("c1", "text"), user("Faster!"), Custom(name="x", data={}))) == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c1",
            "title": "read_file",
            "kind": "read",
            "status": "pending",
        },
        call(
            title="read_file: a.txt",
            kind="read",
            rawInput={"path": "a.txt"},
            locations=[{"path": "/project/a.txt"}],
        ),
        call(status="in_progress"),
        call(content=content("half")),
        call(status="completed", content=content("text"), rawOutput="text"),
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "Faster!"}},
    ]


def test_calls_that_fail_or_return_parts() -> None:
    found = updates(run_of(answer(CALL), result("c1", {"why": 1}, is_error=True)))
    assert found[-1] == call(status="failed", content=content('{"why":1}'), rawOutput={"why": 1})
    parts = (
        Text("a"),
        Image("image/png", data=b"x"),
        Image("image/png", url="https://x/a.png"),
        FileRef("b.txt", url="https://x/b.txt"),
        FileRef("c.txt"),
    )
    last = updates(run_of(answer(CALL), result("c1", parts)))[-1]
    assert [one["content"]["type"] for one in last["content"]] == ["text", "image", *["resource_link"] * 3]
    assert [one["content"].get("uri") for one in last["content"][2:]] == ["https://x/a.png", "https://x/b.txt", "c.txt"]
    assert "rawOutput" not in last


def test_a_call_without_a_subject_has_its_name_as_title() -> None:
    found = updates(run_of(answer(ToolCall("c1", "look", {"path": "not a file tool"}))))
    assert found[1]["title"] == "look: not a file tool"
    assert "locations" not in found[1]
    assert updates(run_of(answer(CALL)))[-1]["title"] == "look"


def test_what_was_shown_of_a_failed_attempt_is_announced_as_void() -> None:
    log = Log()
    cut = (TextDelta("It sn"), ToolCallStart("c1", "look"))
    events: Events = [*deltas(START, *cut, BUSY), log(failed()), *deltas(START, TextDelta("It rains."))]
    found = updates(events)
    assert found[2] == call(status="failed", content=content("Not executed: the model call failed."))
    assert "begins again" in found[3]["content"]["text"]
    assert kinds(found)[-1] == "agent_message_chunk"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (END, "end_turn"),
        (RunEnded(status="aborted"), "cancelled"),
        (RunEnded(status="failed", reason="length"), "max_tokens"),
        (RunEnded(status="failed", reason="refusal"), "refusal"),
        (RunEnded(status="failed", reason="max_iterations"), "max_turn_requests"),
        (RunEnded(status="failed", error=BUSY), None),
    ],
)
def test_why_a_prompt_ends(end: RunEnded, reason: str | None) -> None:
    made = SessionUpdates("/project")
    assert list(made.of(Log()(end))) == []
    assert (made.stop_reason, made.error) == (reason, end.error)


def test_a_stored_session_is_replayed_from_its_beginning() -> None:
    log = Log()
    for fact in (RunStarted(), user("Go"), answer("One."), user("And?"), answer("Two."), END):
        log.entry(fact)
    for fact in (RunStarted(), user(Text("correct it", synthetic=True)), answer("Three."), END):
        log.entry(fact, run_id="run-2")
    log.entry(user("Old?"), run_id=None)
    log.entry(assistant("Old."), run_id=None)
    found = [(update["sessionUpdate"], update["content"]["text"]) for update in replayed(log.entries[:-2], "/project")]
    assert found == [
        ("user_message_chunk", "Go"),
        ("agent_message_chunk", "One."),
        ("user_message_chunk", "And?"),
        ("agent_message_chunk", "Two."),
        ("agent_message_chunk", "Three."),
    ]
    forked = [update["content"]["text"] for update in replayed(log.entries[-2:], "/project")]
    assert forked == ["Old?", "Old."]


def test_a_call_of_the_provider_without_a_result_is_over_with_its_answer() -> None:
    search = ToolCall("c1", "web_search", {"query": "rain"}, executed_by="provider")
    assert updates(run_of(answer(search)))[-1] == call(status="completed")
    broken = ToolCall("c1", "web_search", {}, executed_by="provider", raw_args_text="{")
    last = updates(run_of(answer(broken, bad_args={"c1": "not valid JSON"})))[-1]
    assert last["status"] == "failed"


def test_a_call_that_begins_again_is_changed_not_added() -> None:
    log = Log()
    cut = ToolCallStart("c1", "look")
    found = updates([*deltas(START, cut, BUSY), log(failed()), *deltas(START, cut)])
    assert found[0]["sessionUpdate"] == "tool_call"
    assert found[-1] == call(title="look", kind="other", status="pending", content=[])


def test_a_run_that_was_resumed_is_shown_as_one() -> None:
    log = Log()
    for fact in (RunStarted(), user("Go"), answer(CALL), RunStarted(), result("c1"), END):
        log.entry(fact)
    assert [*replayed(log.entries, "/project")][-1]["status"] == "completed"


def test_an_id_that_the_editor_shows_already_is_not_used_for_another_call() -> None:
    again = ToolCall("c1-new", "look", {}, metadata={"providerToolCallId": "c1"})
    log = Log()
    entries = [log.entry(fact) for fact in (RunStarted(), user("Go"), answer(CALL), result("c1"), answer(again))]
    shown: set[str] = set()
    assert len(list(replayed(entries, "/project", shown))) > 0
    assert shown == {"c1", "c1-new"}
    assert shown_before(entries) == {"c1", "c1-new", "c1~2"}  # as it was replayed, or as it was shown live
    live = SessionUpdates("/project", shown_keys=shown)
    (begun,) = (update for event in deltas(START, ToolCallStart("c1", "look")) for update in live.of(event))
    assert begun["toolCallId"] == "c1~2"
    list(live.of(log(answer(ToolCall("c1-newest", "look", {}, metadata={"providerToolCallId": "c1"})))))
    assert (live.shown_id("c1-newest"), live.shown_id("c9")) == ("c1~2", "c9")
    assert shown == {"c1", "c1-new", "c1~2"}


@pytest.mark.parametrize("text", ["ls", "a `b` c", "```\nls\n```", "````"])
def test_text_of_a_model_cannot_end_its_block_of_code(text: str) -> None:
    block = fenced(text)["content"]["text"]
    fence, *lines, end = block.split("\n")
    assert (fence, "\n".join(lines)) == (end, text)
    assert set(fence) == {"`"}
    assert fence not in text


def test_a_title_is_one_line_in_which_everything_is_visible() -> None:
    update = call_update("run_command", {"command": "ls\ntouch x\u202e"}, "/p")
    assert update["title"] == "run_command: ls\\ntouch x\\u202e"
    assert one_line("a\tb") == "a    b"
