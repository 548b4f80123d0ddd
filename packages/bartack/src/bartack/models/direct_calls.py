"""Calls that need no generation: a demo model recognises arithmetic and questions for a number of lines by their form.

A model with half a billion parameters gets 17 * 23 wrong, and writes another number into the arguments of a calculator.
So the pattern that recognises such a request also writes the arguments, and the result is the answer, word for word.
The tools are `calculate` and `count_lines` of `bartack.app.demo_tools`. The router is not asked about them, because
every further tool in its prompt makes it choose worse.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bartack.nouns.config import ToolSpec
from bartack.nouns.messages import Message
from bartack.session.tool_state import output_text

__all__ = ["DIRECT_TOOLS", "DirectCall", "asks_for_abilities", "direct_answer", "direct_call"]

DIRECT_TOOLS = frozenset({"calculate", "count_lines"})

_WORDS = (  # how people say it, and how a calculator reads it
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"(\d[\d.]*) \s* % \s* of \s* (?=[\d(])", re.X | re.I), r"\1 / 100 * "),
    (re.compile(r"\b (?:the \s)? square \s root \s of \s (\d[\d.]*)", re.X | re.I), r"sqrt(\1)"),
    (re.compile(r"\b (?:times | multiplied \s by)\b | (?<=[\d\s)]) [x×·] (?=[\d\s(])", re.X | re.I), "*"),
    (re.compile(r"\b (?:divided \s by | over)\b | ÷", re.X | re.I), "/"),
    (re.compile(r"\b plus \b", re.X | re.I), "+"),
    (re.compile(r"\b minus \b", re.X | re.I), "-"),
    (re.compile(r"\b to \s the \s power \s of \b | \^", re.X | re.I), "**"),
)
_ASKED = re.compile(
    r"(?:(?:please | calculate | compute | evaluate | solve | how \s much \s is | what (?:'s | \s is) | and) \s+)*"
    r" (.+?) \s* =? \s* [?.!]*",
    re.I | re.X,
)
_EXPRESSION = re.compile(r"(?=.*\d)(?=.*(?:[-+*/%]|sqrt))(?:sqrt\(|[\d.\s()*/%+-])+")
_LINES = re.compile(r"\b (?:how \s many \s lines | number \s of \s lines | count \s (?:the \s)? lines) \b", re.I | re.X)
_PATH = re.compile(r"[\w./-]*\w\.\w+|[\w.-]+/[\w./-]*|\b(?:README|LICENSE|Makefile)\b")
_ABILITIES = re.compile(
    r"(?:help | what \s (?:can | do) \s you \s do | what \s are \s you \s (?:good \s for | able \s to \s do)) \W*",
    re.I | re.X,
)


class DirectCall(NamedTuple):
    """A tool, and its arguments."""

    tool: ToolSpec
    arguments: dict[str, Any]


def direct_call(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> DirectCall | None:
    """The call that the last message asks for, if it is one of these tools; None for any other request."""
    if not messages or messages[-1].role != "user":
        return None
    request = " ".join(messages[-1].text.split())
    by_name = {tool.name: tool for tool in tools if tool.is_function}
    for name, arguments in _recognised(request):
        if name in by_name:
            return DirectCall(by_name[name], arguments)
    return None


def _recognised(request: str) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = _ASKED.fullmatch(request)
    expression = asked[1] if asked is not None else ""
    for pattern, replacement in _WORDS:
        expression = pattern.sub(replacement, expression)
    if _EXPRESSION.fullmatch(expression):
        yield "calculate", {"expression": expression}
    if _LINES.search(request):
        path = _PATH.search(request)
        yield "count_lines", {"path": path[0] if path is not None else "."}


def direct_answer(messages: Sequence[Message]) -> str | None:
    """The result of a direct call, if it is the last thing that happened."""
    if len(messages) < 2 or messages[-1].role != "tool":
        return None
    (*_, asking, answered) = messages
    if [call.tool_name in DIRECT_TOOLS for call in asking.tool_calls] != [True]:
        return None
    return "\n".join(output_text(result) for result in answered.tool_results)


def asks_for_abilities(messages: Sequence[Message]) -> bool:
    """Whether the last message asks what the model can do."""
    return (
        bool(messages) and messages[-1].role == "user" and _ABILITIES.fullmatch(messages[-1].text.strip()) is not None
    )
