"""No new kind of fact, change, delta or event is swallowed: a `match` over one of these unions ends in `assert_never`,
or its default is listed here, with what the default means.

A default that nobody reviewed is how a new kind gets lost: the code runs, and shows or stores nothing of it. When a
union gets another member, `test_every_kind_was_reviewed` fails. Go through the defaults of that union, decide
for each whether it is right for this kind, and then add the kind to `REVIEWED`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest

from bartack.display.changes import Change
from bartack.events import Event, LiveEvent
from bartack.nouns.deltas import Delta
from bartack.nouns.entries import Fact
from lab.repository import PACKAGES, source_files

REVIEWED = {
    "fact": """
        AbortRequested ApprovalDecided ApprovalRequired BranchSummary CompactionSummary Custom Message MessageDeltaBatch
        MessageQueued ModelChange Redaction ResultPosted RunEnded RunStarted RuntimeInit SessionHeader StreamFailed
        SystemPromptOverride ThinkingLevelChange ToolProgress ToolStarted
    """,
    "change": """
        AttemptFailed CallAsked CallDecided CallDropped CallEnded CallGrew CallProgressed CallReady CallRunning
        CallStarted MessageAdded Noted RunEnds RunPauses StepFinished StepStarted StepVoided SubagentChanged TextEnded
        TextGrew TextStarted
    """,
    "delta": "Done Failed Start TextDelta ThinkingDelta ToolCallArgs ToolCallEnd ToolCallStart Usage",
    "event": """
        ApprovalRequested Compacted DeltaReceived EntryAppended LiveDeltas LiveEntry LiveReset ModelSwitched Retrying
        RunFinished RunPaused Snapshot StatusChanged SubagentEvent ToolChanged
    """,
}

DEFAULTS = {  # by module and function
    "bartack.agent.replay:_answers": "no answer of a model",
    "bartack.agent.sent_request:kept_setup": "says nothing about a request",
    "bartack.app.notices:notice": "shown in another way, or not at all",
    "bartack.app.transcript:_blocks": "no part of a transcript for people",
    "bartack.display.run_reader:_extends": "no text that could be joined",
    "bartack.display.run_reader:_step_text": "no step of a sub-agent that is shown in words",
    "bartack.display.run_reader:RunReader.read": "repeats what another event tells",
    "bartack.display.run_reader:RunReader._entry": "changes nothing in the view of a run",
    "bartack.display.run_reader:RunReader._call_fact": "the last of `_CallFact`",
    "bartack.display.shown_step:ShownStep.extend": "adds no content to a step",
    "bartack.formats.stop_sequences:StopSequences.deltas": "follows the stop sequence",
    "bartack.models.local:LocalModel._tool_call": "not sent by the server of the local model",
    "bartack.models.local:LocalModel._word": "not sent by the server of the local model",
    "bartack.protocols.acp:SessionUpdates._encode": "has no update in the protocol",
    "bartack.protocols.ag_ui:AgUiStream._text": "the last kind of text change",
    "bartack.protocols.ag_ui:AgUiStream._call": "the last kind of call change in the parameter",
    "bartack.protocols.ai_sdk:UIMessageStream._encode": "a change of a call, whose union mypy checks",
    "bartack.queues.submit:_submitted_parts": "not submitted by anybody",
    "bartack.queues.submit:submitted_job": "not submitted by anybody",
    "bartack.session.redaction:_call_metadata": "has no metadata of a call",
    "bartack.session.redaction:_message_of": "contains no message",
    "bartack.session.redaction:_shared_content": "no content that is also elsewhere",
    "bartack.session.title:title_of": "gives no title",
    "bartack.store.foreign:find_foreign": "does not tell a model what to do",
    "bartack.store.index:spend_of": "costs nothing",
    "bartack.store.index:text_of": "no text to search for, except for a title",
    "bartack.store.maintenance:_with_moved_subagent": "names no session of a sub-agent",
    "bartack.store.open_work:OpenWork.push": "neither opens nor closes work",
    "bartack.telemetry.telemetry:RunSpans.see": "says nothing about the start of a run",
    "bartack.testing.store_checks_journal:_LiveListener.next": "the kinds of `LiveEvent`, which mypy checks",
    "bartack.views.document:Document._add": "counted among what the view omits",
    "bartack.views.document:_changed_setting": "changes no setting of an answer",
    "bartack.views.feed:Feed._add": "counted among what the view omits",
    "bartack_transcripts.ai_sdk:_note_losses": "no loss; the writer of messages reports others",
    "bartack_transcripts.claude_code.write:_Writer.records": "reported as a loss, or has no place in the format",
    "bartack_transcripts.commands.show:_lines": "no part of a transcript for people",
    "bartack_transcripts.entries:_Builder._stamped": "has no time or id of its own",
    "bartack_transcripts.gemini.write:_Writer.add": "reported as a loss, or has no place in the format",
    "bartack_transcripts.message_list:outgoing_messages": "no message",
    "bartack_transcripts.opencode.write:_Writer.add": "reported as a loss, or has no place in the format",
    "bartack_transcripts.pi:_Writer.add": "reported as a loss, or has no place in the format",
    "bartack_transcripts.qwen:_Writer.add": "reported as a loss, or has no place in the format",
    "bartack_server.gateway.agent_model:_deltas_of": "nothing that a client of the gateway is sent",
    "bartack_server.gateway.envelopes:SealedAnswer.deltas": "passed on unchanged",
    "bartack_server.web.chats:ClientAnswers.answers": "no question to a client",
    "bartack_server.web.document:_items": "no part of an exported page",
    "bartack_server.web.document:_read_calls": "changes nothing about a call that has ended",
    "bartack_server.web.event_stream:_live_frame": "the kinds of `LiveEvent`, which mypy checks",
    "bartack_server.web.inspect_api:_model_of": "refused: not an answer of a model",
    "bartack_server.web.service:SessionService._gateway_model": "passed over: only answers name their model",
    "bartack_server.web.page:_html_of": "has no text to render",
    "bartack_server.web.page:PageEvents.frame": "drawn from its entry",
    "bartack_server.web.page:PageEvents._read_calls": "changes no call",
    "bartack_server.web.page:_call_change": "the kinds of its parameter, which mypy checks",
    "bartack_server.web.run_stream:_changed": "changes no call of a client",
    "bartack_code.chat.approvals:ApprovalQueue.note": "says nothing about an approval",
    "bartack_code.doctor.models:_ask": "no text, and no failure",
    "bartack_code.run.output:TextOutput.show": "printed as a notice if it has one",
    "bartack_code.run.output:TextOutput._show_delta": "no text of the answer",
    "bartack_code.terminal.screen:Screen.draw": "drawn by the tracker of calls, or not at all",
    "bartack_code.terminal.tool_calls:CallTracker.apply": "changes no call",
    "bartack_code.terminal.tool_calls:CallTracker._update": "the kinds of its parameter, which mypy checks",
}


def kinds_of(union: object) -> set[str]:
    return {(get_origin(kind) or kind).__name__ for kind in get_args(union)}


UNIONS = {
    "fact": kinds_of(Fact),
    "change": kinds_of(Change),
    "delta": kinds_of(Delta),
    "event": kinds_of(Event) | kinds_of(LiveEvent),
}


@pytest.mark.parametrize("union", UNIONS)
def test_every_kind_was_reviewed(union: str) -> None:
    assert UNIONS[union] == set(REVIEWED[union].split()), "review the defaults of this union, listed in DEFAULTS"


def test_every_default_is_listed_with_its_meaning() -> None:
    assert {default for path in source_files() for default in defaults_in(path)} == set(DEFAULTS)


def defaults_in(path: Path) -> Iterator[str]:
    """The functions of a module with a `match` over one of the unions that lets a kind pass without `assert_never`."""
    folder = next(folder.parent for folder in PACKAGES.values() if path.is_relative_to(folder))
    module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    yield from (f"{module}:{function}" for function in _defaults(ast.parse(path.read_text(encoding="utf-8")), ""))


def _defaults(node: ast.AST, inside: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside = f"{inside}.{node.name}".removeprefix(".")
    if isinstance(node, ast.Match) and _is_over_a_union(node) and "assert_never" not in ast.unparse(node.cases[-1]):
        yield inside
    for child in ast.iter_child_nodes(node):
        yield from _defaults(child, inside)


def _is_over_a_union(match: ast.Match) -> bool:
    classes = {name for case in match.cases for name in _classes(case.pattern)}
    # One foreign class is allowed, for a case that looks at something else besides.
    return any(len(classes & kinds) >= max(1, len(classes) - 1) for kinds in UNIONS.values())


def _classes(pattern: ast.pattern | None) -> Iterator[str]:
    match pattern:
        case ast.MatchClass(cls=ast.Name(id=name) | ast.Attribute(attr=name)):
            yield name
        case ast.MatchAs():
            yield from _classes(pattern.pattern)
        case ast.MatchOr():
            for alternative in pattern.patterns:
                yield from _classes(alternative)
        case _:
            pass


def test_a_default_is_found() -> None:
    assert list(_defaults(ast.parse("def f(x):\n match x:\n  case Text():\n   pass\n  case _:\n   pass"), "")) == []
    for pattern in ("TextDelta()", "c.TextDelta() | Done()", "TextDelta() as delta", "Other() | TextDelta()"):
        source = f"class A:\n def f(x):\n  match x:\n   case {pattern}:\n    pass\n   case other:\n    "
        assert list(_defaults(ast.parse(f"{source}pass"), "")) == ["A.f"]
        assert list(_defaults(ast.parse(f"{source}assert_never(other)"), "")) == []
