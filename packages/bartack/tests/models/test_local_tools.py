"""Tool use for small models: the next step, the router, arguments, bounded schemas and plain histories."""

import re
from typing import Any

import pytest

from bartack.models.local_tools import (
    Route,
    arguments_body,
    asks_how,
    bounded_schema,
    chosen_tool,
    is_looping,
    is_too_hard,
    latest_exchange,
    next_step,
    plain_history,
    router_body,
    suited_tools,
    talk_word,
    without_wrong_guess,
)
from bartack.nouns.config import SpecificTool, ToolChoice, ToolSpec
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.nouns.messages import Message, assistant, system, tool_message, user
from bartack.nouns.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult
from bartack.tools import file_tools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOK = ToolSpec("look", CITY, description="Look at a city.")
TICK = ToolSpec("tell_time", {}, description=None)
SEARCH = ToolSpec("search", {}, native=Continuation("openai", "m", {"type": "web_search"}))
ASKED = [user("How is Rome?")]
ANSWERED = [*ASKED, assistant(ToolCall("c1", "look", {"city": "Rome"})), tool_message(ToolResult("c1", "rain"))]


# -- the next step


@pytest.mark.parametrize(
    ("messages", "tools", "choice", "step"),
    [
        (ASKED, (LOOK, TICK), None, Route((LOOK, TICK), may_decline=True)),
        (ASKED, (LOOK,), "auto", Route((LOOK,), may_decline=True)),
        (ASKED, (), "auto", None),
        (ASKED, (SEARCH,), "auto", None),
        (ASKED, (LOOK, TICK), "none", None),
        (ASKED, (LOOK, TICK), "required", Route((LOOK, TICK), may_decline=False)),
        (ASKED, (LOOK,), "required", LOOK),
        (ASKED, (LOOK, TICK), SpecificTool("tell_time"), TICK),
        (ANSWERED, (LOOK, TICK), "auto", None),
        (ANSWERED, (LOOK,), "required", LOOK),
        ([*ANSWERED, assistant("Rain."), user("And Oslo?")], (LOOK,), "auto", Route((LOOK,), may_decline=True)),
    ],
)
def test_tool_choice_and_history_determine_the_next_step(
    messages: list[Message], tools: tuple[ToolSpec, ...], choice: ToolChoice | None, step: Route | ToolSpec | None
) -> None:
    assert next_step(messages, tools, choice, rounds=1) == step


def test_a_larger_model_may_call_tools_several_times() -> None:
    assert next_step(ANSWERED, (LOOK,), "auto", rounds=2) == Route((LOOK,), may_decline=True)
    assert next_step(ASKED, (LOOK,), "auto", rounds=0) is None


@pytest.mark.parametrize("choice", ["required", SpecificTool("search")])
def test_choosing_an_unknown_tool_raises_model_error(choice: ToolChoice) -> None:
    with pytest.raises(ModelError) as caught:
        next_step(ASKED, (SEARCH,), choice, rounds=1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# -- the router and the arguments


def test_the_router_grammar_allows_tool_names_and_talk() -> None:
    body = router_body(ANSWERED, Route((LOOK, TICK), may_decline=True))
    assert body["grammar"] == 'root ::= "look(" | "tell_time(" | "talk("'
    assert body["logit_bias"][0][0] == "talk"
    assert body["temperature"] == 0
    turns = body["messages"]
    assert "look(city): Look at a city." in turns[0]["content"]
    assert {"role": "assistant", "content": 'look(city="X")'} in turns
    assert {"role": "assistant", "content": "tell_time()"} in turns
    assert {"role": "assistant", "content": "talk()"} in turns
    assert turns[-1] == {"role": "user", "content": "How is Rome?"}


def test_a_request_that_names_a_file_is_not_plain_talk() -> None:
    route = Route(suited_tools([tool.spec for tool in file_tools()]), may_decline=True)
    plain = router_body([user("Is Node.js fast, e.g. for 3.11?")], route)
    with_path = router_body([user("explain src/app/main.py")], route)
    assert plain["grammar"] == with_path["grammar"] + ' | "talk("'
    assert plain["messages"][:-1] == with_path["messages"][:-1]  # which is read once for all requests
    assert "talk(" in router_body([user("explain main.py")], Route((LOOK,), may_decline=True))["grammar"]


def test_how_to_do_something_is_not_a_request_to_do_it() -> None:
    route = Route(suited_tools([tool.spec for tool in file_tools()]), may_decline=True)
    assert asks_how([user("How do I run the tests?")], route)
    assert asks_how([user(" how to undo a change")], route)
    assert not asks_how([user("How do I run setup.py?")], route)
    assert not asks_how([user("run the tests")], route)
    assert not asks_how([user("How do I get there?")], Route((LOOK,), may_decline=True))


def test_a_search_is_for_a_name_in_the_request() -> None:
    search = next(tool.spec for tool in file_tools() if tool.name == "search_files")

    def found(request_text: str, text: str) -> bool:
        body = arguments_body([user(request_text)], search, max_tokens=9, max_result_tokens=9)
        (pattern,) = body["response_format"]["json_schema"]["schema"]["properties"]["pattern"]["enum"]
        return re.search(pattern, text) is not None

    assert found("where is the function open_store?", "async def open_store(place)")
    assert not found("where is the function open_store?", "await open_store(place)")
    assert found("Where is MessageAssembler defined?", "class MessageAssembler:")
    assert found("where is MessageAssembler used?", "one = MessageAssembler()")
    assert found("what calls close()?", "pipe.close()")
    free = arguments_body([user("find the word error in Python files")], search, max_tokens=9, max_result_tokens=9)
    assert "enum" not in str(free)


def test_an_answer_that_repeats_itself_is_recognised() -> None:
    verse = "Autumn is a season, and autumn has a face.\n"
    assert is_looping(verse * 3)
    assert is_looping("Well, " + "der Herbst, " * 6)
    assert not is_looping(verse * 2 + "It rains.\n")
    assert not is_looping("| a | b |\n|---|---|---|---|---|---|---|---|---|")
    assert not is_looping("ha ha")


def test_a_router_that_must_choose_has_no_talk() -> None:
    spoken = [user("Hi"), assistant("Hello"), *ASKED]
    body = router_body(spoken, Route((LOOK, TICK), may_decline=False))
    assert body["logit_bias"] == []
    assert "talk" not in str(body)
    assert [turn["role"] for turn in body["messages"]] == ["system", *["user", "assistant"] * 4, "user"]


def test_the_router_prompt_contains_earlier_requests_and_their_calls() -> None:
    talk = [message for number in range(5) for message in (user(f"Hi {number}"), assistant("Hello"))]
    body = router_body([*talk, *ANSWERED, assistant("Rain."), user("x" * 3000)], Route((LOOK,), may_decline=True))
    assert [turn["content"] for turn in body["messages"]][-7:] == [
        "Hi 3",
        "talk()",
        "Hi 4",
        "talk()",
        "How is Rome?",
        'look(city="Rome")',
        "x" * 2000,
    ]


def test_file_tools_are_shown_with_example_requests() -> None:
    (spec,) = (tool.spec for tool in file_tools() if tool.name == "read_file")
    body = router_body(ASKED, Route((spec,), may_decline=True))
    assert {"role": "assistant", "content": 'read_file(path="app.py")'} in body["messages"]
    second_body = arguments_body(ASKED, spec, max_tokens=50, max_result_tokens=100)
    assert {"role": "assistant", "content": '{"path": "app.py"}'} in second_body["messages"]
    namesake = ToolSpec("read_file", CITY)  # a different tool of the same name
    assert "app.py" not in str(router_body(ASKED, Route((namesake,), may_decline=True)))


def test_the_output_of_the_router_is_a_tool_or_talk() -> None:
    route = Route((LOOK, TICK), may_decline=True)
    assert chosen_tool(route, "look(") is LOOK
    assert chosen_tool(route, "talk(") is None


def test_a_tool_named_talk_is_a_tool() -> None:
    speak = ToolSpec("talk", CITY)
    route = Route((speak,), may_decline=True)
    assert talk_word(route) == "only_talk"
    assert router_body(ASKED, route)["grammar"] == 'root ::= "talk(" | "only_talk("'
    assert chosen_tool(route, "talk(") is speak
    assert chosen_tool(route, "only_talk(") is None


def test_arguments_are_generated_with_the_schema_of_the_tool() -> None:
    body = arguments_body([system("Be kind."), *ASKED], LOOK, max_tokens=50, max_result_tokens=100)
    form = body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == bounded_schema(CITY)
    assert body["max_tokens"] == 50
    assert [turn["role"] for turn in body["messages"]] == ["system", "user"]
    assert "city" in body["messages"][0]["content"]


# -- schemas


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "string", "maxLength": 2000}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"], "maxLength": 2000}),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 5}),
        ({"type": "string", "maxLength": 10**6}, {"type": "string", "maxLength": 2000}),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "string", "pattern": "a+"}, {"type": "string", "maxLength": 2000}),
        ({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$", "maxLength": 2000}),
        ({"type": "array", "minItems": 60}, {"type": "array", "minItems": 60, "maxItems": 60}),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "string", "maxLength": 2000}, "maxItems": 50},
        ),
        ({"anyOf": [{"type": "string"}, True]}, {"anyOf": [{"type": "string", "maxLength": 2000}, True]}),
        ({"$defs": {"A": {"type": "string"}}}, {"$defs": {"A": {"type": "string", "maxLength": 2000}}}),
        (
            {"properties": {"type": {"type": "string"}}, "additionalProperties": False},
            {"properties": {"type": {"type": "string", "maxLength": 2000}}, "additionalProperties": False},
        ),
    ],
)
def test_a_bounded_schema_limits_strings_and_arrays(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    before = repr(schema)
    assert bounded_schema(schema) == expected
    assert repr(schema) == before


# -- plain histories


def texts(messages: list[Message], max_result_tokens: int = 4000) -> list[tuple[str, str]]:
    plain = plain_history(messages, max_result_tokens=max_result_tokens)
    return [(message.role, "|".join(part.text for part in message.parts)) for message in plain]  # type: ignore[union-attr]


def test_calls_and_results_become_user_messages() -> None:
    ((role, text),) = texts(ANSWERED)
    assert role == "user"
    assert text.startswith("How is Rome?")
    assert '(look {"city": "Rome"} gave this result: rain)' in text
    assert text.endswith("with the names and numbers in it. Do not tell me how to do it.")


def test_only_the_newest_results_request_an_answer() -> None:
    plain = texts([*ANSWERED, assistant("It rains."), user("Thanks")])
    assert [role for role, _ in plain] == ["user", "assistant", "user"]
    assert "Tell me" not in plain[0][1]


def test_a_failed_call_is_described_as_failed() -> None:
    failed = [*ANSWERED[:2], tool_message(ToolResult("c1", "no such city", is_error=True))]
    text = texts(failed)[0][1]
    assert "failed and did nothing: no such city" in text
    assert text.endswith("Tell me in one sentence that this was not done, and why.")


@pytest.mark.parametrize(
    ("content", "prefix_length"),
    [("1" * 9000, 400), ("a" * 9000, 1333), ("雨" * 9000, 266)],
    ids=["figures", "letters", "signs"],
)
def test_a_long_result_is_truncated_with_a_note(content: str, prefix_length: int) -> None:
    long = [*ANSWERED[:2], tool_message(ToolResult("c1", content))]
    assert (
        f"gave this result: {content[:prefix_length]} [cut here: {9000 - prefix_length} characters more])"
        in texts(long, max_result_tokens=400)[0][1]
    )


def test_older_results_are_truncated_more() -> None:
    long = [*ANSWERED[:2], tool_message(ToolResult("c1", "1" * 900)), assistant("Long.")]
    again = [user("And now?"), assistant(ToolCall("c2", "look", {})), tool_message(ToolResult("c2", "2" * 900))]
    plain = "".join(text for _, text in texts([*long, *again], max_result_tokens=400))
    assert "1" * 25 + " [cut here: 875 " in plain
    assert "2" * 400 + " [cut here: 500 " in plain
    gone_on = [*long, user("Thanks")]
    assert "1" * 100 + " [cut here: 800 " in texts(gone_on, max_result_tokens=400)[0][1]


def test_latest_exchange_keeps_only_the_request_of_a_new_result() -> None:
    before = [system("Be kind."), user("Hi"), assistant("Hello")]
    assert latest_exchange([*before, *ANSWERED]) == [before[0], *ANSWERED]
    assert latest_exchange([*before, *ASKED]) == [*before, *ASKED]
    assert latest_exchange([]) == []


def test_system_messages_are_merged_at_the_front() -> None:
    plain = texts([system("Be kind."), user("Hi"), system("Be brief.")])
    assert plain == [("system", "Be kind.\n\nBe brief."), ("user", "Hi")]


def test_thinking_is_omitted_and_files_are_named() -> None:
    picture = Image("image/png", data=b"png")
    note = FileRef("note.txt", data=b"milk", mime_type="text/plain")
    plain = texts(
        [
            user("See", picture, note, FileRef("a.pdf"), Text("not this", ignored=True)),
            assistant(Thinking("hm"), "Yes."),
            user("So?"),
        ]
    )
    assert plain[0] == ("user", "See|[a picture, which you cannot see]|note.txt:\nmilk|[the file a.pdf]")
    assert plain[1:] == [("assistant", "Yes."), ("user", "So?")]


FILES = Route(suited_tools([tool.spec for tool in file_tools()]), may_decline=True)


@pytest.mark.parametrize(
    "request_text",
    [
        "Refactor src/app.py",
        "please fix the failing tests",
        "Could you add tests for the parser and commit them?",
        "Deploy this\nto production",
        "What's the weather today?",
        "who is the president of France?",
        "What time is it?",
        "What is 17 * 23?",
        "the square root of 1764",
    ],
)
def test_work_in_steps_arithmetic_and_news_are_too_hard_for_a_demo_model(request_text: str) -> None:
    assert is_too_hard([user("Hi"), assistant("Hello"), user(request_text)], FILES)


@pytest.mark.parametrize(
    "request_text",
    [
        "hi, how are you today?",
        "fix the typo teh in guide.md",
        "create a file tests.txt with hello in it",
        "what does refactor.py do?",
        "what is the time complexity of quicksort?",
        "what is in the current directory?",
        "what is 2 + 2?",
        "show me lines 10-20 of 3/4.txt",
    ],
)
def test_other_requests_are_left_to_the_router(request_text: str) -> None:
    assert not is_too_hard([user(request_text)], FILES)


def test_nothing_is_too_hard_with_tools_of_a_program_or_without_the_choice() -> None:
    request = [user("Refactor src/app.py")]
    assert not is_too_hard(request, Route((*FILES.tools, LOOK), may_decline=True))
    assert not is_too_hard(request, FILES._replace(may_decline=False))


def test_a_long_result_keeps_its_beginning_and_what_the_request_asks_about() -> None:
    blocks = [
        "# Bartack",
        *(f"Section {number} is about nothing of interest." for number in range(200)),
        "The licence is MIT.",
    ]
    history = [
        user("Which licence does it have?"),
        assistant(ToolCall("c1", "read_file", {"path": "README.md"})),
        tool_message(ToolResult("c1", "\n\n".join(blocks))),
    ]
    result_text = plain_history(history, max_result_tokens=200)[-1].text
    assert "# Bartack\n[...]\nThe licence is MIT.)" in result_text
    assert "Section" not in result_text
    unrelated = [user("Anything else?"), *history[1:]]
    assert (
        "Section 3 is" in plain_history(unrelated, max_result_tokens=200)[-1].text
    )  # no word in common: the beginning


@pytest.mark.parametrize(
    ("request_text", "is_error", "is_dropped"),
    [
        ("What is the capital of France?", True, True),
        ("What is in France.txt?", True, False),  # the name was given, so the failure is the answer
        ("What is the capital of France?", False, False),
    ],
)
def test_a_failed_call_with_invented_arguments_is_left_out(request_text: str, is_error: bool, is_dropped: bool) -> None:
    history = [
        user(request_text),
        assistant(ToolCall("c1", "read_file", {"path": "france.txt"})),
        tool_message(ToolResult("c1", "no such file", is_error=is_error)),
    ]
    assert without_wrong_guess(history) == (history[:1] if is_dropped else history)
    assert without_wrong_guess(history[:1]) == history[:1]


def test_a_search_that_found_nothing_is_dropped_unless_its_word_was_in_the_request() -> None:
    request = user("How do I run the tests, and where is Parser?")
    none = tool_message(ToolResult("c1", "No matches."))
    guessed = [request, assistant(ToolCall("c1", "search_files", {"pattern": "run tests"})), none]
    literal = [request, assistant(ToolCall("c1", "search_files", {"pattern": "Parser"})), none]
    assert without_wrong_guess(guessed) == [request]
    assert without_wrong_guess(literal) == literal


def test_a_list_of_files_is_to_be_named() -> None:
    listed = tool_message(ToolResult("c1", "a.py"))
    history = [user("which files?"), assistant(ToolCall("c1", "list_files", {"path": "."})), listed]
    assert "Write every name" in plain_history(history, max_result_tokens=99)[-1].text


@pytest.mark.parametrize(("tool", "code"), [("run_command", "tool_failed"), ("read_file", "tool_denied")])
def test_what_was_denied_or_would_have_acted_is_never_left_out(tool: str, code: str) -> None:
    call = assistant(ToolCall("c1", tool, {"path": "invented"}))
    failed = tool_message(ToolResult("c1", "no", is_error=True, error_code=ErrorCode(code)))
    history = [user("Who wrote Hamlet?"), call, failed]
    assert without_wrong_guess(history) == history
