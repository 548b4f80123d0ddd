"""Hooks compose: each sees, changes or stops model input and output, tool calls and their results."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from bartack import (
    Agent,
    AgentError,
    ErrorCode,
    MemoryStore,
    Message,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    user,
)
from bartack.agent import Hooks
from bartack.models import ScriptedModel
from bartack.nouns.entries import RunEnded
from bartack.nouns.errors import ConfigError
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tables import AgentStatus
from tests.agent.kit import weather

CALL = assistant(ToolCall("1", "weather", {"city": "Paris"}))


def agent_with(*script: Any, **options: Any) -> tuple[Agent[Any, Any], ScriptedModel]:
    model = ScriptedModel(script or ("Hi.",))
    return Agent(model, tools=[weather], **options), model


def noted(notes: list[str], name: str) -> Hooks:
    """Hooks that note their calls and add their name to what they see."""

    async def before_model(request: ModelRequest) -> ModelRequest | None:
        *earlier, last = request.messages
        if last.role != "user":
            return None
        notes.append(f"{name} before_model {last.text}")
        return replace(request, messages=(*earlier, replace(last, parts=(*last.parts, Text(name)))))

    async def after_model(message: Message) -> Message:
        notes.append(f"{name} after_model {message.text}")
        return replace(message, parts=(*message.parts, Text(name)))

    async def before_tool(call: ToolCall) -> ToolCall:
        notes.append(f"{name} before_tool {call.arguments['city']}")
        return replace(call, arguments={"city": f"{call.arguments['city']}{name}"})

    async def after_tool(call: ToolCall, result: ToolResult) -> ToolResult:
        notes.append(f"{name} after_tool {result.content}")
        return replace(result, content=f"{result.content}{name}")

    return Hooks(
        before_model=before_model, after_model=after_model, before_tool=before_tool, after_tool=after_tool, name=name
    )


async def test_hooks_are_called_in_order_and_each_gets_what_the_one_before_made() -> None:
    notes: list[str] = []
    agent, model = agent_with(CALL, "Rain.", hooks=[noted(notes, "a"), noted(notes, "b")])
    result = await agent.run("Go", hooks=noted(notes, "c"))
    assert notes[:6] == [
        "a before_model Go",
        "b before_model Goa",
        "c before_model Goab",
        "a after_model ",
        "b after_model a",
        "c after_model ab",
    ]
    assert notes[6:12] == [
        "a before_tool Paris",
        "b before_tool Parisa",
        "c before_tool Parisab",
        "a after_tool rain in Parisabc",
        "b after_tool rain in Parisabca",
        "c after_tool rain in Parisabcab",
    ]
    assert result.output == "Rain.abc"
    assert model.calls[0].messages[-1].text == "Goabc"


async def ignore(value: Any, *_: Any) -> None:
    """A hook that changes nothing."""


async def test_hooks_that_return_none_change_nothing() -> None:
    quiet = Hooks(before_model=ignore, after_model=ignore, before_tool=ignore, after_tool=ignore)
    agent, _ = agent_with(CALL, "Rain.", hooks=[quiet, Hooks()])
    result = await agent.run("Go")
    assert [part.content for message in result.messages for part in message.tool_results] == ["rain in Paris"]


async def no_secrets(request: ModelRequest) -> Refusal | None:
    return Refusal("The prompt contains a password.") if "password" in request.messages[-1].text else None


async def no_prices(message: Message) -> Refusal | None:
    return Refusal("The answer names a price.") if "$" in message.text else None


async def no_paris(call: ToolCall) -> Refusal | None:
    return Refusal("Paris is off limits.") if call.arguments.get("city") == "Paris" else None


async def no_rain(call: ToolCall, result: ToolResult) -> Refusal | None:
    return Refusal("No bad news.") if "rain" in str(result.content) else None


STOPS: dict[str, tuple[Hooks, list[Any], str, int]] = {
    "no_secrets": (Hooks(before_model=no_secrets), ["never"], "The prompt contains a password.", 0),
    "no_prices": (Hooks(after_model=no_prices), ["It costs $5."], "The answer names a price.", 1),
    "no_paris": (Hooks(before_tool=no_paris), [CALL, "never"], "Paris is off limits.", 1),
    "no_rain": (Hooks(after_tool=no_rain), [CALL, "never"], "No bad news.", 1),
}


@pytest.mark.parametrize("name", STOPS)
async def test_a_stop_is_a_typed_result_and_no_exception(name: str) -> None:
    hooks, script, reason, calls = STOPS[name]
    never: list[str] = []
    store = MemoryStore()
    last = noted(never, "later")
    later = {field: getattr(last, field) for field in ("before_model", "after_model", "before_tool", "after_tool")}
    only_later = Hooks(**{field: hook for field, hook in later.items() if getattr(hooks, field) is not None})
    agent, model = agent_with(*script, hooks=[hooks, only_later], store=store)
    result = await agent.run("My password is 1234", session="s")
    assert (result.refused_by, result.status) == (name, AgentStatus.FAILED)
    assert result.error is not None
    assert (result.error.error_code, result.error.message) == (ErrorCode.REFUSED, reason)
    with pytest.raises(AgentError, match=re.escape(reason)):
        _ = result.output
    assert len(model.calls) == calls
    assert never == []
    ended = (await store.load("s"))[-1].fact
    assert isinstance(ended, RunEnded)
    assert ended.reason == f"refused_by:{name}"
    results = [part for message in result.messages for part in message.tool_results]
    assert all(part.is_error and reason in str(part.content) for part in results)


async def test_a_refused_answer_is_not_part_of_the_next_request() -> None:
    store = MemoryStore()
    agent, model = agent_with("It costs $5.", "Cheap.", hooks=Hooks(after_model=no_prices), store=store)
    assert (await agent.run("How much?", session="s")).refused_by == "no_prices"
    assert (await agent.run("Well?", session="s")).output == "Cheap."
    assert not any("$5" in message.text for message in model.calls[1].messages)


async def test_the_name_of_the_hooks_or_of_the_refusal_takes_precedence() -> None:
    agent, _ = agent_with(hooks=Hooks(before_model=no_secrets, name="privacy"))
    assert (await agent.run("password")).refused_by == "privacy"

    async def named(request: ModelRequest) -> Refusal:
        return Refusal("no", by="rule 7")

    agent, _ = agent_with(hooks=Hooks(before_model=named, name="privacy"))
    assert (await agent.run("x")).refused_by == "rule 7"
    agent, _ = agent_with()
    assert (await agent.run("x")).refused_by is None


def allow_only(*names: str) -> Hooks:
    """Lets a run use these tools only."""

    async def allow_list(call: ToolCall) -> ToolResult | None:
        if call.tool_name in names:
            return None
        return ToolResult(call.tool_call_id, f"{call.tool_name} is not allowed in this run.", is_error=True)

    return Hooks(before_tool=allow_list)


async def test_a_run_has_an_allow_list_of_tools() -> None:
    agent, _ = agent_with(CALL, "Sorry.", CALL, "Rain.")
    refused = await agent.run("Go", hooks=allow_only("search"))
    assert [part.content for part in refused.messages[-2].tool_results] == ["weather is not allowed in this run."]
    allowed = await agent.run("Go", hooks=[allow_only("weather")])
    assert [part.content for part in allowed.messages[-2].tool_results] == ["rain in Paris"]


async def test_personal_data_is_redacted_from_what_the_model_receives() -> None:
    def redacted(message: Message) -> Message:
        parts = [
            replace(part, text=re.sub(r"\S+@\S+", "[email]", part.text)) if isinstance(part, Text) else part
            for part in message.parts
        ]
        return replace(message, parts=tuple(parts))

    async def redact(request: ModelRequest) -> ModelRequest:
        return replace(request, messages=tuple(map(redacted, request.messages)))

    agent, model = agent_with(hooks=Hooks(before_model=redact))
    result = await agent.run("Write to ann@example.org")
    assert model.calls[0].messages[-1].text == "Write to [email]"
    assert result.messages[0].text == "Write to ann@example.org"  # the session keeps what was said
    assert user("x").text == "x"


def test_a_list_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="hooks must be Hooks"):
        agent_with(hooks=[no_paris])


@pytest.mark.parametrize("field", ["before_tool", "after_tool"])
async def test_a_tool_hook_that_is_not_async_fails_the_call(field: str) -> None:
    plain: Any = {field: lambda *_: None}
    agent, _ = agent_with(CALL, "Sorry.", hooks=Hooks(**plain))
    result = await agent.run("Go")
    (part,) = [part for message in result.messages for part in message.tool_results]
    assert "must be a coroutine function" in str(part.content)


@pytest.mark.parametrize("field", ["before_tool", "after_tool"])
async def test_a_tool_hook_that_returns_something_else_fails_the_call(field: str) -> None:
    async def wrong(*_: Any) -> int:
        return 5

    hooks: Any = {field: wrong}
    agent, _ = agent_with(CALL, "Sorry.", hooks=Hooks(**hooks))
    result = await agent.run("Go")
    (part,) = [part for message in result.messages for part in message.tool_results]
    assert "returned a value of type int" in str(part.content)
