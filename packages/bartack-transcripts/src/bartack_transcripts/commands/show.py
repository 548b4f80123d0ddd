"""`bartack show`: a session as readable text, or as JSON in one of its views.

The session is in the store, or a transcript of another agent in a file.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bartack.app.safe_text import json_bytes, safe_line, safe_text
from bartack.cli.options import JsonOption, StoreOption, complete_sessions, new_app
from bartack.cli.output import print_json
from bartack.cli.store_access import with_session
from bartack.nouns.entries import BranchSummary, CompactionSummary, Entry, StreamFailed, branch
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack.store import Entries
from bartack.views import document, feed, ledger
from bartack_transcripts.disk.files import found_at, is_transcript, read_transcripts
from bartack_transcripts.formats import entries_of

app = new_app("Print a stored session, or a transcript of another agent.")

View = Literal["ledger", "feed", "document"]
VIEWS: dict[View, Callable[[Iterable[Entry]], dict[str, Any]]] = {
    "ledger": ledger.dump,
    "feed": feed.dump,
    "document": document.dump,
}
_OUTPUT = 2000  # characters of one tool output


@app.command()
def show(
    session: Annotated[
        str,
        typer.Argument(metavar="SESSION", help="Session id, or a transcript file.", autocompletion=complete_sessions),
    ],
    *,
    view: Annotated[View | None, typer.Option("--as", help="Print this view as JSON instead of text.")] = None,
    head: Annotated[str | None, typer.Option(metavar="ENTRY", help="Show the branch that ends at this entry.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show tool outputs in full, not only their beginning.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a session from its start to the newest entry, or to --head. Redacted content is blank.

    A file is shown without importing it.
    """
    entries = _in_file(Path(session), head) if is_transcript(Path(session)) else _stored(session, head, store)
    if view is None and not as_json:
        for line in _lines(entries, None if full else _OUTPUT):
            print(line)
        return
    document = VIEWS[view or "ledger"](entries)
    if as_json or not sys.stdout.isatty():
        print_json(document)
    else:
        print(json_bytes(document, indent=2).decode())


def _stored(session: str, head: str | None, store: str | None) -> Sequence[Entry]:
    loaded: Entries = with_session(store, session, lambda opened, id: opened.load(id, head=head), for_reading=True)
    return loaded


def _in_file(path: Path, head: str | None) -> Sequence[Entry]:
    source = found_at(path)
    transcripts = read_transcripts(source)
    if not transcripts:
        raise BartackError(f"{path} has no sessions.", code=ErrorCode.INVALID_VALUE)
    entries = entries_of(transcripts[0], source.modified)
    return branch(entries, head or entries[-1].id)


def _lines(entries: Iterable[Entry], limit: int | None) -> Iterable[str]:
    for entry in entries:
        match entry.fact:
            case Message():
                yield f"-- {entry.fact.role}"
                for part in entry.fact.parts:
                    yield from _part_lines(part, limit)
            case StreamFailed():
                yield f"-- failed: {safe_line(entry.fact.error.message or entry.fact.error.error_code)}"
                for part in entry.fact.parts:
                    yield from _part_lines(part, limit)
            case CompactionSummary(summary=text) | BranchSummary(summary=text):
                scope = "everything above" if isinstance(entry.fact, CompactionSummary) else "another branch"
                yield f"-- summary of {scope}, for the model"
                yield from safe_text(text).splitlines()
            case _:
                pass


def _part_lines(part: Part, limit: int | None) -> Iterable[str]:
    match part:
        case Text():
            yield from safe_text(part.text).splitlines()
        case Thinking():
            yield from (f"(thinking) {line}" for line in safe_text(part.text).splitlines())
        case ToolCall():
            arguments = json_text(part.arguments)
            yield f"[call {safe_line(part.tool_name)} {safe_line(arguments)}]"
        case ToolResult():
            kind = "error" if part.is_error else "result"
            output = output_text(part)
            yield from (f"[{kind}] {line}" for line in safe_text(output[:limit]).splitlines())
            if limit is not None and len(output) > limit:
                yield f"[{kind}] [... {len(output) - limit:,} more characters; --full shows them]"
        case Image():
            yield f"[image {safe_line(part.name or part.mime_type)}]"
        case FileRef():
            yield f"[file {safe_line(part.path)}]"
