"""Chats in editors, of Goose, OpenHands and aider, and exports of Open WebUI and LibreChat."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.nouns.entries import Entry, branch, heads
from bartack.nouns.messages import Message
from bartack.nouns.parts import Image, Text, Thinking, ToolCall, ToolResult
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from bartack_transcripts.disk.files import found_at, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import FORMATS, Files, Transcript, entries_of
from tests.transcripts.test_laws import changed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 1767225600  # the first second of 2026
Rows = Sequence[Sequence[Any]]


def database(path: Path, tables: dict[str, Rows]) -> Path:
    """A database with these tables, by their names and columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as opened:
        for table, rows in tables.items():
            name, _, columns = table.partition(" ")
            opened.execute(f"CREATE TABLE {name} {columns}")
            opened.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        opened.commit()
    return path


def goose(folder: Path, *, more: bool = False) -> Path:
    request = {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}
    output = {"status": "success", "value": {"content": [{"type": "text", "text": "a.py"}]}}
    contents: list[tuple[str, list[dict[str, Any]], str]] = [
        ("user", [{"type": "text", "text": "What is here?"}], "{}"),
        (
            "assistant",
            [{"type": "thinking", "thinking": "List it."}, {"type": "toolRequest", "id": "c1", "toolCall": request}],
            "{}",
        ),
        ("user", [{"type": "toolResponse", "id": "c1", "toolResult": output}], "{}"),
        ("assistant", [{"type": "text", "text": "shown only"}], '{"agentVisible": false}'),
        ("assistant", [{"type": "text", "text": "One file."}], '{"agentVisible": true}'),
    ]
    if more:
        contents.append(("user", [{"type": "text", "text": "Thanks."}], "{}"))
    rows = [
        (number, "s1", role, json.dumps(content), SECONDS + number, metadata)
        for number, (role, content, metadata) in enumerate(contents, 1)
    ]
    session = (
        "s1",
        "A look around",
        "/srv/app",
        "2026-01-01 00:00:00",
        "anthropic",
        '{"model_name": "claude-x"}',
        None,
    )
    columns = "(id, description, working_dir, created_at, provider_name, model_config_json, parent_session_id)"
    return database(
        folder / "sessions.db",
        {
            f"sessions {columns}": [session],
            "messages (id, session_id, role, content_json, created_timestamp, metadata_json)": rows,
        },
    )


def zed(folder: Path, *, more: bool = False) -> Path:
    answer = [{"Thinking": {"text": "List it.", "signature": None}}, {"ToolUse": _zed_call()}, {"Text": "One file."}]
    result = {"tool_use_id": "c1", "tool_name": "shell", "is_error": False, "content": {"Text": "a.py"}}
    messages: list[Any] = [
        {"User": {"id": "u", "content": [{"Text": "What is here?"}]}},
        {"Agent": {"content": answer, "tool_results": {"c1": result}}},
    ]
    if more:
        messages.append({"User": {"content": [{"Text": "Thanks."}]}})
    document = {"messages": messages, "model": {"provider": "anthropic", "model": "claude-x"}}
    data = zstandard.compress(json.dumps(document).encode())
    row = ("s1", "A look around", "2026-01-01T00:00:00Z", "zstd", data, "/srv/app\n/srv/lib")
    return database(
        folder / "threads.db", {"threads (id, summary, updated_at, data_type, data BLOB, folder_paths)": [row]}
    )


def _zed_call() -> dict[str, Any]:
    return {"id": "c1", "name": "shell", "input": {"command": "ls"}, "raw_input": "", "is_input_complete": True}


def cursor_editor(folder: Path, *, more: bool = False) -> Path:
    tool = {
        "toolCallId": "c1",
        "name": "shell",
        "rawArgs": '{"command": "ls"}',
        "result": "a.py",
        "status": "completed",
    }
    bubbles: list[dict[str, Any]] = [
        {"type": 1, "text": "What is here?", "workspaceProjectDir": "/srv/app", "createdAt": "2026-01-01T00:00:00Z"},
        {"type": 2, "text": "", "thinking": {"text": "List it."}, "toolFormerData": tool},
        {"type": 2, "text": "One file.", "tokenCount": {"inputTokens": 0, "outputTokens": 0}},
    ]
    if more:
        bubbles.append({"type": 1, "text": "Thanks."})
    headers = [{"bubbleId": f"b{number}", "type": bubble["type"]} for number, bubble in enumerate(bubbles)]
    chat = {"name": "A look around", "createdAt": SECONDS * 1000, "fullConversationHeadersOnly": headers}
    chat["modelConfig"] = {"modelName": "claude-x"}
    rows = [(f"bubbleId:s1:b{number}", json.dumps(bubble)) for number, bubble in enumerate(bubbles)]
    return database(
        folder / "state.vscdb",
        {"cursorDiskKV (key TEXT UNIQUE, value BLOB)": [("composerData:s1", json.dumps(chat).encode()), *rows]},
    )


def vscode_requests(*, more: bool = False) -> list[dict[str, Any]]:
    call = {
        "kind": "toolInvocationSerialized",
        "toolId": "shell",
        "toolCallId": "c1",
        "toolSpecificData": {"kind": "terminal", "command": "ls"},
        "resultDetails": {"output": [{"value": "a.py"}]},
    }
    response = [{"kind": "thinking", "value": "List it."}, call, {"value": "One "}, {"value": "file."}]
    metadata = {"promptTokens": 10, "outputTokens": 5, "resolvedModel": "claude-x"}
    requests: list[dict[str, Any]] = [
        {
            "requestId": "r1",
            "message": {"text": "What is here?"},
            "response": response,
            "timestamp": SECONDS * 1000,
            "result": {"metadata": metadata},
        }
    ]
    if more:
        requests.append({"requestId": "r2", "message": {"text": "Thanks."}, "response": []})
    return requests


def vscode(folder: Path, *, more: bool = False) -> Path:
    session = {"version": 3, "requesterUsername": "me", "sessionId": "s1", "customTitle": "A look around"}
    path = folder / "s1.json"
    path.write_text(json.dumps({**session, "requests": vscode_requests(more=more)}))
    return path


def vscode_changes(folder: Path, *, more: bool = False) -> Path:
    first, *others = vscode_requests(more=more)
    response = first["response"]
    lines: list[dict[str, Any]] = [
        {"kind": 0, "v": {"version": 3, "sessionId": "s1", "requests": [], "draft": "x"}},
        {"kind": 2, "k": ["requests"], "v": [{**first, "response": [], "result": None}]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "to be cut off"}]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": response, "i": 0},
        {"kind": 1, "k": ["requests", 0, "result"], "v": first["result"]},
        {"kind": 1, "k": ["customTitle"], "v": "A look around"},
        {"kind": 3, "k": ["draft"]},
        {"kind": 1, "k": ["requests", 7, "nothing"], "v": 1},
        *({"kind": 2, "k": ["requests"], "v": [request]} for request in others),
    ]
    path = folder / "s1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "torn")
    return path


def openhands(folder: Path, *, more: bool = False) -> Path:
    arguments = json.dumps({"command": "ls"})
    said = {"role": "assistant", "content": [{"type": "text", "text": "One file."}]}
    events: list[dict[str, Any]] = [
        {"kind": "SystemPromptEvent", "system_prompt": {"text": "Be kind."}},
        {
            "kind": "MessageEvent",
            "llm_message": {"role": "user", "content": [{"type": "text", "text": "What is here?"}]},
        },
        {
            "kind": "ActionEvent",
            "thinking_blocks": [{"type": "thinking", "thinking": "List it."}],
            "tool_name": "shell",
            "tool_call_id": "c1",
            "tool_call": {"id": "c1", "name": "shell", "arguments": arguments},
        },
        {
            "kind": "ObservationEvent",
            "tool_call_id": "c1",
            "observation": {"content": [{"type": "text", "text": "a.py"}]},
        },
        {"kind": "MessageEvent", "llm_message": said},
    ]
    if more:
        thanks = {"role": "user", "content": [{"type": "text", "text": "Thanks."}]}
        events.append({"kind": "MessageEvent", "llm_message": thanks})
    state = {"id": "s1", "agent": {"llm": {"model": "anthropic/claude-x"}}, "workspace": {"working_dir": "/srv/app"}}
    (folder / "s1" / "events").mkdir(parents=True, exist_ok=True)
    (folder / "s1" / "base_state.json").write_text(json.dumps({**state, "stats": len(events)}))
    for number, event in enumerate(events):
        path = folder / "s1" / "events" / f"event-{number:05}-{number}.json"
        path.write_text(json.dumps({"timestamp": f"2026-01-01T00:00:{number:02}", **event}))
    return folder / "s1"


def open_webui(folder: Path, *, more: bool = False) -> Path:
    output = [
        {"type": "reasoning", "content": [{"type": "output_text", "text": "List it."}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command": "ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.py"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "One file."}]},
    ]
    messages: dict[str, Any] = {
        "u": {"id": "u", "parentId": None, "childrenIds": ["b", "a"], "role": "user", "content": "What is here?"},
        "a": {
            "id": "a",
            "parentId": "u",
            "childrenIds": ["t"] * more,
            "role": "assistant",
            "content": "",
            "output": output,
        },
        "b": {"id": "b", "parentId": "u", "childrenIds": [], "role": "assistant", "content": "Another answer."},
    }
    messages["a"]["model"] = "claude-x"
    if more:
        messages["t"] = {"id": "t", "parentId": "a", "childrenIds": [], "role": "user", "content": "Thanks."}
    chat = {"title": "A look around", "history": {"currentId": "t" if more else "a", "messages": messages}}
    path = folder / "chats.json"
    path.write_text(json.dumps([{"id": "s1", "title": "A look around", "chat": chat, "created_at": SECONDS}]))
    return path


def librechat(folder: Path, *, more: bool = False) -> Path:
    call = {"id": "c1", "name": "shell", "args": '{"command": "ls"}', "output": "a.py"}
    content = [
        {"type": "think", "think": "List it."},
        {"type": "tool_call", "tool_call": call},
        {"type": "text", "text": {"value": "One file."}},
    ]
    thanks = {"messageId": "t", "text": "Thanks.", "isCreatedByUser": True, "children": []}
    answers = [
        {"messageId": "b", "text": "Another answer.", "isCreatedByUser": False, "children": []},
        {
            "messageId": "a",
            "model": "claude-x",
            "isCreatedByUser": False,
            "content": content,
            "children": [thanks] * more,
        },
    ]
    for message in (thanks, *answers):
        message["parentMessageId"] = "a" if message is thanks else "u"
    prompt = {"messageId": "u", "parentMessageId": None, "text": "What is here?", "isCreatedByUser": True}
    tree = {"conversationId": "s1", "title": "A look around", "exportAt": "now", "recursive": True}
    path = folder / "trip.json"
    path.write_text(json.dumps({**tree, "messages": [{**prompt, "children": answers}]}))
    return path


WHAT_WAS_SAID = ["user: What is here?", "(List it.)", "c1 shell {'command': 'ls'}", "c1 = a.py", "assistant: One file."]
SOURCES: dict[str, Callable[..., Path]] = {
    "goose": goose,
    "zed": zed,
    "cursor-editor": cursor_editor,
    "vscode": vscode,
    "vscode changes": vscode_changes,
    "openhands": openhands,
    "open-webui": open_webui,
    "librechat": librechat,
}
TREES = ("open-webui", "librechat")


def said(entries: Sequence[Entry]) -> list[str]:
    """What was said on the last branch, one line for each part, in the order of the conversation."""
    lines: list[str] = []
    for entry in branch(entries, heads(entries)[-1]):
        for part in entry.fact.parts if isinstance(entry.fact, Message) else ():
            match part:
                case Text(text=text):
                    lines.append(f"{entry.fact.role if isinstance(entry.fact, Message) else ''}: {text}")
                case Thinking(text=text):
                    lines.append(f"({text})")
                case ToolCall():
                    lines.append(f"{part.tool_call_id} {part.tool_name} {part.arguments}")
                case ToolResult():
                    lines.append(f"{part.tool_call_id} = {part.content}")
                case _:
                    lines.append(type(part).__name__)
    return lines


def models_in(entries: Sequence[Entry]) -> set[str]:
    metas = [entry.fact.meta for entry in entries if isinstance(entry.fact, Message)]
    return {meta.model.model for meta in metas if meta is not None and meta.model is not None}


@pytest.mark.parametrize("name", SOURCES)
def test_a_session_is_recognised_and_read(name: str, tmp_path: Path) -> None:
    source = found_at(SOURCES[name](tmp_path))
    assert source.format.name == name.partition(" ")[0]
    (transcript,) = read_transcripts(source)
    entries = entries_of(transcript)
    expected = WHAT_WAS_SAID
    if name == "zed":  # the results are beside the answer
        expected = [*WHAT_WAS_SAID[:3], WHAT_WAS_SAID[4], WHAT_WAS_SAID[3]]
    assert said(entries) == expected
    assert len(heads(entries)) == (2 if name in TREES else 1)
    assert models_in(entries) <= {"claude-x", "anthropic/claude-x"} != set()
    assert models_in(entries)
    assert transcript.id == "s1"
    assert transcript.header.title in ("A look around", "What is here?")
    directory = (transcript.header.metadata or {}).get("directory")
    assert directory == ("/srv/app" if name in ("goose", "zed", "cursor-editor", "openhands") else None)
    assert transcript.report.total("damaged") == 0


@pytest.mark.parametrize("name", SOURCES)
async def test_a_session_that_goes_on_adds_what_is_new(name: str, tmp_path: Path) -> None:
    store = MemoryStore()
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    source = found_at(SOURCES[name](tmp_path / "1"))
    later = found_at(SOURCES[name](tmp_path / "2", more=True))
    for place, is_rewritten in ((source, False), (later, False), (later, False), (source, False)):
        (transcript,) = read_transcripts(place)
        imported = await import_transcript(store, transcript, NOW)
        assert imported.is_rewritten == is_rewritten
    assert imported.entries == 0
    entries = await store.entries(transcript.session_id)
    assert said(entries)[-1] == "user: Thanks."
    assert len(said(entries)) == len(WHAT_WAS_SAID) + 1
    assert len(heads(entries)) == (2 if name in TREES else 1)
    assert await check(store, transcript.session_id) == []


def files_in(path: Path) -> Files:
    """The files that the reader of a source gets, without those of a database, which are rows."""
    if path.is_dir():
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return {path.name: path.read_bytes()}


ROWS: dict[str, Files] = {
    "goose": {
        "session/s1": b'{"id":"s1","working_dir":"/srv","model_config_json":"{\\"model_name\\":\\"m\\"}"}',
        "message/1": json.dumps(
            {"id": 1, "session_id": "s1", "role": "user", "content_json": '[{"type":"text","text":"hi"}]'}
        ).encode(),
        "message/2": json.dumps(
            {
                "id": 2,
                "session_id": "s1",
                "role": "assistant",
                "created_timestamp": 1767225600,
                "content_json": json.dumps([{"type": "toolRequest", "id": "c", "toolCall": {"value": {"name": "x"}}}]),
            }
        ).encode(),
    },
    "zed": {
        "thread/s1": json.dumps(
            {"id": "s1", "data_type": "json", "data": '{"messages":[{"User":{"content":[{"Text":"hi"}]}}]}'}
        ).encode()
    },
    "cursor-editor": {
        "chat/s1": json.dumps({"id": "s1", "value": '{"conversation":[{"type":1,"text":"hi"},{"type":2}]}'}).encode(),
        "message/s1:b": json.dumps({"id": "s1:b", "value": '{"type":2,"text":"x"}'}).encode(),
    },
}


@pytest.mark.parametrize("name", [*SOURCES, "aider"])
@given(st.data())
def test_whatever_a_source_contains_can_be_stored(name: str, tmp_path_factory: Any, data: st.DataObject) -> None:
    if name in ROWS:
        files = dict(ROWS[name])
    elif name == "aider":
        files = {".aider.chat.history.md": AIDER.encode()}
    else:
        files = dict(files_in(SOURCES[name](tmp_path_factory.mktemp("source"))))
    changed_name = data.draw(st.sampled_from(sorted(files)))
    files[changed_name] = data.draw(changed(files[changed_name]))
    transcripts = FORMATS[name.partition(" ")[0]].read(files)
    assert len({transcript.session_id for transcript in transcripts}) == len(transcripts)
    for transcript in transcripts:
        for entry in entries_of(transcript, is_checked=False):
            assert wire.decode(Entry, wire.encode(entry)) == entry


AIDER = """
# aider chat started at 2026-01-01 09:00:00

> Main model: anthropic/claude-x with diff edit format
> Git repo: .git with 3 files

#### Please look here.
#### What is in it?

One file.

> Tokens: 2.4k sent, 12 received.

# aider chat started at 2026-01-02 09:00:00

> Model: gpt-x with whole edit format

# aider chat started at 2026-01-03 09:00:00

#### Another chat
Yes.
"""


def read_aider(text: str) -> list[Transcript]:
    return FORMATS["aider"].read({".aider.chat.history.md": text.encode()})


def test_each_chat_of_aider_is_a_session(tmp_path: Path) -> None:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text(AIDER)
    first, second = read_transcripts(found_at(path))
    assert said(entries_of(first)) == ["user: Please look here.\nWhat is in it?", "assistant: One file."]
    assert models_in(entries_of(first)) == {"anthropic/claude-x"}
    assert first.header.title == "Please look here. What is in it?"
    assert [transcript.steps[0].time for transcript in (first, second)] == [
        datetime(2026, 1, day, 9, tzinfo=UTC) for day in (1, 3)
    ]
    assert said(entries_of(second)) == ["user: Another chat", "assistant: Yes."]


async def test_a_chat_of_aider_that_goes_on_is_the_same_session() -> None:
    store = MemoryStore()
    for more in ("", "#### Thanks.\nWelcome.\n"):
        for transcript in read_aider(AIDER + more):
            imported = await import_transcript(store, transcript, NOW)
    assert not imported.is_rewritten
    assert len((await store.sessions()).items) == 2
    entries = await store.entries(imported.session_id)
    assert said(entries) == ["user: Another chat", "assistant: Yes.", "user: Thanks.", "assistant: Welcome."]


def test_a_key_value_database_of_vs_code_itself_is_not_taken_for_cursor(tmp_path: Path) -> None:
    path = database(tmp_path / "state.vscdb", {"ItemTable (key TEXT, value BLOB)": [("a", "b")]})
    assert not FORMATS["cursor-editor"].looks_like(path.name, path.read_bytes())


def test_images_and_failures_of_goose_are_read() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    failed = {"type": "toolResponse", "id": "c1", "toolResult": {"status": "error", "error": "no shell"}}
    call = {"type": "toolRequest", "id": "c1", "toolCall": {"status": "success", "value": {"name": "shell"}}}
    rows: dict[str, dict[str, Any]] = {"session/s1": {"id": "s1"}}
    for number, (role, block) in enumerate((("user", image), ("assistant", call), ("user", failed))):
        row = {"id": number, "session_id": "s1", "role": role, "content_json": json.dumps([block])}
        rows[f"message/{number}"] = row | {"created_timestamp": SECONDS}
    (transcript,) = FORMATS["goose"].read({name: json.dumps(row).encode() for name, row in rows.items()})
    parts = [part for step in transcript.steps for fact in step.facts for part in getattr(fact, "parts", ())]
    assert isinstance(parts[0], Image)
    assert isinstance(parts[-1], ToolResult)
    assert (parts[-1].content, parts[-1].is_error) == ("no shell", True)
