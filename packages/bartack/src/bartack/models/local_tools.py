"""Tool use for small models: the model does not write whole tool calls, but answers one short question at a time.

Left to itself, a model with half a billion parameters calls tools that it should not, omits calls that it should make,
and after a result keeps calling. What works is a separate generation for each step:

1. The **router**: the beginning of a call, that is the name of a tool or "talk", enforced by a grammar. Its prompt has
   examples as earlier turns: requests for the tools of `bartack.tools.file_tools`, for other tools what their names and
   descriptions say, and plain talk; then the requests before the last one with the calls made for them, so that "and
   that one?" can be understood. Calls written as code with arguments are distinguished better than bare names. Such a
   model chooses "talk" too easily, so it has a handicap.
   A request that names a file is not plain talk, and a search is for the identifiers in the request, if it has some.
   Before that, a demo model answers "how do I" without a tool, and refuses work in several steps, exact arithmetic and
   what it cannot know: a short refusal at once is better than nonsense after minutes. Patterns decide this, because
   such a model does not know what is too hard for it: offered a word for it, it also refused "How do I quit?".
2. The **arguments**: JSON that follows the schema of the chosen tool, also enforced, and bounded.
3. The **answer**, once there is a result: without tools, and with call and result as plain text from the user, because
   a model that sees calls in a conversation writes more of them.

Measured once with the default model by ``bench/local_router.py``, which explains how the requests were used; the fresh
ones had an influence on the handicap alone. The descriptions of the file tools have been reworded since:

====================  ==========  ============  ===============  ===========
..                    tool found  plain stayed  arguments right  result used
====================  ==========  ============  ===============  ===========
file tools, tuning    26 of 29    30 of 31      25 of 26         12 of 13
file tools, fresh     14 of 15    10 of 11      13 of 14         10 of 13
other tools, tuning   8 of 11     12 of 14      7 of 8           3 of 3
other tools, fresh    6 of 7      3 of 4        5 of 6           4 of 4
====================  ==========  ============  ===============  ===========

The examples of plain talk have grown since, and the names in a request count. Measured again since then, only the first
row: 27 of 29, 31 of 31, 25 of 27 and 11 of 13.

Everything here is a pure function of the conversation; `bartack.models.local` runs the generations.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

from bartack.formats import format_named
from bartack.formats.repair import repair
from bartack.nouns.config import SpecificTool, ToolChoice, ToolSpec
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.nouns.messages import Message
from bartack.nouns.parts import FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.session.tool_state import output_text

__all__ = [
    "DIRECT_TOOLS",
    "DirectCall",
    "Route",
    "arguments_body",
    "asks_for_abilities",
    "asks_how",
    "bounded_schema",
    "chosen_tool",
    "direct_answer",
    "direct_call",
    "is_looping",
    "is_too_hard",
    "latest_exchange",
    "next_step",
    "plain_history",
    "router_body",
    "suited_tools",
    "talk_word",
    "without_wrong_guess",
]

# -- calls that need no generation
#
# A model with half a billion parameters gets 17 * 23 wrong, and writes another number into the arguments of a
# calculator. Arithmetic and questions for a number of lines are therefore recognised by their form. The pattern that
# recognises such a request also writes the arguments, and the result is the answer, word for word.
# The tools are `calculate` and `count_lines` of `bartack.app.demo_tools`. The router is not asked about them, because
# every further tool in its prompt makes it choose worse.

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
_QUESTION = re.compile(
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
    for name, arguments in _recognise(request):
        if name in by_name:
            return DirectCall(by_name[name], arguments)
    return None


def _recognise(request: str) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = _QUESTION.fullmatch(request)
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


Json = dict[str, Any]

_TALK_HANDICAP = -0.7  # added to the logit of "talk"
_REQUEST_LIMIT = 2000  # characters of a request in the router's prompt
_EARLIER_LIMIT, _EARLIER_REQUESTS = 300, 3  # characters and number of earlier requests there
_STRING_LIMIT, _ARRAY_LIMIT = 2000, 50  # 2000 is also the largest repetition in a grammar
_PLAIN_REQUESTS = (
    "What can you do?",
    "Explain how rivers form.",
    "Write a poem.",
    "How do I sort a list in Java?",
    "How do I exit?",
    "Who wrote Hamlet?",
    "Write a function that adds two numbers.",
    "Translate 'thank you' into Spanish.",
    "Are my files private?",
)
_REQUESTS: dict[str, tuple[tuple[str, Json], ...]] = {  # example requests to the tools of `bartack.tools.file_tools`
    "read_file": (
        ("show me app.py", {"path": "app.py"}),
        ("what is this project about?", {"path": "README.md"}),
        ("which licence is it?", {"path": "LICENSE"}),
        ("how do I install it?", {"path": "README.md"}),
    ),
    "write_file": (("create a file test.txt with hello in it", {"path": "test.txt", "text": "hello"}),),
    "edit_file": (("replace red with blue in style.css", {"path": "style.css", "old": "red", "new": "blue"}),),
    "list_files": (("which files are here?", {"path": "."}),),
    "search_files": (
        ("find the word error in the sources", {"pattern": "error"}),
        ("where is Parser defined?", {"pattern": "class Parser"}),
    ),
    "run_command": (("run make", {"command": "make"}),),
}


_READING = frozenset({"read_file", "list_files", "search_files"})
_WORD = re.compile(r"[^\W\d_]{3,}")
# Words of questions that say nothing about their subject.
_COMMON_WORDS = """
the and for are was what which who how why when where does did can you this that with from have has its about say says
tell show give find file files read readme project
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_BLANK = re.compile(r"\n\s*\n")


# Tools for models that work in several steps.
_UNSUITED = frozenset({"update_plan", "check_job"})
_ASKED = r"^(?: (?:please | can \s you | could \s you | would \s you | now | let's) \s)*"
# Compiled at first use, as `re` does with strings: this module is loaded with every model, and these take milliseconds.
_WORK = (  # requests that take several steps
    _ASKED
    + r"""(?:
        refactor | implement | debug | deploy | migrate | optimi[sz]e | rewrite | redesign | review | improve | upgrade
        | why \s (?:do | does | did | is | are) \b .* \b (?:fail\w* | crash\w* | broken | wrong | slow | not \s work\w*)
        | fix \b .* \b (?:bugs? | tests? | errors? | issues? | problems? | code | project | build | everything)
        | (?:add | write | create | make | build) \b .* \b (?:tests | features? | app | application | website | game)
    ) \b (?!\.\w)"""  # not the name of a file
)
_OF_TODAY = (  # what no model knows by itself
    _ASKED
    + r"""(?:
        (?:what | who | when | which | how \s (?:much | many | long) | is | are | will | tell | show | give)\b .*
            \b (?:today | tonight | tomorrow | right \s now | this \s (?:week | month | year) | latest | weather | news)
        | what (?:'s | \s is)? \s (?:the \s)? (?:time | date | day) (?:\s is \s it | \s now)? \W* $
        | who (?:'s | \s is) \s the \s (?:current \s)? (?:president | prime \s minister | chancellor | pope)
    ) (?!\w)"""
)
_NUMBER = r"\d[\d.,]+"  # two digits or more
_ARITHMETIC = rf"""
        {_NUMBER} \s* (?:[*x×/÷^%] | times | (?:divided | multiplied) \s by) \s* {_NUMBER} | root \s of \s {_NUMBER}
        | how \s many \b .* \b (?:files | lines | words | functions | classes | tests)
        | (?:big | larg | long | small | short)est \b .* \b file
    """
# What a request says about the choice of a file tool.
_HOW = re.compile(r"(?:how \s (?:do | can | could | should | would) \s (?:i | we | you) | how \s to) \b", re.I | re.X)
_FILE = re.compile(
    r"(?<![\w.]) [\w./-]* \w \. (?:md | py | txt | toml | json | ya?ml | cfg | ini | sh | html) \b", re.I | re.X
)
_USES = re.compile(
    r"\b (?:us(?:e[ds]?|ing) | call(?:s|ed)? | find | search | grep | mention(?:s|ed)? | word) \b", re.I | re.X
)
_IDENTIFIER = re.compile(r"\b (?:[^\W\d]\w*_\w+ | [A-Z][a-z]+[A-Z]\w* | \w+(?=\(\))) (?!\.\w)\b", re.X)


class Route(NamedTuple):
    """The router has to choose one of these tools, or none if `may_decline`."""

    tools: tuple[ToolSpec, ...]
    may_decline: bool


# -- the next step


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSpec], choice: ToolChoice | None, *, rounds: int
) -> Route | ToolSpec | None:
    """A choice between tools, a tool to call, or None for the answer. Raises `ModelError` for a tool not in `tools`.

    Unless the caller chooses, tools are called at most `rounds` times for one request of the user.
    """
    ours = tuple(tool for tool in tools if tool.is_function)
    match choice:
        case SpecificTool(tool_name=name):
            tool_by_name = next((tool for tool in ours if tool.name == name), None)
            if tool_by_name is None:
                raise ModelError(f"Unknown tool {name!r} in tool_choice.", code=ErrorCode.INVALID_REQUEST)
            return tool_by_name
        case "required":
            if not ours:
                raise ModelError('tool_choice is "required", but there are no tools.', code=ErrorCode.INVALID_REQUEST)
            return ours[0] if len(ours) == 1 else Route(ours, may_decline=False)
        case "none":
            return None
        case _:
            return Route(ours, may_decline=True) if ours and _rounds_of(messages) < rounds else None


def _rounds_of(messages: Sequence[Message]) -> int:
    """How often tools have been called since the last message of the user."""
    rounds = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        rounds += any(call.executed_by == "client" for call in message.tool_calls)
    return rounds


def is_looping(text: str) -> bool:
    """Whether the text ends with a passage three times in a row, or with a few words six times."""
    return any(
        any(sign.isalpha() for sign in text[-size:]) and text.endswith(text[-size:] * (3 if size >= 20 else 6))
        for size in range(4, len(text) // 3 + 1)
    )


# -- the router and the arguments


def router_body(messages: Sequence[Message], route: Route) -> Json:
    """The request for the beginning of a call: the name of a tool or the word for plain talk, and a bracket."""
    talk = talk_word(route)
    otherwise = f" Say {talk} if it is only talk." if talk is not None else ""
    listed = "\n".join(_describe(tool) for tool in route.tools)
    turns = [_turn("system", f"You can use tools:\n{listed}\n\nSay which tool the message asks for.{otherwise}")]
    calls = [
        (request, _as_code(tool.name, arguments)) for tool in route.tools for request, arguments in _examples_of(tool)
    ]
    plain: list[tuple[str, str | None]] = [(request, None) for request in _PLAIN_REQUESTS[: max(4, len(calls) - 1)]]
    examples = [example for pair in zip_longest(plain, calls) for example in pair if example is not None]
    for request, call in (*examples, *_earlier_choices(messages)):
        if call is not None or talk is not None:
            turns += [_turn("user", request), _turn("assistant", call or f"{talk}()")]
    turns.append(_turn("user", _last_request(messages)))
    words = _router_words(route, _last_request(messages))
    return {
        **_request_body(turns, max_tokens=64),
        "grammar": f"root ::= {' | '.join(json.dumps(f'{word}(') for word in words)}",
        "logit_bias": [[talk, _TALK_HANDICAP]] if talk is not None else [],
    }


def _router_words(route: Route, request: str) -> list[str]:
    """The words to choose from. A request that names a file is not plain talk, if all tools are for files. The prompt
    stays the same, so that it need not be read again."""
    names, talk = [tool.name for tool in route.tools], talk_word(route)
    return names if talk is None or (_is_about_files(route) and _FILE.search(request)) else [*names, talk]


def _is_about_files(route: Route) -> bool:
    return all(tool.name in _REQUESTS for tool in route.tools)


def talk_word(route: Route) -> str | None:
    """The router's word for plain talk; None if it must choose a tool."""
    if not route.may_decline:
        return None
    word = "talk"
    while any(tool.name == word for tool in route.tools):
        word = f"only_{word}"
    return word


def suited_tools(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools that the router of a demo model chooses from."""
    return tuple(tool for tool in tools if tool.name not in _UNSUITED | DIRECT_TOOLS)


def is_too_hard(messages: Sequence[Message], route: Route) -> bool:
    """Whether a demo model should refuse the request. With tools of a program nothing is too hard: what they can do is
    not known here."""
    if not route.may_decline or not _is_about_files(route):
        return False
    request = " ".join(_last_request(messages).split())
    return any(re.search(pattern, request, re.I | re.X | re.S) for pattern in (_WORK, _OF_TODAY, _ARITHMETIC))


def asks_how(messages: Sequence[Message], route: Route) -> bool:
    """Whether the request is "How do I ...?" about no file. A demo model that may choose a tool for it does it instead,
    or searches for its words; what newcomers ask in this way is in its instructions."""
    request = _last_request(messages)
    is_how = _HOW.match(request.lstrip()) is not None and _FILE.search(request) is None
    return route.may_decline and _is_about_files(route) and is_how


def chosen_tool(route: Route, output: str) -> ToolSpec | None:
    """The tool that the router chose; None for plain talk."""
    return next((tool for tool in route.tools if f"{tool.name}(" == output), None)


def arguments_body(messages: Sequence[Message], tool: ToolSpec, *, max_tokens: int, max_result_tokens: int) -> Json:
    """The request for a tool's arguments; `max_result_tokens` as in `plain_history`."""
    schema = _with_names(bounded_schema(tool.parameter_schema), tool, _last_request(messages))
    names = ", ".join(schema.get("properties", {}))
    task = (
        f"You call the tool {_describe(tool)}\nIts arguments are {names}. Write them as JSON, taken from the message."
    )
    turns = [_turn("system", task)]
    for request, arguments in _known_requests(tool):
        turns += [_turn("user", request), _turn("assistant", json.dumps(arguments))]
    history = plain_history(messages, max_result_tokens=max_result_tokens)
    turns += [_turn(message.role, message.text) for message in history if message.role != "system"]
    form = {"type": "json_schema", "json_schema": {"name": "arguments", "schema": schema}}
    return {**_request_body(turns, max_tokens=max_tokens), "response_format": form}


def _with_names(schema: Json, tool: ToolSpec, request: str) -> Json:
    """The schema, in which a search can only be for one of the identifiers in the request, if it has some, or for their
    definitions. A small model adds words to them."""
    names = list(dict.fromkeys(_IDENTIFIER.findall(request)))
    if tool.name != "search_files" or not names:
        return schema
    form = r"{}\b" if _USES.search(request) else r"^\s*(\w+ )*(class|def|func|function|fn|struct|interface|type) {}\b"
    only = {"pattern": {"enum": [form.format(name) for name in names]}, "literal": {"const": False}}
    properties = schema.get("properties", {})
    return {**schema, "properties": {**properties, **{name: only[name] for name in only if name in properties}}}


def _examples_of(tool: ToolSpec) -> list[tuple[str, Json]]:
    """Requests for this tool and their arguments."""
    words = tool.name.replace("_", " ")
    unknown = dict.fromkeys((tool.parameter_schema or {}).get("properties", {}), "X")
    return _known_requests(tool) or [(f"{words} X", unknown), (tool.description or words, {})]


def _known_requests(tool: ToolSpec) -> list[tuple[str, Json]]:
    properties = (tool.parameter_schema or {}).get("properties", {})
    return [
        (request, arguments)
        for request, arguments in _REQUESTS.get(tool.name, ())
        if arguments.keys() <= properties.keys()
    ]


def _as_code(name: str, arguments: Json) -> str:
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in arguments.items())})"


def _earlier_choices(messages: Sequence[Message]) -> list[tuple[str, str | None]]:
    """The requests before the last one, and the call made for each."""
    choices: list[tuple[str, str | None]] = []
    for message in messages:
        if message.role == "user" and message.text.strip():
            choices.append((message.text[:_EARLIER_LIMIT], None))
        elif message.tool_calls and choices:
            call = message.tool_calls[0]
            choices[-1] = (choices[-1][0], _as_code(call.tool_name, call.arguments)[:_EARLIER_LIMIT])
    return choices[:-1][-_EARLIER_REQUESTS:]


def _request_body(turns: list[Json], *, max_tokens: int) -> Json:
    """A request with deterministic sampling."""
    return {
        "messages": turns,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _turn(role: str, text: str) -> Json:
    return {"role": role, "content": text}


def _describe(tool: ToolSpec) -> str:
    names = ", ".join((tool.parameter_schema or {}).get("properties", {}))
    return f"{tool.name}({names}): {tool.description or tool.name.replace('_', ' ')}"


def _last_request(messages: Sequence[Message]) -> str:
    spoken = (message.text for message in reversed(messages) if message.role == "user")
    return next((text for text in spoken if text.strip()), "")[:_REQUEST_LIMIT]


# -- schemas


def bounded_schema(schema: Json) -> Json:
    """The schema with a limit on every string and array, so that generation ends, and without unanchored patterns,
    which a grammar cannot enforce."""
    if not schema:
        return {"type": "object", "properties": {}}
    result = {key: _bounded_under(key, value) for key, value in schema.items()}
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "string" in kinds and not {"enum", "const", "format"} & schema.keys():
        result["maxLength"] = min(schema.get("maxLength", _STRING_LIMIT), _STRING_LIMIT)
    if "array" in kinds:
        result.setdefault("maxItems", max(_ARRAY_LIMIT, schema.get("minItems", 0)))
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
        del result["pattern"]
    return result


def _bounded_under(key: str, value: Any) -> Any:
    match key, value:
        case "properties" | "$defs" | "definitions", dict():
            return {name: _bounded_item(schema) for name, schema in value.items()}
        case "items" | "additionalProperties", _:
            return _bounded_item(value)
        case "anyOf" | "oneOf" | "allOf" | "prefixItems", list():
            return [_bounded_item(schema) for schema in value]
        case _:
            return value


def _bounded_item(value: Any) -> Any:
    return bounded_schema(value) if isinstance(value, dict) and value else value


# -- the conversation as plain text


def without_wrong_guess(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation without its last call, if that was in vain and its arguments were not in the request.

    A small router sometimes takes a question of general knowledge for one about a file, and invents the name of the
    file. Then the question itself is answered, and not the failure explained. What a person denied, or what would have
    changed something, is never left out.
    """
    if len(messages) < 2 or messages[-1].role != "tool" or not all(map(_is_useless, messages[-1].tool_results)):
        return messages
    request = _last_request(messages).lower()
    calls, results = messages[-2].tool_calls, messages[-1].tool_results
    if any(call.tool_name not in _READING for call in calls) or any(
        result.error_code == "tool_denied" for result in results
    ):
        return messages
    values = [value for call in calls for value in call.arguments.values()]
    # A name with a space is hardly one of a file: "good morning" to be translated, or "17 * 23".
    is_guess = not any(isinstance(value, str) and " " not in value and value.lower() in request for value in values)
    return messages[:-2] if is_guess else messages


def _is_useless(result: ToolResult) -> bool:
    return result.is_error or output_text(result) == "No matches."


def latest_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """After a tool result, the instructions and the messages from the last request on; otherwise all messages.

    A small model that sees its earlier answers repeats one of them instead of reading the new result.
    """
    if not messages or messages[-1].role != "tool":
        return messages
    last_request = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    return [message for index, message in enumerate(messages) if index >= last_request or message.role == "system"]


def plain_history(
    messages: Sequence[Message], *, max_result_tokens: int, max_system_tokens: int | None = None
) -> tuple[Message, ...]:
    """The conversation as text, for any chat template: one system message, then user and assistant in turn. Tool
    results become messages of the user; thinking is left out.

    The results for the last request may take `max_result_tokens` together. Older results have a quarter of that, and a
    quarter less for every newer message of results. Of what is longer, the beginning is kept and the passages that
    share words with the request, with a note. `max_system_tokens` is for the instructions.
    """
    sound = repair(messages, format_named("openai-chat").rules).messages
    system = "\n\n".join(message.text for message in sound if message.role == "system")
    system = system if max_system_tokens is None else _cut(system, max_system_tokens)
    start = (Message("system", (Text(system),)),) if system.strip() else ()
    return repair((*start, *_plain_messages(sound, max_result_tokens))).messages


def _plain_messages(messages: Sequence[Message], max_result_tokens: int) -> Iterator[Message]:
    calls = {call.tool_call_id: call for message in messages for call in message.tool_calls}
    newer = sum(message.role == "tool" for message in messages)
    last_request = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    for index, message in enumerate(messages):
        match message.role:
            case "user":
                yield Message("user", tuple(_texts(message.parts)))
            case "assistant":
                yield Message("assistant", tuple(part for part in _texts(message.parts) if part.text.strip()))
            case "tool":
                newer -= 1
                share = max_result_tokens // 4 ** (newer + (index < last_request)) // len(message.tool_results)
                request = _last_request(messages[:index])
                results = [
                    _result_text(calls[result.tool_call_id], result, share, request) for result in message.tool_results
                ]
                names = {calls[result.tool_call_id].tool_name for result in message.tool_results}
                prompt = [_answer_prompt(message.tool_results, names)] if index == len(messages) - 1 else []
                yield Message("user", (Text("\n\n".join(results + prompt)),))
            case "system":
                pass


def _answer_prompt(results: Sequence[ToolResult], tools: Set[str]) -> str:
    """The instruction after the newest results of these tools."""
    if all(result.is_error for result in results):
        return "Tell me in one sentence that this was not done, and why."
    if tools == {"list_files"}:  # asked for sentences, a small model counts them, wrongly
        return "Write every name in the result, from the first to the last, separated by commas."
    # The exact wording matters: others make the model repeat the call, or omit what was asked for.
    task = "Tell me in whole sentences what the result says, with the names and numbers in it."
    return f"{task} Do not tell me how to do it."


def _texts(parts: Iterable[Any]) -> Iterator[Text]:
    for part in parts:
        match part:
            case Text():
                yield Text("" if part.ignored else part.text)
            case FileRef(data=bytes(data), mime_type=str(kind)) if kind.startswith("text/"):
                yield Text(f"{part.path}:\n{data.decode('utf-8', 'replace')}")
            case FileRef():
                yield Text(f"[the file {part.path}]")
            case Image():
                yield Text("[a picture, which you cannot see]")
            case Thinking() | ToolCall():
                pass


def _result_text(call: ToolCall, result: ToolResult, share: int, request: str) -> str:
    arguments = _cut(json.dumps(call.arguments, ensure_ascii=False), share)
    how = "failed and did nothing" if result.is_error else "gave this result"
    # Not a full sentence: a small model would repeat it instead of reporting the result.
    return f"({call.tool_name} {arguments} {how}: {_excerpt(output_text(result), share, request)})"


def _excerpt(text: str, tokens: int, request: str) -> str:
    """The text, or if it takes more tokens: its beginning, and the paragraphs with the most words of the request."""
    if sum(map(_weight, text)) <= tokens:
        return text
    keywords = {word for word in _WORD.findall(request.lower()) if word not in _COMMON}
    blocks = [block for block in _BLANK.split(text) if block.strip()]
    scores = [len(keywords & set(_WORD.findall(block.lower()))) for block in blocks]
    if not any(scores):
        return _cut(text, tokens)
    chosen: set[int] = set()
    budget = float(tokens)
    for index in sorted(range(len(blocks)), key=lambda index: (index != 0, -scores[index], index)):
        cost = min(sum(map(_weight, blocks[index])), tokens / 3) + 5  # 5: the mark between blocks
        if cost <= budget and (index == 0 or scores[index]):
            chosen.add(index)
            budget -= cost
    return "\n[...]\n".join(_cut(blocks[index], tokens // 3) for index in sorted(chosen))


def _cut(text: str, tokens: int) -> str:
    """The beginning of the text, about this many tokens."""
    for length, used in enumerate(accumulate(map(_weight, text))):
        if used > tokens:
            return f"{text[:length]} [cut here: {len(text) - length} characters more]"
    return text


def _weight(char: str) -> float:
    """The fraction of a token that a character takes, rounded up: digits and signs are one token each, letters
    share one."""
    if not char.isascii():
        return 1.5
    return 0.3 if char.isalpha() or char == " " else 1.0
