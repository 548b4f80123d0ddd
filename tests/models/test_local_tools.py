"""How a small model is led to tools: the next step, the two questions, schemas with an end, and plain histories."""

from typing import Any

import pytest

from weft.config import SpecificTool, ToolChoice, ToolSpec
from weft.errors import ErrorCode, ModelError
from weft.messages import Message, assistant, system, tool_message, user
from weft.models.local_tools import Route, arguments_body, bounded, next_step, plain_history, router_body
from weft.parts import Continuation, FileRef, Image, Text, Thinking, ToolCall, ToolResult

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
def test_the_choice_and_the_history_decide_what_comes_next(
    messages: list[Message], tools: tuple[ToolSpec, ...], choice: ToolChoice | None, step: Route | ToolSpec | None
) -> None:
    assert next_step(messages, tools, choice, rounds=1) == step


def test_a_larger_model_may_call_tools_several_times() -> None:
    assert next_step(ANSWERED, (LOOK,), "auto", rounds=2) == Route((LOOK,), may_decline=True)
    assert next_step(ASKED, (LOOK,), "auto", rounds=0) is None


@pytest.mark.parametrize("choice", ["required", SpecificTool("search")])
def test_a_tool_that_is_not_there_cannot_be_demanded(choice: ToolChoice) -> None:
    with pytest.raises(ModelError) as caught:
        next_step(ASKED, (SEARCH,), choice, rounds=1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# -- the two questions


def test_the_router_may_say_the_name_of_a_tool_or_none() -> None:
    body = router_body(ANSWERED, Route((LOOK, TICK), may_decline=True))
    assert body["grammar"] == 'root ::= "look" | "tell_time" | "none"'
    assert body["logit_bias"][0][0] == "none"
    assert body["temperature"] == 0
    turns = body["messages"]
    assert "look(city): Look at a city." in turns[0]["content"]
    assert {"role": "assistant", "content": "tell_time"} in turns
    assert turns[-1] == {"role": "user", "content": "How is Rome?"}


def test_a_router_that_must_choose_hears_of_no_way_out() -> None:
    body = router_body(ASKED, Route((LOOK, TICK), may_decline=False))
    assert "none" not in body["grammar"]
    assert body["logit_bias"] == []
    assert {"role": "assistant", "content": "none"} not in body["messages"]


def test_the_arguments_are_asked_for_under_the_schema_of_the_tool() -> None:
    body = arguments_body([system("Be kind."), *ASKED], LOOK, max_tokens=50)
    form = body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"] == bounded(CITY)
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
def test_a_bounded_schema_has_an_end_to_everything(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    before = repr(schema)
    assert bounded(schema) == expected
    assert repr(schema) == before


# -- plain histories


def texts(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, "|".join(part.text for part in message.parts)) for message in plain_history(messages)]  # type: ignore[union-attr]


def test_calls_and_results_become_words_of_the_user() -> None:
    ((role, text),) = texts(ANSWERED)
    assert role == "user"
    assert text.startswith("How is Rome?")
    assert '(The tool look was run for this with {"city": "Rome"}. Its result: rain)' in text
    assert text.endswith("Answer me from this, in whole sentences.")


def test_older_results_do_not_ask_for_an_answer() -> None:
    told = texts([*ANSWERED, assistant("It rains."), user("Thanks")])
    assert [role for role, _ in told] == ["user", "assistant", "user"]
    assert "Answer me" not in told[0][1]


def test_a_failed_call_is_told_as_failed() -> None:
    failed = [*ANSWERED[:2], tool_message(ToolResult("c1", "no such city", is_error=True))]
    assert "It failed: no such city" in texts(failed)[0][1]


def test_a_long_result_is_cut_and_says_so() -> None:
    long = [*ANSWERED[:2], tool_message(ToolResult("c1", "x" * 9000))]
    assert "[and 1000 characters more]" in texts(long)[0][1]


def test_system_messages_go_to_the_front_as_one() -> None:
    told = texts([system("Be kind."), user("Hi"), system("Be brief.")])
    assert told == [("system", "Be kind.\n\nBe brief."), ("user", "Hi")]


def test_thinking_is_left_out_and_what_is_no_text_is_named() -> None:
    picture = Image("image/png", data=b"png")
    note = FileRef("note.txt", data=b"milk", mime_type="text/plain")
    told = texts(
        [
            user("See", picture, note, FileRef("a.pdf"), Text("not this", ignored=True)),
            assistant(Thinking("hm"), "Yes."),
            user("So?"),
        ]
    )
    assert told[0] == ("user", "See|[a picture, which you cannot see]|note.txt:\nmilk|[the file a.pdf]")
    assert told[1:] == [("assistant", "Yes."), ("user", "So?")]
