"""Agents made from settings: the model, the tools and the files they must not touch."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bartack.app.agent_setup import AgentSetup, connect_model, load_tool, new_agent, resolve_setup
from bartack.app.sessions import opened_store
from bartack.app.settings import settings_file
from bartack.models import ScriptedModel
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import assistant
from bartack.nouns.parts import ToolCall
from bartack.store import MemoryStore
from bartack.tools import ToolDefinition, file_tools, tool
from tests.app.config_file import FULL, write_config

pytestmark = pytest.mark.usefixtures("folder")


def setup(
    model: ScriptedModel,
    *,
    tools: Sequence[ToolDefinition] = (),
    files: bool = False,
    instructions: str | None = None,
    store: str | None = "memory:",
) -> AgentSetup:
    """A set-up with a scripted model in place of the configured one."""
    setup = resolve_setup(model="ollama:any", tools=(), files=files, instructions=instructions, store=store)
    return setup._replace(model=model, tools=tuple(tools))


# -- the model


def test_model_settings_of_the_file_are_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(FULL)
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    config = connect_model("openai-compatible:m").get_config()
    assert (config.model_id, config.max_tokens) == ("m", 7)


def test_prompts_are_cached_unless_the_file_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    cases = {"": True, "cache_config = false": False, 'cache_config = {strategy = "auto"}': True}
    for text, is_cached in cases.items():
        write_config(f"[model_settings]\n{text}")
        settings_file.cache_clear()
        assert (connect_model("openai-compatible:m").get_config().cache_config is not None) is is_cached
    write_config("[model_settings]\ncache_config = 3")
    settings_file.cache_clear()
    with pytest.raises(BartackError, match="cache_config must be true, false or a table, got 3"):
        connect_model("openai-compatible:m")


@pytest.mark.parametrize(
    "setting",
    [
        *(
            "api_key",
            "base_url",
            "client",
            "headers",
            "timeouts",
            "settings",
            "error_mapper",
            "environment",
        ),
        *("provider_raw", "name", "model_id", "engine", "context_window", "threads", "extra"),
    ],
)
def test_the_file_cannot_set_credentials_or_addresses(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(f"[model_settings]\n{setting} = 'sk-1'")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    for model in ("openai-compatible:m", "local"):
        with pytest.raises(BartackError, match=rf"\[model_settings\] {setting} ") as raised:
            connect_model(model)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert str(path) in raised.value.__notes__[-1]


def test_an_invalid_model_setting_is_reported_with_its_location(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config("[model_settings]\nmax_tokens = 'many'")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(PartValidationError) as raised:
        connect_model("openai-compatible:m")
    assert raised.value.__notes__ == [f"Fix max_tokens in [model_settings] of {path}."]
    with pytest.raises(PartValidationError) as raised:
        connect_model("nobody:m")
    assert "vendor:model" in raised.value.__notes__[-1]


def test_a_model_that_cannot_be_connected_is_an_error_with_a_hint() -> None:
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY") as no_key:
        connect_model("anthropic:x")
    assert "--model local" in no_key.value.__notes__[-1]
    with pytest.raises(PartValidationError, match="nobody") as no_vendor:
        connect_model("nobody:x")
    assert "vendor:model" in no_vendor.value.__notes__[-1]


# -- tools


TOOLS = '''
from bartack import tool
import helper

@tool
def declared(name: str) -> str:
    """Declared."""
    return name

def plain(name: str) -> str:
    """Plain."""
    return helper.GREETING + name

def untyped(name): ...

def late() -> str:
    """Late."""
    import late_helper
    return late_helper.WORD

number = 3
'''


@pytest.fixture
def my_tools(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules in the current directory, removed from sys.modules afterwards."""
    (folder / "bartack_test_tools.py").write_text(
        TOOLS.replace("late_helper", "bartack_test_late").replace(
            "import helper", "import bartack_test_helper as helper"
        ),
        encoding="utf-8",
    )
    (folder / "bartack_test_late.py").write_text("WORD = 'late'", encoding="utf-8")
    (folder / "bartack_test_helper.py").write_text("GREETING = 'hello '", encoding="utf-8")
    (folder / "bartack_test_needy.py").write_text("import bartack_test_not_there", encoding="utf-8")
    (folder / "bartack_test_wrong.py").write_text("def f(:", encoding="utf-8")
    (folder / "bartack_test_quits.py").write_text("raise AttributeError('inside')", encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("tools", "helper", "late"):
        monkeypatch.delitem(sys.modules, f"bartack_test_{name}", raising=False)


@pytest.mark.usefixtures("my_tools")
def test_a_tool_is_a_function_or_a_tool_definition() -> None:
    assert load_tool("bartack_test_tools:declared").name == "declared"
    assert load_tool("bartack_test_tools:plain").name == "plain"


@pytest.mark.usefixtures("my_tools")
async def test_a_tool_can_import_from_its_directory_when_it_runs(folder: Path) -> None:
    before = sys.path[0]
    late = load_tool("bartack_test_tools:late")
    model = ScriptedModel([assistant(ToolCall("1", "late", {})), "Done."])
    async with new_agent(setup(model, tools=[late]), MemoryStore(), approver=None) as agent:
        result = await agent.run("Go", session="s")
    assert [message.tool_results[0].content for message in result.messages if message.role == "tool"] == ["late"]
    assert sys.path.count(str(folder)) == 1
    assert sys.path[0] == before  # files of the directory must not shadow libraries


@pytest.mark.usefixtures("my_tools")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bartack_test_tools", "it must have the form module:name"),
        (":plain", "it must have the form module:name"),
        ("bartack_test_tools:absent", "bartack_test_tools has no attribute 'absent'"),
        ("bartack_test_tools:number", "it must be a function, got int"),
        ("bartack_test_tools:untyped", "cannot be used as a tool"),
        ("bartack_test_absent.inner:f", "there is no module bartack_test_absent"),
        ("bartack_test_needy:f", "it imports the missing module bartack_test_not_there"),
        ("bartack_test_wrong:f", "cannot be imported: SyntaxError"),
        ("bartack_test_quits:f", "cannot be imported: AttributeError: inside"),
    ],
)
def test_anything_else_is_rejected_with_the_reason(name: str, fault: str) -> None:
    with pytest.raises(PartValidationError) as raised:
        load_tool(name)
    assert fault in raised.value.message
    assert "--tool my_tools:weather" in raised.value.__notes__[-1]


# -- the agent


async def test_tools_cannot_read_the_settings_or_the_prompt_history(folder: Path) -> None:
    config = write_config(FULL)
    history = folder / "data" / "bartack" / "history"
    history.parent.mkdir(parents=True)
    history.write_text("Be brief.", encoding="utf-8")
    paths = [str(path.relative_to(folder)) for path in (config, history)]
    calls = [ToolCall(path, "read_file", {"path": path}) for path in paths]
    model = ScriptedModel([assistant(*calls), "Done."])
    agent_setup = setup(model, instructions="", files=True, store=str(folder / "elsewhere.db"))
    async with new_agent(agent_setup, MemoryStore(), approver=None) as agent:
        result = await agent.run("Look", session="s")
    answers = [message.tool_results[0] for message in result.messages if message.role == "tool"]
    assert [answer.is_error for answer in answers] == [True, True]
    assert "brief" not in str(answers)


@pytest.mark.parametrize(("instructions", "expected"), [("Be long.", "Be long."), ("", None), (None, "Be brief.")])
async def test_empty_instructions_mean_none(instructions: str | None, expected: str | None) -> None:
    write_config(FULL)
    model = ScriptedModel(["Done."])
    async with new_agent(setup(model, instructions=instructions), MemoryStore(), approver=None) as agent:
        await agent.run("Hi", session="s")
    system = [message.text for message in model.calls[0].messages if message.role == "system"]
    assert system == ([] if expected is None else [expected])


async def test_the_agent_uses_the_file_and_keeps_its_tools_away_from_the_store(folder: Path) -> None:
    write_config(FULL)
    (folder / "open.txt").write_text("public", encoding="utf-8")
    calls = [ToolCall("1", "read_file", {"path": "sessions.db"}), ToolCall("2", "read_file", {"path": "open.txt"})]
    model = ScriptedModel([assistant(*calls), "Done."])
    chosen = setup(model, files=True, store=None)
    async with opened_store(chosen.address) as store, new_agent(chosen, store, approver=None) as agent:
        result = await agent.run("Look", session="s")
    assert (folder / "sessions.db").is_file()
    assert result.output == "Done."
    forbidden, allowed = (message.tool_results[0] for message in result.messages if message.role == "tool")
    assert "is not allowed" in str(forbidden.content)
    assert "public" in str(allowed.content)
    assert model.calls[0].messages[0].text.startswith("Be brief.")


async def test_the_file_sets_which_tools_need_approval() -> None:
    write_config(FULL)

    def greet(name: str) -> str:
        """Greets."""
        return f"hello {name}"

    model = ScriptedModel([assistant(ToolCall("1", "greet", {"name": "Ada"}))])
    async with new_agent(setup(model, tools=[tool(greet)]), MemoryStore(), approver=None) as agent:
        result = await agent.run("Greet", session="s")
    assert [request.tool_name for request in result.approvals] == ["greet"]


def test_two_tools_of_the_same_name_are_rejected() -> None:
    with pytest.raises(BartackError, match="read_file"):
        new_agent(setup(ScriptedModel([]), tools=file_tools()[:1], files=True), MemoryStore(), approver=None)
