"""Sessions of other agents, in and out: one module or folder for each format, and one row in `FORMATS`.

A reader gets the files of a session and returns a `Transcript` (see `transcript.py`): every record of the source, and
the facts that it became. `entries.py` makes entries of it, which keep the records as they are, and returns the files
again. Readers do no I/O; `disk/files.py` finds the files and reads them, and `disk/importing.py` stores them.

To add a format:

1. Write ``read(files) -> list[Transcript]``. It never raises for content: what it does not understand becomes a step
   without facts, counted in the report. `values.py` has what readers share.
2. Write a function that recognises a file by its name and first bytes.
3. Add a row to `FORMATS`.
4. To write the format as well, add a `TranscriptWriter` (`writing.py`) to the row.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from bartack_transcripts.ai_sdk import AI_SDK_WRITER, looks_like_ai_sdk, read_ai_sdk
from bartack_transcripts.aider import looks_like_aider, read_aider
from bartack_transcripts.amp import looks_like_amp, read_amp
from bartack_transcripts.atif import ATIF_WRITER, looks_like_atif, read_atif
from bartack_transcripts.chat_jsonl import CHAT_WRITER, looks_like_chat, read_chat
from bartack_transcripts.chatgpt import looks_like_chatgpt, read_chatgpt
from bartack_transcripts.claude_ai import looks_like_claude_ai, read_claude_ai
from bartack_transcripts.claude_code import (
    CLAUDE_CODE_WRITER,
    KODE_WRITER,
    looks_like_claude_code,
    looks_like_kode,
    read_claude_code,
    read_kode,
)
from bartack_transcripts.cline import (
    HISTORY,
    looks_like_cline,
    looks_like_kilo,
    looks_like_roo,
    read_cline,
    read_kilo,
    read_roo,
)
from bartack_transcripts.codex import CODEX_WRITER, base_of, looks_like_codex, read_codex
from bartack_transcripts.copilot import looks_like_copilot, read_copilot
from bartack_transcripts.cursor import looks_like_cursor, read_cursor
from bartack_transcripts.cursor_editor import CURSOR_TABLES, looks_like_cursor_editor, read_cursor_editor
from bartack_transcripts.entries import SOURCE, entries_of, source_files, source_records
from bartack_transcripts.gemini import GEMINI_WRITER, looks_like_gemini, outer_of, read_gemini
from bartack_transcripts.goose import GOOSE_TABLES, looks_like_goose, read_goose
from bartack_transcripts.langchain import LANGCHAIN_WRITER, looks_like_langchain, read_langchain
from bartack_transcripts.librechat import looks_like_librechat, read_librechat
from bartack_transcripts.llm import LLM_TABLES, looks_like_llm, read_llm
from bartack_transcripts.open_webui import looks_like_open_webui, read_open_webui
from bartack_transcripts.opencode import OPENCODE_WRITER, TABLES, looks_like_opencode, read_opencode
from bartack_transcripts.openhands import STATE, looks_like_openhands, read_openhands
from bartack_transcripts.pi import PI_WRITER, looks_like_pi, read_pi
from bartack_transcripts.pydantic_ai import PYDANTIC_WRITER, looks_like_pydantic_ai, read_pydantic_ai
from bartack_transcripts.qwen import QWEN_WRITER, looks_like_qwen, read_qwen
from bartack_transcripts.strands import STRANDS_WRITER, looks_like_strands, read_strands
from bartack_transcripts.swe_agent import looks_like_swe_agent, read_swe_agent
from bartack_transcripts.transcript import Files, Problem, ReadReport, Record, Rows, Transcript, TranscriptStep
from bartack_transcripts.vscode import looks_like_vscode, read_vscode
from bartack_transcripts.writing import (
    Exported,
    Outgoing,
    TranscriptWriter,
    WrittenTranscript,
    export_mark,
    exported,
    origin_id,
    session_ids,
    with_bases,
    with_children,
)
from bartack_transcripts.zed import ZED_TABLES, looks_like_zed, read_zed

__all__ = [
    "FORMATS",
    "SOURCE",
    "Exported",
    "Files",
    "Outgoing",
    "Problem",
    "ReadReport",
    "Record",
    "Rows",
    "Transcript",
    "TranscriptFormat",
    "TranscriptPlace",
    "TranscriptStep",
    "TranscriptWriter",
    "WrittenTranscript",
    "entries_of",
    "export_mark",
    "exported",
    "origin_id",
    "recognised_format",
    "session_ids",
    "source_files",
    "source_records",
    "with_bases",
    "with_children",
]


class TranscriptPlace(NamedTuple):
    """Where a program keeps transcripts, as patterns. The name of a transcript is its path in the folder."""

    folder: str  # relative to the home of the program
    file: str  # the pattern of a file, or of a folder that is one transcript
    unless: str | None = None  # exists once the program has moved these transcripts elsewhere


class TranscriptFormat(NamedTuple):
    """Everything about the transcripts of one program."""

    name: str  # the name on the command line
    title: str  # the name in prose
    homes: tuple[str, ...]  # homes of the program: environment variables first, then paths
    places: tuple[TranscriptPlace, ...]
    looks_like: Callable[[str, bytes], bool]  # gets the name of a file and its first bytes
    read: Callable[[Files], list[Transcript]]
    writer: TranscriptWriter | None = None
    companions: tuple[str, ...] = ()  # endings of other files that belong to a transcript, in place of its own
    marker: str | None = None  # a file or folder in each folder that is a transcript as a whole
    tables: Mapping[str, Rows] = MappingProxyType({})  # kind of record -> its rows in a database
    base_of: Callable[[bytes], str | None] = lambda data: None  # the pattern of the file that a transcript continues
    # The pattern of the file of the session that called a sub-agent, in the folder above that of the sub-agent.
    outer_of: Callable[[str], str | None] = lambda name: None
    copies_forks: bool = False  # whether a fork has the records of its origin, and need not name it
    # For the guide: what is read, after the title, and what reading or an export from another program leaves out.
    contents: str = ""
    limits: str = ""


_TASKS = (TranscriptPlace("tasks", f"*/{HISTORY}"),)


def _extension_homes(id: str) -> tuple[str, ...]:
    """Where VS Code keeps the files of an extension: on Linux, on a remote machine, and on macOS."""
    folders = ("~/.config/Code", "~/.vscode-server/data", "~/Library/Application Support/Code")
    return tuple(f"{folder}/User/globalStorage/{id}" for folder in folders)


_CLAUDE_CODE_PLACES = (
    TranscriptPlace("projects/*", "*.jsonl"),
    TranscriptPlace("projects/*", "*/subagents/agent-*.jsonl"),
)

FORMATS: dict[str, TranscriptFormat] = {
    row.name: row
    for row in (
        # Before those of Claude Code, which are recognised by less.
        TranscriptFormat(
            "gemini",
            "Gemini CLI",
            ("~/.gemini",),
            (TranscriptPlace("tmp/*/chats", "session-*.json*"), TranscriptPlace("tmp/*/chats", "*/*.jsonl")),
            looks_like_gemini,
            read_gemini,
            GEMINI_WRITER,
            outer_of=outer_of,
            contents="versions 0.1 to 0.61",
            limits="signatures, thinking of models other than Google's, branches",
        ),
        TranscriptFormat(
            "qwen",
            "Qwen Code",
            ("$QWEN_RUNTIME_DIR", "$QWEN_HOME", "~/.qwen"),
            (
                TranscriptPlace("projects/*/chats", "*.jsonl"),
                TranscriptPlace("projects/*", "subagents/*/agent-*.jsonl"),
            ),
            looks_like_qwen,
            read_qwen,
            QWEN_WRITER,
            companions=(".meta.json",),
            contents="versions 0.5 to 0.24",
            limits="thinking of sessions that are not from Qwen Code",
        ),
        TranscriptFormat(
            "kode",
            "Kode",
            ("$KODE_CONFIG_DIR", "~/.kode"),
            _CLAUDE_CODE_PLACES,
            looks_like_kode,
            read_kode,
            KODE_WRITER,
            contents="version 2.0",
            limits="thinking of models other than Anthropic's",
        ),
        TranscriptFormat(
            "claude-code",
            "Claude Code",
            ("$CLAUDE_CONFIG_DIR", "~/.claude"),
            _CLAUDE_CODE_PLACES,
            looks_like_claude_code,
            read_claude_code,
            CLAUDE_CODE_WRITER,
            companions=(".meta.json",),
            copies_forks=True,
            contents="versions 1.0 to 2.1",
            limits="thinking of models other than Anthropic's",
        ),
        TranscriptFormat(
            "codex",
            "Codex",
            ("$CODEX_HOME", "~/.codex"),
            tuple(
                TranscriptPlace(folder, file)
                for folder in ("sessions/*/*/*", "archived_sessions")
                for file in ("rollout-*.jsonl", "rollout-*.jsonl.zst")
            ),
            looks_like_codex,
            read_codex,
            CODEX_WRITER,
            base_of=base_of,
            contents="versions 0.40 to 0.169, including compressed files",
            limits="thinking of models other than OpenAI's, branches, the error flag of results",
        ),
        TranscriptFormat(
            "pi",
            "pi",
            ("$PI_CODING_AGENT_DIR", "~/.pi/agent"),
            (TranscriptPlace("sessions/*", "*.jsonl"),),
            looks_like_pi,
            read_pi,
            PI_WRITER,
            contents="files of versions 1 to 3",
            limits="files other than images",
        ),
        TranscriptFormat(
            "copilot",
            "Copilot CLI",
            ("~/.copilot",),
            (TranscriptPlace("session-state", "*/events.jsonl"), TranscriptPlace("session-state", "*.jsonl")),
            looks_like_copilot,
            read_copilot,
            contents="event files",
            limits="usage other than output tokens, what sub-agents did",
        ),
        TranscriptFormat(
            "opencode",
            "opencode",
            ("$XDG_DATA_HOME/opencode", "~/.local/share/opencode"),
            (
                TranscriptPlace(".", "opencode.db"),
                TranscriptPlace(".", "storage", unless="opencode.db"),
                TranscriptPlace("project/*/storage", "session", unless="storage"),
            ),
            looks_like_opencode,
            read_opencode,
            OPENCODE_WRITER,
            marker="message",
            tables=TABLES,
            contents="its database, JSON files of earlier versions, and exports",
            limits="thinking that only another provider can read; `opencode import FILE` reads an export",
        ),
        TranscriptFormat(
            "strands",
            "Strands Agents",
            (),
            (),
            looks_like_strands,
            read_strands,
            STRANDS_WRITER,
            marker="session.json",
            contents="session folders and snapshots",
            limits="thinking of models outside Bedrock",
        ),
        TranscriptFormat(
            "llm",
            "llm",
            ("$LLM_USER_PATH", "~/.config/io.datasette.llm", "~/Library/Application Support/io.datasette.llm"),
            (TranscriptPlace(".", "logs.db"),),
            looks_like_llm,
            read_llm,
            tables=LLM_TABLES,
            contents="its `logs.db`",
        ),
        TranscriptFormat(
            "cline",
            "Cline",
            _extension_homes("saoudrizwan.claude-dev"),
            _TASKS,
            looks_like_cline,
            read_cline,
            contents="`tasks/*/api_conversation_history.json`",
            limits="models, usage; a file that you name counts as Cline's unless you pass `--agent`",
        ),
        TranscriptFormat(
            "roo",
            "Roo Code",
            _extension_homes("rooveterinaryinc.roo-cline"),
            _TASKS,
            looks_like_roo,
            read_roo,
            contents="the same files",
            limits="models, usage",
        ),
        TranscriptFormat(
            "kilo",
            "Kilo Code",
            _extension_homes("kilocode.kilo-code"),
            _TASKS,
            looks_like_kilo,
            read_kilo,
            contents="the same files",
            limits="models, usage",
        ),
        TranscriptFormat(
            "cursor",
            "Cursor",
            ("~/.cursor",),
            (TranscriptPlace("projects/*/agent-transcripts", "*/*.jsonl"),),
            looks_like_cursor,
            read_cursor,
            contents="`agent-transcripts` of its agent",
            limits="models, usage and times, which are not stored, and most results of calls",
        ),
        TranscriptFormat(
            "cursor-editor",
            "Cursor's editor",
            ("~/.config/Cursor/User", "~/Library/Application Support/Cursor/User"),
            (TranscriptPlace("globalStorage", "state.vscdb"),),
            looks_like_cursor_editor,
            read_cursor_editor,
            tables=CURSOR_TABLES,
            contents="the chats in its `state.vscdb`",
            limits="chats of 2023, which are in the databases of workspaces; images",
        ),
        TranscriptFormat(
            "vscode",
            "VS Code",
            (
                "~/.config/Code/User",
                "~/.vscode-server/data/User",
                "~/Library/Application Support/Code/User",
            ),
            (
                TranscriptPlace("workspaceStorage/*/chatSessions", "*.json*"),
                TranscriptPlace("globalStorage/emptyWindowChatSessions", "*.json*"),
            ),
            looks_like_vscode,
            read_vscode,
            contents="`chatSessions`, as objects and as changes",
            limits="the arguments of most calls, of which only a description is stored; images",
        ),
        TranscriptFormat(
            "goose",
            "Goose",
            ("$XDG_DATA_HOME/goose", "~/.local/share/goose"),
            (TranscriptPlace("sessions", "sessions.db"),),
            looks_like_goose,
            read_goose,
            tables=GOOSE_TABLES,
            contents="its `sessions.db`",
            limits="usage, and the files of versions before the database",
        ),
        TranscriptFormat(
            "openhands",
            "OpenHands",
            ("~/.openhands",),
            (TranscriptPlace("conversations", "*"),),
            looks_like_openhands,
            read_openhands,
            marker=STATE,
            contents="the folders of conversations of its CLI and SDK",
            limits="usage, and the events of versions before 1.0",
        ),
        TranscriptFormat(
            "zed",
            "Zed",
            ("~/.local/share/zed", "~/Library/Application Support/Zed"),
            (TranscriptPlace("threads", "threads.db"),),
            looks_like_zed,
            read_zed,
            tables=ZED_TABLES,
            contents="the threads of its agent",
            limits="usage, and the time of each message, which is not stored",
        ),
        TranscriptFormat(
            "aider",
            "aider",
            (),
            (),
            looks_like_aider,
            read_aider,
            contents="`.aider.chat.history.md`, each chat as a session",
            limits="calls, usage and times, which are not stored; a file is read where you name it or its folder",
        ),
        TranscriptFormat(
            "amp",
            "Amp",
            ("$XDG_DATA_HOME/amp", "~/.local/share/amp"),
            (TranscriptPlace("threads", "*.json"),),
            looks_like_amp,
            read_amp,
            contents="threads",
            limits="the usage of older versions, which is not with the messages; images",
        ),
        TranscriptFormat(
            "swe-agent",
            "SWE-agent",
            (),
            (),
            looks_like_swe_agent,
            read_swe_agent,
            contents="`.traj` files, and `.traj.json` of mini-SWE-agent",
            limits="the model and its cost",
        ),
        # Data exports and messages of libraries, which have no place of their own.
        TranscriptFormat(
            "chatgpt",
            "ChatGPT export",
            (),
            (),
            looks_like_chatgpt,
            read_chatgpt,
            contents="`conversations.json`, all branches with the one that is shown last",
            limits="the contents of files",
        ),
        TranscriptFormat(
            "claude-ai",
            "Claude.ai export",
            (),
            (),
            looks_like_claude_ai,
            read_claude_ai,
            contents="`conversations.json`, all branches",
            limits="the contents of files",
        ),
        TranscriptFormat(
            "open-webui",
            "Open WebUI export",
            (),
            (),
            looks_like_open_webui,
            read_open_webui,
            contents="exported chats, all branches",
            limits="the contents of files",
        ),
        TranscriptFormat(
            "librechat",
            "LibreChat export",
            (),
            (),
            looks_like_librechat,
            read_librechat,
            contents="exported conversations as JSON, all branches",
            limits="usage, the contents of files",
        ),
        TranscriptFormat(
            "pydantic-ai",
            "pydantic-ai",
            (),
            (),
            looks_like_pydantic_ai,
            read_pydantic_ai,
            PYDANTIC_WRITER,
            contents="the JSON of `ModelMessagesTypeAdapter`",
            limits="encrypted reasoning of OpenAI; a compaction becomes a message",
        ),
        TranscriptFormat(
            "langchain",
            "LangChain",
            (),
            (),
            looks_like_langchain,
            read_langchain,
            LANGCHAIN_WRITER,
            contents="the JSON of `messages_to_dict`, and that of `dumps`",
            limits="thinking of models other than Anthropic's, times; a compaction becomes a message",
        ),
        TranscriptFormat(
            "ai-sdk",
            "AI SDK",
            (),
            (),
            looks_like_ai_sdk,
            read_ai_sdk,
            AI_SDK_WRITER,
            contents="a list of `UIMessage`",
            limits="system messages, signatures, usage, compactions",
        ),
        TranscriptFormat(
            "chat-jsonl",
            "Chat Completions JSONL",
            (),
            (),
            looks_like_chat,
            read_chat,
            CHAT_WRITER,
            contents='`{"messages": [...]}` on each line, or one message on each',
            limits="thinking, times, usage, the error flag of results",
        ),
        TranscriptFormat(
            "atif",
            "ATIF",
            (),
            (),
            looks_like_atif,
            read_atif,
            ATIF_WRITER,
            contents="a trajectory, version 1.5; write only",
            limits="signatures, images; a compaction becomes a message",
        ),
    )
}


def recognised_format(name: str, head: bytes) -> TranscriptFormat | None:
    """The format of a file, by its name and first bytes; None if it is not a transcript of a known program."""
    return next((row for row in FORMATS.values() if row.looks_like(name, head)), None)
