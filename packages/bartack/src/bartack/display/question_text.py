"""A question about a tool call as plain text, for every program that shows text: whole, with its size, and in a form
that the model cannot imitate.

What the model wrote never begins a line. It stands behind a name, as JSON, or behind a bar, so it cannot look like
another question or like the end of this one. Invisible characters are escaped. The size is in the first line: if a
program cuts the text, its user can see that something is missing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bartack.display.visible_text import visible_text
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.json_values import json_text

__all__ = ["preview_lines", "question_text"]

_BAR = "  | "


def question_text(question: ApprovalRequired) -> str:
    """The question with every argument, and the preview as far as it says more than the arguments."""
    lines = [*_fields(question.arguments), *preview_lines(question, question.preview or {})] or ["no arguments"]
    body = visible_text("\n".join(lines))
    reason = f" ({question.reason})" if question.reason else ""
    head = visible_text(f"Allow the tool {question.tool_name}{reason}?".replace("\n", " "))
    return f"{head} {len(lines):,} {'line' if len(lines) == 1 else 'lines'}, {len(body):,} characters:\n{body}"


def preview_lines(question: ApprovalRequired, preview: Mapping[str, Any]) -> list[str]:
    """Lines for these fields of the preview, as far as they say more than the arguments."""
    more = {name: value for name, value in preview.items() if question.arguments.get(name, ...) != value}
    return list(_fields(more, "preview of "))


def _fields(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Lines for named values, none of which begins with what the model wrote. Not everything in them is visible."""
    for name, value in values.items():
        # A name with a space or a colon would look like more than a name.
        shown_name = prefix + (name if name.isidentifier() else json_text(name))
        match value:
            case str() if "\n" in value:
                yield f"{shown_name}:"
                yield from (_BAR + line for line in value.split("\n"))
            case [_, *_]:
                yield f"{shown_name}:"
                yield from (_BAR + json_text(item) for item in value)
            case _:
                yield f"{shown_name}: {json_text(value)}"
