"""Hooks around model calls and tools, and an agent as a tool of another."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bartack import Message, ThinkingConfig, ToolCall, ToolResult, assistant, user
from bartack.agent import Hooks
from bartack.models import ScriptedModel
from bartack.models.guard import GuardedStream
from bartack.models.scripted import ScriptedResponse
from bartack.nouns.entries import ThinkingLevelChange
from bartack.nouns.requests import ModelRequest
from bartack.store import next_entries
from tests.agent.kit import SESSION, call, check_session, make, messages, results


async def test_before_model_can_change_the_request() -> None:
    async def add(request: ModelRequest) -> ModelRequest:
        return replace(
            request, messages=(*request.messages, user("(hurry)")), config=replace(request.config, temperature=0.5)
        )

    agent, store, model = make(["x"], hooks=Hooks(before_model=add))
    await agent.run("Go", session=SESSION)
    assert [message.text for message in model.calls[0].messages] == ["Go", "(hurry)"]
    assert model.calls[0].config.temperature == 0.5
    assert [message.text for message in await messages(store)] == ["Go", "x"]


class ParameterModel(ScriptedModel):
    """Keeps the settings that each call passes."""

    def __init__(self, answers: Sequence[ScriptedResponse]) -> None:
        super().__init__(answers)
        self.params: list[dict[str, Any]] = []

    def stream(self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **options: Any) -> GuardedStream:
        self.params.append({name: value for name, value in options.items() if name != "request_metadata"})
        return super().stream(messages, tool_specs, system_prompt, **options)


async def test_only_settings_that_differ_from_the_models_own_are_passed() -> None:
    requests: list[ModelRequest] = []

    async def change(request: ModelRequest) -> ModelRequest | None:
        requests.append(request)
        if request.messages[-1].text != "Change":
            return None
        return replace(request, config=replace(request.config, top_p=0.5, extra={"user": "ann"}))

    model = ParameterModel(["One.", "Two.", "Three."])
    model.update_config(temperature=0.5, seed=7)
    agent, store, _ = make(model, hooks=Hooks(before_model=change))
    await agent.run("Keep", session=SESSION)
    await agent.run("Change", session=SESSION)
    assert model.params == [{}, {"top_p": 0.5, "extra": {"user": "ann"}}]
    assert [(call.config.temperature, call.config.top_p) for call in model.calls] == [(0.5, None), (0.5, 0.5)]
    assert (model.calls[1].config.extra, model.get_config().extra) == ({"user": "ann"}, None)
    assert requests[0].config is model.get_config()
    assert [spec.name for spec in requests[0].tools] == ["fail", "transfer", "weather"]
    metadata = requests[0].metadata
    assert (requests[0].provider, metadata.session_id) == ("scripted", SESSION)
    assert (metadata.model_call_index, metadata.attempt) == (0, 1)
    tail = await store.tail_of(SESSION)
    level = next_entries(SESSION, tail, [ThinkingLevelChange(level="high")], store.environment)
    await store.append(SESSION, level, tail.entry_id)
    await agent.run("Think", session=SESSION)
    assert model.params[2] == {"thinking": ThinkingConfig(effort="high")}


async def test_after_model_can_change_the_answer_before_it_is_stored() -> None:
    async def shout(message: Message) -> Message:
        return replace(message, parts=assistant(message.text.upper()).parts)

    agent, store, _ = make(["quiet"], hooks=Hooks(after_model=shout))
    assert (await agent.run("Go", session=SESSION)).output == "QUIET"
    assert (await messages(store))[-1].text == "QUIET"


async def test_tool_hooks_can_replace_calls_and_change_results() -> None:
    async def before(call: ToolCall) -> ToolCall | ToolResult | None:
        if call.tool_call_id == "c1":
            return ToolResult("c1", "from a cache")
        return replace(call, arguments={"city": "Rome"})

    async def after(call: ToolCall, result: ToolResult) -> ToolResult:
        return replace(result, content=f"<{result.content}>")

    agent, store, _ = make([assistant(call("c1"), call("c2")), "x"], hooks=Hooks(before_tool=before, after_tool=after))
    await agent.run("Go", session=SESSION)
    contents = {key: result.content for key, result in (await results(store)).items()}
    assert contents["c2"] == "<rain in Rome>"
    assert "from a cache" in str(contents["c1"])
    await check_session(store)
