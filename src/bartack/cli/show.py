"""`bartack show`: a stored session as readable text, or as JSON in one of its views."""

import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import typer

from bartack.app.safe_text import json_bytes, safe_line, safe_text
from bartack.cli.options import JsonOption, SessionArgument, StoreOption, new_app
from bartack.cli.output import print_json
from bartack.cli.store_access import with_store
from bartack.nouns.entries import Entry, StreamFailed
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack.store import Entries
from bartack.views import document, feed, ledger

app = new_app("Print a stored session.")

View = Literal["ledger", "feed", "document"]
VIEWS: dict[View, Callable[[Iterable[Entry]], dict[str, Any]]] = {
    "ledger": ledger.dump,
    "feed": feed.dump,
    "document": document.dump,
}
_OUTPUT = 2000  # characters of one tool output


@app.command()
def show(
    session: SessionArgument,
    view: Annotated[View | None, typer.Option("--as", help="Print this view as JSON instead of text.")] = None,
    head: Annotated[str | None, typer.Option(metavar="ENTRY", help="Show the branch that ends at this entry.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a session from its start to the newest entry, or to --head. Redacted content is blank."""
    entries: Entries = with_store(store, lambda opened: opened.load(session, head=head))
    if view is None and not as_json:
        for line in _lines(entries):
            print(line)
        return
    shown = VIEWS[view or "ledger"](entries)
    if as_json or not sys.stdout.isatty():
        print_json(shown)
    else:
        print(json_bytes(shown, indent=2).decode())


def _lines(entries: Iterable[Entry]) -> Iterable[str]:
    for entry in entries:
        match entry.fact:
            case Message():
                yield f"-- {entry.fact.role}"
                for part in entry.fact.parts:
                    yield from _part_lines(part)
            case StreamFailed():
                yield f"-- failed: {safe_line(entry.fact.error.message or entry.fact.error.error_code)}"
            case _:
                pass


def _part_lines(part: Part) -> Iterable[str]:
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
            yield from (f"[{kind}] {line}" for line in safe_text(output_text(part)[:_OUTPUT]).splitlines())
        case Image():
            yield f"[image {safe_line(part.mime_type)}]"
        case FileRef():
            yield f"[file {safe_line(part.path)}]"
