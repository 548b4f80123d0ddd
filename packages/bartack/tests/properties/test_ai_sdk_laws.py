"""The UI message stream of every run: any client accepts it, and what it assembles is the stored answer."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack.agent import EntryAppended, Event, RunFinished, RunPaused
from bartack.nouns.entries import Entry, RunEnded, RunStarted, StreamFailed, ToolProgress, ToolStarted
from bartack.nouns.messages import Message
from bartack.nouns.parts import Part, Text, Thinking, ToolCall, ToolResult
from bartack.protocols.ai_sdk import DONE, UIMessageStream, Version, output_json
from bartack.protocols.ai_sdk_assembler import UIMessageAssembler
from bartack.protocols.ai_sdk_messages import read_ui_messages, ui_messages
from bartack.protocols.content import content_text
from tests.properties.runs import INNER_CALL, Plan, RecordedRun, as_followed, plans, recorded

Json = dict[str, Any]
VERSIONS: tuple[Version, ...] = (5, 6, 7)
NEVER_RAN = ("Not executed: the call was cut off.", "Not executed: the model call failed.")


def assembled(stream: UIMessageStream, events: Any, client: UIMessageAssembler) -> UIMessageAssembler:
    """The client after these events; every chunk passes its rules."""
    for event in events:
        for chunk in stream.chunks(event):
            client.add(chunk)
    return client


def without_pauses(run: RecordedRun) -> list[Event]:
    """The events of a run as if it had never paused."""
    *earlier, last = run.parts
    return [event for part in earlier for event in part if not isinstance(event, RunPaused | RunFinished)] + last


# -- what a client should have, from the stored facts alone


def expected_parts(entries: tuple[Entry, ...]) -> list[Json]:
    parts: list[Json] = []
    results = {
        result.tool_call_id: result
        for entry in entries
        if isinstance(entry.fact, Message)
        for result in entry.fact.tool_results
    }
    failed: StreamFailed | None = None
    for entry in entries:
        match entry.fact:
            case Message(role="assistant"):
                failed = None
                faults = (entry.fact.meta and entry.fact.meta.bad_args) or {}
                parts += [{"type": "step-start"}, *(expected_part(part, results, faults) for part in entry.fact.parts)]
            case Message(role="user") if entry.fact.meta is not None:  # it was queued
                parts.append({"type": "user", "text": entry.fact.text})
            case StreamFailed(model_call_index=int()):  # None: it wrote a summary
                failed = entry.fact
            case RunEnded() if failed is not None and failed.parts:
                arrived = [expected_part(part, {}, {}) for part in failed.parts if has_arrived(part)]
                parts += [{"type": "step-start"}, *arrived]
            case _:
                pass
    return parts


def has_arrived(part: Part) -> bool:
    """Whether a part of a failed answer counts: a call does if the provider had executed it."""
    return not isinstance(part, ToolCall) or part.result is not None


def expected_part(part: Part, results: dict[str, ToolResult], faults: dict[str, str]) -> Json:
    match part:
        case Text() | Thinking():
            return {"type": "text" if isinstance(part, Text) else "reasoning", "text": part.text, "state": "done"}
        case ToolCall():
            call: Json = {"type": "call", "name": part.tool_name}
            result = part.result or results.get(part.tool_call_id)
            if result is None:
                fault = faults.get(part.tool_call_id)
                return (
                    {**call, "state": "input-available"} if fault is None else {**call, "state": "error", "text": fault}
                )
            if not result.is_error:
                return {**call, "state": "output-available", "output": output_json(result)}
            return {**call, "state": "error", "text": content_text(result.content)}
        case _:
            raise AssertionError(part)


def normal(parts: list[Json], version: Version) -> list[Json]:
    """The parts of a client in the words of `expected_part`: without those that a version needs as substitutes."""
    normal_parts: list[Json] = []
    for part in parts:
        kind = part["type"]
        if kind == "data-retry":
            del normal_parts[max(index for index, piece in enumerate(normal_parts) if piece["type"] == "step-start") :]
        elif kind in ("data-user-message", "steering-message"):
            content = part["data"]["parts"] if kind == "data-user-message" else part["parts"]
            normal_parts.append({"type": "user", "text": "".join(piece["text"] for piece in content)})
        elif kind == "dynamic-tool":
            if INNER_CALL in part["toolCallId"]:  # a sub-agent made it, in a step of its own
                assert normal_parts.pop() == {"type": "step-start"}
            elif part.get("errorText") not in NEVER_RAN:
                normal_parts.append(normal_call(part))
        elif not kind.startswith("data-"):
            normal_parts.append(part)
    return normal_parts


def normal_call(part: Json) -> Json:
    call = {"type": "call", "name": part["toolName"]}
    if part["state"] == "output-denied":
        return {**call, "state": "error", "text": DENIED}
    if part["state"] == "output-error":
        return {**call, "state": "error", "text": part["errorText"]}
    state = {**call, "state": part["state"]}
    return {**state, "output": part["output"]} if part["state"] == "output-available" else state


DENIED = "denied"


def comparable(parts: list[Json]) -> list[Json]:
    """With one text for all denials, because the protocol has none, and without steps that have no parts."""
    next_types = [*(part["type"] for part in parts[1:]), "step-start"]
    ends = ("step-start", "user")
    is_empty = [
        part["type"] == "step-start" and next_type in ends for part, next_type in zip(parts, next_types, strict=False)
    ]
    parts = [part for part, empty in zip(parts, is_empty, strict=True) if not empty]
    return [{**part, "text": DENIED} if "denied" in str(part.get("text", "")).lower() else part for part in parts]


@given(plans, st.data())
@settings(max_examples=20)
def test_every_client_assembles_the_stored_answer_however_the_run_is_read(plan: Plan, data: st.DataObject) -> None:
    run = recorded(plan)
    events = without_pauses(run)
    stored = [EntryAppended(entry) for entry in run.entries]
    for version in VERSIONS:
        want = comparable(expected_parts(run.entries))
        for read in (events, as_followed(data.draw, events), stored):
            client = assembled(UIMessageStream(version), read, UIMessageAssembler(version))
            assert client.is_ended
            assert comparable(normal(client.parts, version)) == want
            notes = [part for part in client.parts if part["type"] == "data-weather"]
            assert [note["data"] for note in notes] == ([{"rain": True}] if has_note(run) else [])
            assert_states(client, run)
            session_ids = [part["data"]["sessionId"] for part in client.parts if part["type"] == "data-subagent"]
            assert session_ids == inner_sessions(run)
            assert inputs_shown(client) == inputs_executed(run)


def inputs_shown(client: UIMessageAssembler) -> list[Json]:
    """The arguments of the calls that succeeded, as the client has them."""
    calls = [part for part in client.parts if part["type"] == "dynamic-tool" and part["state"] == "output-available"]
    own = [part for part in calls if not part.get("providerExecuted") and INNER_CALL not in part["toolCallId"]]
    return sorted((part["input"] for part in own), key=str)


def inputs_executed(run: RecordedRun) -> list[Json]:
    """The arguments with which they ran, which an approver may have changed."""
    facts = [entry.fact for entry in run.entries]
    started = {fact.tool_call_id: fact.arguments for fact in facts if isinstance(fact, ToolStarted)}
    messages = [fact for fact in facts if isinstance(fact, Message)]
    results = [result for message in messages for result in message.tool_results if not result.is_error]
    return sorted((started[result.tool_call_id] for result in results), key=str)


def inner_sessions(run: RecordedRun) -> list[str]:
    """The sessions of sub-agents."""
    progress = [entry.fact.metadata or {} for entry in run.entries if isinstance(entry.fact, ToolProgress)]
    return list(dict.fromkeys(str(metadata["sessionId"]) for metadata in progress if "sessionId" in metadata))


def has_note(run: RecordedRun) -> bool:
    return any(entry.fact.kind == "custom" for entry in run.entries)


def assert_states(client: UIMessageAssembler, run: RecordedRun) -> None:
    """The client shows how the run ended, and nothing in it is still in progress."""
    ended = run.entries[-1].fact
    assert isinstance(ended, RunEnded)
    assert (client.error is not None) == (ended.status == "failed")
    assert (client.finish_reason is not None) == (ended.status == "completed")
    for part in client.parts:
        assert part.get("state") not in ("streaming", "input-streaming", "approval-requested", "approval-responded")
        assert not part.get("preliminary")


@given(plans)
@settings(max_examples=10)
def test_a_paused_run_continues_the_message_of_the_client(plan: Plan) -> None:
    run = recorded(replace(plan, suspend_at=None))
    for version in VERSIONS:
        client = UIMessageAssembler(version)
        entries: list[Entry] = []
        for part in run.parts:
            call_ids = [part["toolCallId"] for part in client.parts if "toolCallId" in part]
            stream = UIMessageStream(version, earlier=entries, taken_keys=call_ids)
            client.is_ended = False
            assembled(stream, part, client)
            assert client.is_ended
            entries = [entry for entry in run.entries if entry.seq <= last_seq(part, entries)]
        once = assembled(UIMessageStream(version), without_pauses(run), UIMessageAssembler(version))
        assert normal(client.parts, version) == normal(once.parts, version)
        assert client.message["id"] == run_id(run)


def last_seq(events: list[Event], entries: list[Entry]) -> int:
    return max((e.entry.seq for e in events if isinstance(e, EntryAppended)), default=entries[-1].seq if entries else 0)


def run_id(run: RecordedRun) -> str | None:
    return next(entry.run_id for entry in run.entries if isinstance(entry.fact, RunStarted))


@given(plans, st.integers(1, 40))
@settings(max_examples=10)
def test_a_run_that_is_suspended_anywhere_ends_its_stream(plan: Plan, suspend_at: int) -> None:
    run = recorded(replace(plan, suspend_at=suspend_at))
    for version in VERSIONS:
        client = assembled(UIMessageStream(version), run.parts[0], UIMessageAssembler(version))
        assert client.is_ended
        is_open = len(run.parts) > 1
        assert not is_open or client.finish_reason == "tool-calls" or client.error == "The run was suspended."
        assert not any(part.get("state") in ("streaming", "input-streaming") for part in client.parts)


@given(plans, st.integers(0, 60))
@settings(max_examples=20)
def test_a_stream_that_is_cut_anywhere_ends_in_an_error(plan: Plan, end: int) -> None:
    events = recorded(plan).parts[0]
    for version in VERSIONS:
        stream = UIMessageStream(version)
        client = assembled(stream, events[:end], UIMessageAssembler(version))
        was_ended = stream.is_ended
        for chunk in UIMessageStream.closing_chunks(stream):
            client.add(chunk)
        assert client.is_ended
        assert was_ended or client.error == "The connection to the run was lost."
        assert not any(part.get("state") in ("streaming", "input-streaming") for part in client.parts)
        assert stream.close() == b""


@given(plans)
@settings(max_examples=10)
def test_frames_end_with_done_once(plan: Plan) -> None:
    stream = UIMessageStream(6)
    body = b"".join(stream.frames(event) for event in recorded(plan).parts[0]) + stream.close()
    assert body.endswith(DONE)
    assert body.count(DONE) == 1
    assert body.startswith(b'data: {"type":"start","messageId":')


def undecided(message: Json) -> Json:
    """Without approvals: the stream of version 6 has no decisions, and a page that opens the session gets them."""
    own = [{name: value for name, value in part.items() if name != "approval"} for part in message["parts"]]
    return {**message, "parts": own}


@given(plans)
@settings(max_examples=10)
def test_a_page_that_opens_the_session_has_the_message_of_the_stream_and_can_send_it_back(plan: Plan) -> None:
    run = recorded(plan)
    for version in VERSIONS:
        prompt, *answers = ui_messages(run.entries, version)
        assert prompt["role"] == "user"
        client = assembled(UIMessageStream(version), map(EntryAppended, run.entries), UIMessageAssembler(version))
        assert list(map(undecided, answers)) == ([undecided(client.message)] if client.parts else [])
        sent_back = [call for message in read_ui_messages([prompt, *answers]) for call in message.tool_calls]
        calls = {call.tool_call_id for call in sent_back if INNER_CALL not in call.tool_call_id}
        expected = {
            call.tool_call_id
            for entry in run.entries
            if isinstance(entry.fact, Message)
            for call in entry.fact.tool_calls
            if call.executed_by == "client" and call.raw_args_text is None
        }
        assert calls == expected
