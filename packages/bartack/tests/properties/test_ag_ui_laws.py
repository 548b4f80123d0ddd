"""The AG-UI stream of every run: the verifier accepts it, and what a client assembles is the stored session."""

import json
from importlib.util import find_spec
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack.agent import EntryAppended
from bartack.nouns.entries import Entry, RunEnded, StreamFailed
from bartack.nouns.messages import Message
from bartack.protocols.ag_ui import AgUiStream
from bartack.protocols.ag_ui_messages import ag_ui_messages, message_json, read_run
from tests.properties.runs import INNER_CALL, Plan, RecordedRun, as_followed, plans, recorded
from tests.properties.test_ai_sdk_laws import has_arrived, last_seq, without_pauses
from tests.protocols.ag_ui_client import AgUiClient

Json = dict[str, Any]


class Schema:
    """The protocol's own models. They are not installed under every Python; there, only the rules are checked."""

    def __init__(self) -> None:
        self._adapter: Any = None
        if find_spec("ag_ui") is not None:
            from ag_ui.core import Event as ProtocolEvent
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(ProtocolEvent)

    def validate_python(self, event: Json) -> None:
        if self._adapter is not None:
            self._adapter.validate_python(event)


SCHEMA = Schema()


def played(stream: AgUiStream, events: Any, client: AgUiClient) -> AgUiClient:
    """The client after these events; each is valid by the protocol's own models, and accepted by the verifier."""
    for event in events:
        for wire_event in stream.events(event):
            SCHEMA.validate_python(wire_event)
            client.add(wire_event)
    return client


def prompt_of(run: RecordedRun) -> list[Json]:
    (prompt,) = ag_ui_messages(entry for entry in run.entries[:3])
    return [prompt]


def expected(run: RecordedRun) -> list[Json]:
    """The stored messages; and if the run failed, what had arrived of the last answer."""
    messages = ag_ui_messages(run.entries)
    failed: StreamFailed | None = None
    for entry in run.entries:
        match entry.fact:
            case Message(role="assistant"):
                failed = None
            case StreamFailed(model_call_index=int()):  # None: it wrote a summary
                failed = entry.fact
            case RunEnded() if failed is not None:
                parts = tuple(part for part in failed.parts if has_arrived(part))
                messages += message_json("partial", Message("assistant", parts))
            case _:
                pass
    return messages


def normal(messages: list[Json], *, in_order: bool = False) -> list[Json]:
    """Without ids and, unless they are in order, the places of results and reasoning; with parsed arguments, and
    without reasoning that was taken back."""
    plain_messages = []
    for message in messages:
        if message["role"] == "reasoning" and not message["content"]:
            continue
        if INNER_CALL in message.get("toolCallId", ""):
            continue
        calls = [
            (call["function"]["name"], parsed(call["function"]["arguments"]))
            for call in message.get("toolCalls", ())
            if INNER_CALL not in call["id"]
        ]
        plain_messages.append({"role": message["role"], "content": message.get("content") or "", "calls": calls})
    if in_order:  # but for the results of one answer, which have the order in which the provider's calls ended
        groups = [list(group) for _, group in groupby(plain_messages, key=lambda message: message["role"] == "tool")]
        return [
            message for group in groups for message in (sorted(group, key=str) if group[0]["role"] == "tool" else group)
        ]
    moved = ("reasoning", "tool")  # a snapshot moves these
    own = [message for message in plain_messages if message["role"] not in moved]
    return own + sorted((message for message in plain_messages if message["role"] in moved), key=str)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@given(plans, st.data())
@settings(max_examples=20)
def test_every_client_assembles_the_stored_messages_however_the_run_is_read(plan: Plan, data: st.DataObject) -> None:
    run = recorded(plan)
    events = without_pauses(run)
    stored = [EntryAppended(entry) for entry in run.entries]
    ended = run.entries[-1].fact
    assert isinstance(ended, RunEnded)
    for read in (events, as_followed(data.draw, events), stored):
        prompt = prompt_of(run)
        stream = AgUiStream("t", "r", protocol_version="1.0", messages=prompt)
        client = played(stream, read, AgUiClient(prompt))
        in_order = not client.snapshots
        assert normal(client.messages, in_order=in_order) == normal(expected(run), in_order=in_order)
        assert normal(stream.messages) == normal(client.messages)
        assert (client.error is not None) == (ended.status == "failed")
        outcome = {"completed": "success", "aborted": "cancelled", "failed": None}[ended.status]
        assert (client.outcome or {}).get("type") == outcome
        assert stream.close() == b""


@given(plans)
@settings(max_examples=10)
def test_a_paused_run_continues_as_another_run_of_the_client(plan: Plan) -> None:
    run = recorded(replace(plan, suspend_at=None))
    client = AgUiClient(prompt_of(run))
    entries: list[Entry] = []
    for number, part in enumerate(run.parts):
        stream = AgUiStream("t", f"r{number}", protocol_version="1.0", messages=client.messages, earlier=entries)
        played(stream, part, client)
        assert client.outcome is not None or client.error is not None
        if client.error is None:  # after an error, a client keeps the interrupts of its run before
            assert client.outcome is not None
            waits = client.interrupts or client.outcome.get("pendingToolCallIds")
            assert bool(waits) == (part is not run.parts[-1])
        entries = [entry for entry in run.entries if entry.seq <= last_seq(part, entries)]
    assert normal(client.messages) == normal(expected(run))


@given(plans, st.integers(1, 40))
@settings(max_examples=10)
def test_a_run_that_is_suspended_anywhere_ends_its_stream(plan: Plan, suspend_at: int) -> None:
    run = recorded(replace(plan, suspend_at=suspend_at))
    stream = AgUiStream("t", "r", protocol_version="1.0", messages=prompt_of(run))
    client = played(stream, run.parts[0], AgUiClient(prompt_of(run)))
    assert stream.is_ended
    is_open = len(run.parts) > 1
    waits = client.outcome is not None and (client.interrupts or client.outcome.get("pendingToolCallIds"))
    assert not is_open or waits or client.error == "The run was suspended."


@given(plans, st.integers(0, 60))
@settings(max_examples=20)
def test_a_stream_that_is_cut_anywhere_ends_in_an_error(plan: Plan, end: int) -> None:
    stream = AgUiStream("t", "r")
    client = played(stream, recorded(plan).parts[0][:end], AgUiClient())
    was_ended = stream.is_ended
    for wire_event in stream.closing_events():
        SCHEMA.validate_python(wire_event)
        client.add(wire_event)
    assert was_ended or client.error == "The connection to the run was lost."


@given(plans)
@settings(max_examples=10)
def test_a_client_that_opens_the_session_has_its_messages_and_can_send_them_back(plan: Plan) -> None:
    run = recorded(plan)
    messages = ag_ui_messages(run.entries)
    client = played(AgUiStream("t", "r", messages=messages, snapshot=True), [], AgUiClient())
    stream = AgUiStream("t", "r", messages=messages, snapshot=True)
    frames = stream.finish().decode().split("\n\n")[:-1]
    for wire_event in (json.loads(frame.removeprefix("data: ")) for frame in frames):
        SCHEMA.validate_python(wire_event)
        client.add(wire_event)
    assert client.messages == messages
    texts = [
        message for message in messages if not isinstance(message.get("content"), list)
    ]  # generated URLs are not accepted
    request = read_run({"threadId": "t", "runId": "r", "messages": texts})
    assert len(request.history) + (request.prompt is not None) == sum(
        message["role"] != "reasoning" for message in texts
    )
