"""`bartack show`: a stored session as one of its views, or as people read it."""

import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import typer

from bartack.cli.command import new_app
from bartack.cli.safe_json import json_bytes
from bartack.cli.store_access import JsonOption, SessionArgument, StoreOption, print_json, with_store
from bartack.cli.terminal.safe_text import safe_line, safe_text
from bartack.nouns.entries import Entry, StreamFailed
from bartack.nouns.json_values import json_text
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text
from bartack.store import Entries
from bartack.views import document, feed, ledger

app = new_app("Show a stored session.")

View = Literal["ledger", "feed", "document"]
VIEWS: dict[View, Callable[[Iterable[Entry]], dict[str, Any]]] = {
    "ledger": ledger.dump,
    "feed": feed.dump,
    "document": document.dump,
}
_LONG = 2000  # characters of one tool output that people are shown


@app.command()
def show(
    session: SessionArgument,
    view: Annotated[View | None, typer.Option("--as", help="JSON in this shape instead of text for people.")] = None,
    head: Annotated[str | None, typer.Option(metavar="ENTRY", help="The branch that ends here.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell a session from its beginning to the newest entry, or to --head. Redacted content is blank."""
    entries: Entries = with_store(store, lambda opened: opened.load(session, head=head))
    if view is None and not as_json:
        for line in _told(entries):
            print(line)
        return
    shown = VIEWS[view or "ledger"](entries)
    if as_json or not sys.stdout.isatty():
        print_json(shown)
    else:
        print(json_bytes(shown, indent=2).decode())


def _told(entries: Iterable[Entry]) -> Iterable[str]:
    for entry in entries:
        match entry.fact:
            case Message():
                yield f"-- {entry.fact.role}"
                for part in entry.fact.parts:
                    yield from _part(part)
            case StreamFailed():
                yield f"-- failed: {safe_line(entry.fact.error.message or entry.fact.error.error_code)}"
            case _:
                pass


def _part(part: Part) -> Iterable[str]:
    match part:
        case Text():
            yield from safe_text(part.text).splitlines()
        case Thinking():
            yield from (f"(thinking) {line}" for line in safe_text(part.text).splitlines())
        case ToolCall():
            arguments = json_text(part.arguments)
            yield f"[call {safe_line(part.tool_name)} {safe_line(arguments)}]"
        case ToolResult():
            how = "error" if part.is_error else "result"
            yield from (f"[{how}] {line}" for line in safe_text(output_text(part)[:_LONG]).splitlines())
        case Image():
            yield f"[image {safe_line(part.mime_type)}]"
        case FileRef():
            yield f"[file {safe_line(part.path)}]"
