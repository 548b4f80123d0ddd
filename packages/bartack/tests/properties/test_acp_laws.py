"""The updates of every run: valid by the protocol's own models, and what an editor assembles is the stored answer."""

from importlib.util import find_spec
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bartack.agent import EntryAppended
from bartack.nouns.entries import RunEnded, StreamFailed
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text, Thinking, ToolCall
from bartack.protocols.acp import SessionUpdates, replayed
from bartack.protocols.content import content_text
from tests.properties.runs import Plan, RecordedRun, as_followed, plans, recorded
from tests.properties.test_ai_sdk_laws import NEVER_RAN, without_pauses

Json = dict[str, Any]
AGAIN = "begins again"
OVER = ("completed", "failed")


class Editor:
    """An editor: it adds chunks to the last message, and may only change calls that it knows."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []  # role or kind, and text
        self.calls: dict[str, Json] = {}
        self._validate: Any = None
        if find_spec("acp") is not None:  # it is not installed under every Python
            from acp.schema import SessionNotification

            self._validate = SessionNotification.model_validate

    def add(self, update: Json) -> None:
        if self._validate is not None:
            self._validate({"sessionId": "s", "update": update})
        kind = update["sessionUpdate"]
        if kind == "tool_call":
            assert update["toolCallId"] not in self.calls, "a call begins once"
            self.calls[update["toolCallId"]] = dict(update)
        elif kind == "tool_call_update":
            call = self.calls[update["toolCallId"]]
            is_over = call["status"] in OVER and update.get("status") != "pending"  # which begins it again
            assert not is_over, "nothing follows the end of a call"
            call |= update
        else:
            self.grow(kind, update["content"].get("text", ""))

    def grow(self, kind: str, text: str) -> None:
        if AGAIN in text:  # what it shows of the failed attempt stays, and does not count
            self.said.append(("again", ""))
        elif self.said and self.said[-1][0] == kind:
            self.said[-1] = (kind, self.said[-1][1] + text)
        else:
            self.said.append((kind, text))

    def outcomes(self) -> list[tuple[str, str, str]]:
        """The calls that ran: name, outcome, and output as text."""
        outcomes = []
        for call in self.calls.values():
            texts = [content["content"].get("text", "") for content in call.get("content", ())]
            if not (call["status"] == "failed" and texts and texts[0] in NEVER_RAN):
                outcomes.append((call["title"].partition(":")[0], call["status"], "".join(texts)))
        return sorted(outcomes)


def shown(events: Any, updates: SessionUpdates, editor: Editor) -> Editor:
    for event in events:
        for update in updates.of(event):
            editor.add(update)
    return editor


def expected_text(run: RecordedRun, kind: type[Text] | type[Thinking]) -> str:
    """All text of the stored answers; and if the run failed, what had arrived of the last one."""
    texts: list[str] = []
    failed: StreamFailed | None = None
    for entry in run.entries:
        match entry.fact:
            case Message(role="assistant", parts=parts):
                failed = None
                texts += [part.text for part in parts if isinstance(part, kind)]
            case StreamFailed(model_call_index=int()):  # None: it wrote a summary
                failed = entry.fact
            case RunEnded() if failed is not None:
                texts += [part.text for part in failed.parts if isinstance(part, kind)]
            case _:
                pass
    return "".join(texts)


def is_shown(editor: Editor, kind: str, expected: str) -> bool:
    """Whether the editor shows this text. It cannot take anything back, so after a retry only what follows counts."""
    attempts = [""]
    for role, text in editor.said:
        if role == "again":
            attempts.append("")
        elif role == kind:
            attempts[-1] += text
    return expected == attempts[0] if len(attempts) == 1 else expected.endswith(attempts[-1])


def expected_outcomes(run: RecordedRun) -> list[tuple[str, str, str]]:
    results = {
        result.tool_call_id: result
        for entry in run.entries
        if isinstance(entry.fact, Message)
        for result in entry.fact.tool_results
    }
    calls = [
        part
        for entry in run.entries
        if isinstance(entry.fact, Message) and entry.fact.role == "assistant"
        for part in entry.fact.parts
        if isinstance(part, ToolCall)
    ]
    outcomes = []
    for call in calls:
        result = call.result or results.get(call.tool_call_id)
        if result is not None and isinstance(result.content, str):
            outcomes.append(
                (call.tool_name, "failed" if result.is_error else "completed", content_text(result.content))
            )
    return sorted(outcomes)


@given(plans, st.data())
@settings(max_examples=20)
def test_every_editor_shows_the_stored_answers_however_the_run_is_read(plan: Plan, data: st.DataObject) -> None:
    run = recorded(plan)
    events = without_pauses(run)
    stored = [EntryAppended(entry) for entry in run.entries]
    ended = run.entries[-1].fact
    assert isinstance(ended, RunEnded)
    for read in (events, as_followed(data.draw, events), stored):
        updates = SessionUpdates("/project")
        editor = shown(read, updates, Editor())
        assert is_shown(editor, "agent_message_chunk", expected_text(run, Text))
        assert is_shown(editor, "agent_thought_chunk", expected_text(run, Thinking))
        outcomes = editor.outcomes()
        assert all(outcome in outcomes for outcome in expected_outcomes(run))
        assert (updates.stop_reason == "end_turn") == (ended.status == "completed")
        assert (updates.stop_reason == "cancelled") == (ended.status == "aborted")
        if ended.status == "completed":
            assert all(call["status"] in OVER for call in editor.calls.values())


@given(plans)
@settings(max_examples=20)
def test_a_session_that_is_loaded_shows_what_a_live_one_did(plan: Plan) -> None:
    run = recorded(plan)
    live = shown([EntryAppended(entry) for entry in run.entries], SessionUpdates("/project"), Editor())
    loaded = Editor()
    for update in replayed(run.entries, "/project"):
        loaded.add(update)
    editor = Editor()
    for kind, text in (("user_message_chunk", "Go"), *live.said):
        editor.grow(kind, AGAIN if kind == "again" else text)
    assert loaded.said == editor.said
    assert loaded.outcomes() == live.outcomes()
