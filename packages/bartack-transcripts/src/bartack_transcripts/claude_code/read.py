"""Reads the files of Claude Code and Kode. In: a file of JSON lines. Out: a transcript, and one for each sidechain."""

import re
from collections.abc import Sequence
from operator import is_
from typing import Any

from msgspec.structs import replace

from bartack.formats.anthropic_messages.decode import FINISH_REASONS
from bartack.formats.error_codes import classify
from bartack.formats.usage import amount, token_count
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.entries import (
    BranchSummary,
    CompactionSummary,
    Fact,
    RunEnded,
    SessionHeader,
    StreamFailed,
)
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef
from bartack.nouns.parts import Text, ToolResult
from bartack_transcripts.claude_code.lines import (
    SYNTHETIC,
    AnswerLines,
    Line,
    answers_of,
    blocks_of,
    is_prompt,
)
from bartack_transcripts.transcript import (
    START,
    Files,
    ReadReport,
    Record,
    Transcript,
    TranscriptStep,
    digest_id,
    first_record_id,
)
from bartack_transcripts.values import (
    Json,
    MessageFacts,
    first_objects,
    object_in,
    parse_lines,
    parse_object,
    read_messages,
    short_line,
    text_in,
    texts_in,
    time_from_text,
    usage_of,
)

__all__ = ["looks_like_claude_code", "looks_like_kode", "read_claude_code", "read_kode"]

_PROVIDER = "anthropic"
_FORMAT = "anthropic-messages"
_LONG_LINE = re.compile(rb'\s*\{"parentUuid"\s*:')  # the beginning of a first line that is longer than the head
_CONVERSATION = ("user", "assistant", "system", "attachment", "progress")
_NOTES = {  # The fields by which lines that are not part of the conversation are recognised.
    "summary": "leafUuid",
    "file-history-snapshot": "isSnapshotUpdate",
    "queue-operation": "sessionId",
    "mode": "sessionId",
    "permission-mode": "sessionId",
    "last-prompt": "sessionId",
    "custom-title": "sessionId",
    "ai-title": "sessionId",
    "agent-name": "sessionId",
    "tag": "sessionId",
}
_KODE = re.compile(rb'"agentId"\s*:\s*"main"')
_INTERRUPTED = "[Request interrupted by user"
# Text in the role of the user that the program wrote: output of its own commands, and how it was called.
_PROGRAM_TEXT = re.compile(
    r"\s*<(local-command-\w+|command-name|command-message|bash-(?:stdout|stderr)|task-notification)"
)
_COMMAND = re.compile(r"<command-name>\s*(/?[^<]+?)\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>\s*([^<]*?)\s*</command-args>")
_STATUS = re.compile(r"API Error: (\d{3})\b")
_REJECTED = "The user doesn't want to proceed with this tool use"
_CALLS_OF_AGENTS = ("Task", "Agent")
_ABOUT = (("directory", "cwd"), ("gitBranch", "gitBranch"), ("version", "version"))
_MAIN = "main"  # the id of the agent that is not a sub-agent, in files of Kode
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}  # the best first


def looks_like_claude_code(name: str, head: bytes) -> bool:
    """Whether a file is a transcript, by its first lines. Files of other programs have some of the same fields."""
    if not name.endswith(".jsonl"):
        return False
    is_recognised = any(map(_is_line_of_program, first_objects(head)))
    return is_recognised or (b"\n" not in head and _LONG_LINE.match(head) is not None)


def _is_line_of_program(json: Json) -> bool:
    kind = text_in(json, "type") or ""
    if kind in _CONVERSATION:
        has_message = isinstance(json.get("message"), dict) or kind not in ("user", "assistant")
        return text_in(json, "uuid") is not None and has_message
    return kind in _NOTES and _NOTES[kind] in json


def looks_like_kode(name: str, head: bytes) -> bool:
    """Whether a file is a transcript that Kode began."""
    return _KODE.search(head) is not None and looks_like_claude_code(name, head)


def read_claude_code(files: Files) -> list[Transcript]:
    """The session in a file, and those of the sub-agents that are in the same file."""
    return _read("claude-code", files)


def read_kode(files: Files) -> list[Transcript]:
    """The same for a file of Kode."""
    return _read("kode", files)


def _read(agent: str, files: Files) -> list[Transcript]:
    name = next((name for name in files if name.endswith(".jsonl")), None)
    if name is None:
        return []
    report = ReadReport()
    lines = _without_repeated([Line(*parsed) for parsed in parse_lines(name, files[name], report)], report)
    first = next((line for line in lines if line.uuid is not None), None)
    is_agent = first is not None and (first.is_sidechain or text_in(first.json, "agentId") not in (None, _MAIN))
    session = _session_of(lines)
    id = session or first_record_id(files[name])
    if is_agent:
        id = f"{id}/{_agent_name(lines)}"
    main = _Conversation(agent, id, lines, report, is_agent=is_agent)
    steps = main.steps()
    relations = _about_agent(agent, id, files) if is_agent else _about_fork(agent, lines)
    for file, data in files.items():
        if file != name:
            report.add("meta.json", "read")
            steps.append(TranscriptStep((), (Record(file, 0, data),)))
    header = _header(agent, lines, relations, skip_sidechains=not is_agent)
    transcripts = [Transcript(agent, id, header, steps, report, has_own_id=session is not None)]
    for child_id, chain, call_id in main.sidechains:
        child = _Conversation(agent, child_id, chain, ReadReport(), is_agent=True)
        relations = {"parentSession": f"{agent}:{id}"} | ({"toolCallId": call_id} if call_id else {})
        header = _header(agent, chain, relations, skip_sidechains=False)
        transcripts.append(Transcript(agent, child_id, header, child.steps(), child.report, has_own_records=False))
    return transcripts


def _without_repeated(lines: Sequence[Line], report: ReadReport) -> list[Line]:
    """The lines, without the content of those that are in the file already: the program reads each uuid once."""
    line_data: dict[str, bytes] = {}
    unique_lines: list[Line] = []
    for line in lines:
        data = line.record.data.rstrip()
        if line.uuid is not None and line_data.get(line.uuid) == data:
            report.add("repeated line", "read")
            line = Line(line.record, {})
        elif line.uuid is not None:
            line_data.setdefault(line.uuid, data)
        unique_lines.append(line)
    return unique_lines


def _session_of(lines: Sequence[Line]) -> str | None:
    """The session that the lines name. A copy of old versions begins with lines that keep the id of their session."""
    ids = (text_in(line.json, "sessionId") for line in reversed(lines) if line.uuid is not None)
    return next((id for id in ids if id is not None), None)


def _agent_name(lines: Sequence[Line]) -> str:
    """The name of a sub-agent in its session, which is also that of its file."""
    agent_id = next((id for line in lines if (id := text_in(line.json, "agentId"))), None)
    first = next((line for line in lines if line.uuid is not None), lines[0])
    return f"agent-{agent_id or digest_id(first.record.data)}"


def _about_agent(agent: str, id: str, files: Files) -> Json:
    metadata: Json = {}
    outer = id.rpartition("/")[0]
    if outer:
        metadata["parentSession"] = f"{agent}:{outer}"
    for name, data in files.items():
        agent_info = parse_object(data) if name.endswith(".meta.json") else ""
        if isinstance(agent_info, dict):
            metadata |= {
                key: text
                for key, field in (("toolCallId", "toolUseId"), ("agent", "agentType"), ("task", "description"))
                if (text := text_in(agent_info, field))
            }
    return metadata


def _about_fork(agent: str, lines: Sequence[Line]) -> Json:
    """The session that this one was copied from: its lines name it, or those of old versions keep its id."""
    ids = [id for line in lines if line.uuid is not None and (id := text_in(line.json, "sessionId"))]
    fork_source = next((id for line in lines if (id := text_in(line.json, "forkedFrom", "sessionId"))), None)
    origin = fork_source or (ids[0] if ids and ids[0] != ids[-1] else None)
    return {} if origin is None else {"forkedFrom": f"{agent}:{origin}"}


def _header(agent: str, lines: Sequence[Line], relations: Json, *, skip_sidechains: bool) -> SessionHeader:
    metadata: Json = {"program": agent}
    titles: dict[str, str] = {}
    uuids = {line.uuid for line in lines}
    for line in lines:
        if skip_sidechains and line.is_sidechain:
            continue
        for key, field in _ABOUT:
            if key not in metadata and (text := text_in(line.json, field)):
                metadata[key] = text
        if line.type in _TITLES and (text := text_in(line.json, _TITLES[line.type])):
            leaf = text_in(line.json, "leafUuid")  # a summary has one; some are about other sessions of the project
            if leaf is None or leaf in uuids:
                titles[line.type] = text
        text = " ".join(text for block in line.blocks if (text := text_in(block, "text"))) if is_prompt(line) else ""
        if text and "prompt" not in titles and not _is_written_by_program(line):
            titles["prompt"] = text
        elif "command" not in titles and (command := _COMMAND.search(text)):
            arguments = _ARGUMENTS.search(text)
            titles["command"] = f"{command[1]} {arguments[1] if arguments else ''}"
    title = next((titles[kind] for kind in (*_TITLES, "prompt", "command") if titles.get(kind)), None)
    return SessionHeader(title=short_line(title), origin=agent, metadata=metadata | relations)


def _is_written_by_program(line: Line) -> bool:
    if line.json.get("isMeta") is True or line.json.get("isCompactSummary") is True:
        return True
    text = next((text for block in line.blocks if (text := text_in(block, "text"))), "")
    origin = line.json.get("origin")
    is_notice = isinstance(origin, dict) and origin.get("kind") == "task-notification"
    return is_notice or _PROGRAM_TEXT.match(text) is not None or text.startswith(_INTERRUPTED)


class _Conversation:
    """Makes the steps of one session, in the order of its lines."""

    def __init__(self, agent: str, id: str, lines: Sequence[Line], report: ReadReport, *, is_agent: bool) -> None:
        self.report = report
        self.sidechains: list[tuple[str, list[Line], str | None]] = []  # id, lines, and the call that began it
        self._agent = agent
        self._id = id
        self._lines = lines
        self._is_agent = is_agent
        self._answers = answers_of([line for line in lines if self._is_own(line)])
        self._calls = MessageFacts()
        self._boundary: Line | None = None  # the boundary of a compaction whose summary has not come yet
        self._steps: list[TranscriptStep] = []
        # Each step hangs on a turn: a prompt, an answer or a compaction. Results and notes hang on the turn before
        # them, so a line that follows any of these continues the conversation, and another one goes back in it.
        self._turns: list[int] = []  # step -> the step of its turn
        self._ends: dict[int, int] = {}  # turn -> the last step that hangs on it
        self._step_of: dict[str, int] = {}  # uuid -> step
        self._prompts: dict[str, list[str]] = {}  # prompt of a sub-agent -> calls whose sidechain has not begun
        self._chains: dict[str, int] = {}  # uuid of a line in a sidechain -> its index

    def steps(self) -> list[TranscriptStep]:
        for line in self._lines:
            if not line.json:
                self._note(line)
            elif not self._is_own(line):
                self._add_to_sidechain(line)
                self.report.add("sidechain", "read")
                self._note(line)
            elif line.type == "assistant":
                self._answer(line)
            elif line.type == "user":
                self._user(line)
            elif line.kind == "system/compact_boundary":
                self._keep_boundary()
                self._boundary = line
            else:
                self._other(line)
        self._keep_boundary()
        return self._steps

    def _is_own(self, line: Line) -> bool:
        return self._is_agent or not line.is_sidechain

    # -- steps and where they belong

    def _add(
        self,
        lines: Sequence[Line],
        facts: Sequence[Fact],
        *,
        is_turn: bool,
        refers_to: int | None = None,
        parent: int | None = None,
    ) -> int:
        number = len(self._steps)
        is_result = any(isinstance(fact, Message) and fact.tool_results for fact in facts)
        parent = self._parent_of(lines[0], is_result=is_result) if parent is None else parent
        records = tuple(line.record for line in lines)
        time = next((time for line in lines if (time := time_from_text(line.json.get("timestamp")))), None)
        self._steps.append(TranscriptStep(tuple(facts), records, time, parent, refers_to))
        above = (number - 1 if parent is None else parent) if number else START
        turn = number if is_turn else self._turns[above] if above >= 0 else START
        self._turns.append(turn)
        self._ends[turn] = number
        for line in lines:
            if line.uuid is not None:
                self._step_of[line.uuid] = number
        return number

    def _parent_of(self, line: Line, *, is_result: bool) -> int | None:
        """The step that a line follows if it goes back in the conversation; None if it continues it.

        A result continues it even if other lines were written since its call, and so does a compaction.
        """
        if not self._steps or line.uuid is None:
            return None
        is_compaction = _is_compaction(line)
        if line.has_null_parent and not is_compaction:
            return START if self._step_of else None
        parent = text_in(line.json, "logicalParentUuid") if is_compaction else line.parent
        above = None if parent is None else self._step_of.get(parent)
        if above is None or self._turns[above] == self._turns[-1]:
            return None
        if (is_result or is_compaction) and self._is_on_branch(above):
            return None
        return self._ends[self._turns[above]]

    def _is_on_branch(self, step: int) -> bool:
        """Whether the conversation, as it is now, has this step."""
        index = len(self._steps) - 1
        while index > step:
            parent = self._steps[index].parent
            index = index - 1 if parent is None else parent
        return index == step

    def _note(self, line: Line) -> None:
        """Keep a line that is not understood, or not part of this conversation."""
        self._add([line] if self._is_own(line) or not line.json else [Line(line.record, {})], (), is_turn=False)

    def _keep_boundary(self) -> None:
        """Keep the beginning of a compaction that has no summary."""
        if self._boundary is not None:
            line, self._boundary = self._boundary, None
            self.report.add(line.kind, "opaque")
            self._note(line)

    # -- lines

    def _other(self, line: Line) -> None:
        if line.type == "last-prompt":
            self.report.add(line.kind, "read")
            self._add([line], (), is_turn=False, parent=self._end_named_by(line))
            return
        facts = self._facts_of(line)
        self.report.add(line.kind, "read" if facts or line.type in _TITLES else "opaque")
        self._add([line], facts, is_turn=bool(facts))

    def _end_named_by(self, line: Line) -> int | None:
        """The step that the conversation went back to, if a line says so: it is written even if nothing follows.

        It names the end of the conversation. An earlier one counts only if the user chose it; a line that is written
        while the conversation goes on may be behind it.
        """
        is_chosen = line.json.get("explicit") is True
        leaf = text_in(line.json, "leafUuid")
        if leaf is None:
            is_empty = is_chosen and line.json.get("leafUuid", "") is None
            return START if is_empty and self._step_of else None
        step = self._step_of.get(leaf)
        if step is None or self._turns[step] == self._turns[-1] or (self._is_on_branch(step) and not is_chosen):
            return None
        return self._ends[self._turns[step]]

    def _facts_of(self, line: Line) -> list[Fact]:
        """The facts of an attachment that a person wrote or chose; the program itself injects all others."""
        attachment = line.json.get("attachment")
        if line.kind == "attachment/queued_command" and isinstance(attachment, dict):
            is_notice = text_in(attachment, "commandMode") == "task-notification"
            prompts = self._read("user", blocks_of(attachment.get("prompt")), line, "")
            return [
                self._stamped(line, _marked(prompt, synthetic=is_notice)) for prompt in prompts if prompt.role == "user"
            ]
        if line.kind == "attachment/file" and (text := text_in(attachment, "content", "file", "content")):
            path = text_in(attachment, "filename") or text_in(attachment, "content", "file", "filePath") or "file"
            return [self._stamped(line, Message("user", (Text(f"{path}:\n{text}", synthetic=True),)))]
        return []

    def _answer(self, line: Line) -> None:
        answer = self._answers[line.record.place]
        if answer.lines[0] is not line:
            return  # its step has all lines of the answer
        self._keep_boundary()
        for answer_line in answer.lines:
            self.report.add(answer_line.kind, "read")
        if line.json.get("isApiErrorMessage") is True:
            facts: list[Fact] = [_failure(answer)]
        else:
            facts = self._answer_facts(answer)
        self._add(answer.lines, facts, is_turn=True)

    def _answer_facts(self, answer: AnswerLines) -> list[Fact]:
        name = text_in(answer.last.message, "model")
        model = None if name is None or name == SYNTHETIC else ModelRef(_PROVIDER, name)
        message = self._read("assistant", answer.blocks, answer.lines[0], name or "")
        if not message or message[0].role != "assistant":
            return []
        answer_message = self._calls.calls(message[0])
        answer_message = _marked(answer_message, synthetic=name == SYNTHETIC)
        for call in answer_message.tool_calls:
            if call.tool_name in _CALLS_OF_AGENTS and (prompt := text_in(call.arguments, "prompt")):
                self._prompts.setdefault(prompt, []).append(call.tool_call_id)
        return [self._stamped(answer.lines[0], answer_message, meta=_meta(answer, model))]

    def _user(self, line: Line) -> None:
        if line.json.get("isCompactSummary") is True:
            self._compaction(line)
            return
        self._keep_boundary()
        facts = self._user_facts(line)
        self.report.add(line.kind, "read" if facts else "opaque")
        self._add([line], facts, is_turn=bool(facts) and is_prompt(line))

    def _user_facts(self, line: Line) -> list[Fact]:
        facts: list[Fact] = []
        is_synthetic = _is_written_by_program(line)
        is_hidden = line.json.get("isVisibleInTranscriptOnly") is True or line.json.get("isVirtual") is True
        for number, message in enumerate(self._read("user", line.blocks, line, "")):
            if message.role == "tool":
                results = self._calls.results(self._with_details(message, line))
                if results is not None:
                    facts.append(self._stamped(line, results, number))
                continue
            marked = _marked(message, synthetic=is_synthetic, ignored=is_hidden)
            facts.append(self._stamped(line, marked, number))
            if message.text.startswith(_INTERRUPTED):
                facts.append(RunEnded(status="aborted", reason="user"))
        return facts

    def _with_details(self, message: Message, line: Line) -> Message:
        """The results, with the session of a sub-agent and whether the user refused the call."""
        details = line.json.get("toolUseResult")
        agent_id = text_in(details, "agentId")
        outer = self._id.partition("/")[0]
        results: list[ToolResult] = []
        for result in message.tool_results:
            session = f"{self._agent}:{outer}/agent-{agent_id}" if agent_id else self._sidechain_of(result.tool_call_id)
            if session is not None:
                result = replace(result, metadata={"sessionId": session})
            if result.is_error and isinstance(result.content, str) and result.content.startswith(_REJECTED):
                result = replace(result, error_code=ErrorCode.TOOL_DENIED)
            results.append(result)
        return message if all(map(is_, results, message.parts)) else replace(message, parts=tuple(results))

    def _sidechain_of(self, call_id: str) -> str | None:
        return next((f"{self._agent}:{id}" for id, _, call in self.sidechains if call == call_id), None)

    def _compaction(self, line: Line) -> None:
        """A boundary and its summary. What it keeps is named by uuid, and is on the same branch.

        It usually keeps the end of the conversation, after the summary. "Summarize from here" keeps the beginning, and
        the summary follows that: it is about a branch that was left.
        """
        boundary, self._boundary = self._boundary, None
        lines = [line] if boundary is None else [boundary, line]
        details = {} if boundary is None else object_in(boundary.json, "compactMetadata")
        preserved = _preserved(details)
        kept_steps = [self._step_of[uuid] for uuid in preserved if uuid in self._step_of]
        summary = "".join(text for block in line.blocks if (text := text_in(block, "text")))
        for summary_line in lines:
            self.report.add(summary_line.kind, "read")
        if kept_steps and boundary is not None and boundary.uuid in _anchors(details):
            branch_end = len(self._steps) - 1
            self._add(
                lines,
                [BranchSummary(summary=summary, from_entry_id="")],
                is_turn=True,
                refers_to=branch_end,
                parent=max(kept_steps),
            )
            return
        fact = CompactionSummary(
            summary=summary,
            first_kept_entry_id="",
            tokens_before=token_count(details.get("preTokens")),
            tokens_after=token_count(details.get("postTokens")),
        )
        number = self._add(lines, [fact], is_turn=True, refers_to=min(kept_steps, default=None))
        self._step_of.update(dict.fromkeys(preserved, number))

    # -- sidechains

    def _add_to_sidechain(self, line: Line) -> None:
        """Add a line of a sub-agent to the chain that it follows, or begin one."""
        index = None if line.parent is None else self._chains.get(line.parent)
        if index is None and line.uuid is not None:
            index = self._chains.get(line.uuid)  # a line that is repeated
        if index is None and line.uuid is None and self.sidechains:
            index = len(self.sidechains) - 1
        if index is None:
            index = len(self.sidechains)
            prompt = "".join(text for block in line.blocks if (text := text_in(block, "text")))
            id = f"{self._id}/sidechain-{line.uuid or line.record.place}"
            calls = self._prompts.get(prompt)
            self.sidechains.append((id, [], calls.pop(0) if calls else None))
        self.sidechains[index][1].append(line)
        if line.uuid is not None:
            self._chains[line.uuid] = index

    # -- messages

    def _read(self, role: str, blocks: list[Json], line: Line, model: str) -> list[Message]:
        body: Json = {"model": model or "unknown", "messages": [{"role": role, "content": blocks}]}
        return read_messages(_FORMAT, body, _PROVIDER, line.record, self.report) if blocks else []

    def _stamped(self, line: Line, message: Message, number: int = 0, **fields: Any) -> Message:
        uuid = line.uuid
        id = None if uuid is None else f"{uuid}/{number}" if number else uuid
        return replace(message, id=id, timestamp=time_from_text(line.json.get("timestamp")), **fields)


def _marked(message: Message, *, synthetic: bool = False, ignored: bool = False) -> Message:
    """The message, with what is known about its texts."""
    if not synthetic and not ignored:
        return message
    parts = (
        replace(part, synthetic=synthetic, ignored=ignored) if isinstance(part, Text) else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def _is_compaction(line: Line) -> bool:
    return line.kind == "system/compact_boundary" or line.json.get("isCompactSummary") is True


def _preserved(details: Json) -> list[str]:
    """The uuids of the messages that a compaction keeps."""
    segment = (text_in(details, "preservedSegment", key) for key in ("headUuid", "tailUuid"))
    return [*texts_in(details, "preservedMessages", "uuids"), *(uuid for uuid in segment if uuid is not None)]


def _anchors(details: Json) -> list[str | None]:
    """The uuid of the line that the kept messages follow."""
    return [text_in(details, key, "anchorUuid") for key in ("preservedMessages", "preservedSegment")]


def _meta(answer: AnswerLines, model: ModelRef | None) -> Meta:
    reason = answer.field("stop_reason")
    raw = reason if isinstance(reason, str) else None
    costs = [cost for line in answer.lines if (cost := amount(line.json.get("costUSD"))) is not None]
    return Meta(
        model=model,
        response_id=text_in(answer.last.message, "id"),
        usage=None if answer.field("model") == SYNTHETIC else _usage(answer.field("usage")),
        cost_usd=sum(costs) if costs else None,
        finish_reason=None if raw is None else FINISH_REASONS.get(raw, "other"),
        raw_finish_reason=raw,
        completed_at=time_from_text(answer.last.json.get("timestamp")),
    )


def _usage(usage: Any) -> Usage | None:
    """The usage of an answer. All of its lines repeat it; in old versions, the last one has the count of the output."""
    if not isinstance(usage, dict):
        return None
    return usage_of(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cache_read=usage.get("cache_read_input_tokens"),
        cache_write=usage.get("cache_creation_input_tokens"),
    )


def _failure(answer: AnswerLines) -> StreamFailed:
    line = answer.lines[0]
    text = "".join(text for block in answer.blocks if (text := text_in(block, "text")))
    stated = _STATUS.match(text)
    status = token_count(line.json.get("apiErrorStatus"), int(stated[1]) if stated else None)
    raw = text_in(line.json, "error")
    code = classify(status, raw, text)
    return StreamFailed(error=Failed(code, text, status=status, raw_code=raw))
