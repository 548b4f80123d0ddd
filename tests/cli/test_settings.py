"""Settings of the command line: where they come from, what is refused, and the agent that is made of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.cli.agent_setup import SetupFault, connected, new_agent, setting_up, store_place, tool_named
from bartack.cli.settings import chosen_model, config_path, first_said, settings_file
from bartack.cli.store_place import place_of_store
from bartack.models import ScriptedModel
from bartack.models.by_name import DefaultModel, default_model
from bartack.models.vendors import VENDORS
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, PartValidationError, StoreError
from bartack.nouns.messages import assistant
from bartack.nouns.parts import ToolCall
from bartack.store import MemoryStore
from bartack.tools import file_tools, tool

FULL = """
model = "openai-compatible:m"
store = "sqlite:~/sessions.db"
instructions = "Be brief."
thinking = true

[approval]
greet = "always"

[model_settings]
max_tokens = 7
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, no keys, no settings; and the file is read anew."""
    for vendor in VENDORS.values():
        for name in vendor.key_names:
            monkeypatch.delenv(name, raising=False)
    for name in ("BARTACK_CONFIG", "BARTACK_MODEL", "BARTACK_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    settings_file.cache_clear()
    yield tmp_path
    settings_file.cache_clear()


def write_config(text: str) -> Path:
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# -- the file


def test_without_a_file_everything_has_its_default() -> None:
    found = settings_file()
    assert not found.is_there
    assert found.settings.model is None
    assert first_said(None, "store") is None
    assert first_said("memory:", "store") == "memory:"


def test_the_file_speaks_where_flag_and_environment_are_silent() -> None:
    assert write_config(FULL) == settings_file().path
    assert settings_file().is_there
    assert first_said(None, "instructions") == "Be brief."
    assert first_said("Be long.", "instructions") == "Be long."
    assert chosen_model(None) == DefaultModel("openai-compatible:m", "")
    assert chosen_model("local") == DefaultModel("local", "")


def test_a_variable_names_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config("thinking = true")
    other = folder / "other.toml"
    other.write_text("", encoding="utf-8")
    monkeypatch.setenv("BARTACK_CONFIG", "~/other.toml")
    assert config_path() == other
    assert not settings_file().settings.thinking


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model = ", "is not TOML"),
        ("modle = 'x'", "modle"),
        ("model = 3", "$.model"),
        ("[approval]\nread_file = 'sometimes'", "sometimes"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong(text: str, fault: str) -> None:
    path = write_config(text)
    with pytest.raises(BartackError) as raised:
        settings_file()
    assert str(path) in raised.value.message
    assert fault in raised.value.message
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "BARTACK_CONFIG" in raised.value.__notes__[-1]


def test_a_file_that_is_no_text_and_one_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config("").write_bytes(b"\xff\xfe")
    with pytest.raises(BartackError, match="is not TOML"):
        settings_file()
    monkeypatch.setenv("BARTACK_CONFIG", str(folder / "missing.toml"))
    with pytest.raises(BartackError, match="is named by BARTACK_CONFIG and is not there"):
        settings_file()
    monkeypatch.setenv("BARTACK_CONFIG", str(folder))
    with pytest.raises(BartackError, match="cannot be read"):
        settings_file()


# -- which model


def test_a_key_chooses_its_vendor_and_no_key_the_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_model() == DefaultModel("local", "no API key is set")
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "  ")
    name, reason = chosen_model(None)
    assert name.startswith("mistral:")
    assert reason == "MISTRAL_API_KEY is set"


def test_the_file_has_settings_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(FULL)
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    config = connected("openai-compatible:m").get_config()
    assert (config.model_id, config.max_tokens) == ("m", 7)


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
            "cache_config",
            "error_mapper",
            "environment",
        ),
        *("provider_raw", "name", "model_id", "engine", "context_window", "threads", "extra"),
    ],
)
def test_the_file_says_neither_who_asks_nor_whom(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(f"[model_settings]\n{setting} = 'sk-1'")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    for model in ("openai-compatible:m", "local"):
        with pytest.raises(BartackError, match=rf"\[model_settings\] {setting} ") as raised:
            connected(model)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert str(path) in raised.value.__notes__[-1]


def test_a_setting_that_cannot_be_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config("[model_settings]\nmax_tokens = 'many'")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(PartValidationError) as raised:
        connected("openai-compatible:m")
    assert raised.value.__notes__ == [f"max_tokens stands in [model_settings] of {path}"]
    with pytest.raises(PartValidationError) as raised:
        connected("nobody:m")
    assert "vendor:model" in raised.value.__notes__[-1]


def test_blank_words_are_none(folder: Path) -> None:
    write_config(FULL)
    assert chosen_model(" ").name == "openai-compatible:m"
    assert chosen_model(" local\n").name == "local"
    assert store_place("  ") == f"sqlite:{folder / 'sessions.db'}"


def test_a_model_that_cannot_be_reached_is_an_error_with_a_hint() -> None:
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY") as no_key:
        connected("anthropic:x")
    assert "--model local" in no_key.value.__notes__[-1]
    with pytest.raises(PartValidationError, match="nobody") as no_vendor:
        connected("nobody:x")
    assert "vendor:model" in no_vendor.value.__notes__[-1]


def test_a_fault_of_the_setup_has_the_exit_status_2() -> None:
    with pytest.raises(SetupFault, match="Unknown vendor 'nobody'") as raised, setting_up():
        connected("nobody:x")
    assert (raised.value.exit_status, raised.value.code) == (2, ErrorCode.INVALID_CONFIG)
    assert "vendor:model" in raised.value.__notes__[-1]


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
    """Modules in the current directory, which are forgotten afterwards."""
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
def test_a_tool_is_a_function_or_what_was_made_of_one() -> None:
    assert tool_named("bartack_test_tools:declared").name == "declared"
    assert tool_named("bartack_test_tools:plain").name == "plain"


@pytest.mark.usefixtures("my_tools")
async def test_a_tool_may_import_from_its_directory_when_it_runs(folder: Path) -> None:
    before = sys.path[0]
    late = tool_named("bartack_test_tools:late")
    model = ScriptedModel([assistant(ToolCall("1", "late", {})), "Done."])
    agent = new_agent(
        model, store=MemoryStore(), place="memory:", instructions=None, tools=[late], files=False, approver=None
    )
    async with agent:
        result = await agent.run("Go", session="s")
    assert [message.tool_results[0].content for message in result.messages if message.role == "tool"] == ["late"]
    assert sys.path.count(str(folder)) == 1
    assert sys.path[0] == before  # a file of the directory is no library


@pytest.mark.usefixtures("my_tools")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bartack_test_tools", "is not module:name"),
        (":plain", "is not module:name"),
        ("bartack_test_tools:absent", "names nothing in bartack_test_tools"),
        ("bartack_test_tools:number", "is a int, and not a function"),
        ("bartack_test_tools:untyped", "cannot be a tool"),
        ("bartack_test_absent.inner:f", "names a module that is not there: bartack_test_absent"),
        ("bartack_test_needy:f", "needs a module that is not there: bartack_test_not_there"),
        ("bartack_test_wrong:f", "cannot be imported: SyntaxError"),
        ("bartack_test_quits:f", "cannot be imported: AttributeError: inside"),
    ],
)
def test_what_is_no_tool_is_refused_with_the_reason(name: str, fault: str) -> None:
    with pytest.raises(PartValidationError) as raised:
        tool_named(name)
    assert fault in raised.value.message
    assert "--tool my_tools:weather" in raised.value.__notes__[-1]


# -- the agent


def test_the_place_of_the_store_is_what_was_said_or_the_data_folder(folder: Path) -> None:
    assert store_place(None) == f"sqlite:{folder / 'data' / 'bartack' / 'sessions.db'}"
    assert store_place("memory:") == "memory:"
    write_config(FULL)
    settings_file.cache_clear()
    assert store_place(None) == f"sqlite:{folder / 'sessions.db'}"


@pytest.mark.parametrize("place", ["mysql://u:topsecret@h/d", "POSTGRESQL://u:topsecret@h/d"])
def test_a_kind_of_store_that_does_not_exist_is_refused(place: str) -> None:
    with pytest.raises(StoreError, match="Unknown store type") as raised:
        store_place(place)
    assert f'"{place.partition(":")[0]}://"' in raised.value.message
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "postgresql://USER@HOST/DATABASE" in raised.value.__notes__[-1]


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("postgresql://u:secret@h:1/db?sslmode=require", "postgresql://h:1/db"),
        ("postgres://h/db?password=sec@ret", "postgres://..."),
        ("postgresql://u:sec?ret@h/db", "postgresql://..."),
        ("postgresql://u:s@ec/ret@h/db", "postgresql://h/db"),
        ("sqlite:///tmp/x.db", "/tmp/x.db"),
    ],
)
def test_an_address_is_shown_without_its_password(place: str, shown: str) -> None:
    assert place_of_store(place).shown == shown


async def test_tools_reach_neither_the_settings_nor_the_history_of_prompts(folder: Path) -> None:
    config = write_config(FULL)
    history = folder / "data" / "bartack" / "history"
    history.parent.mkdir(parents=True)
    history.write_text("Be brief.", encoding="utf-8")
    paths = [str(path.relative_to(folder)) for path in (config, history)]
    calls = [ToolCall(path, "read_file", {"path": path}) for path in paths]
    model = ScriptedModel([assistant(*calls), "Done."])
    place = f"sqlite:{folder / 'elsewhere.db'}"
    async with new_agent(model, store=MemoryStore(), place=place, instructions="", files=True, approver=None) as agent:
        result = await agent.run("Look", session="s")
    answers = [message.tool_results[0] for message in result.messages if message.role == "tool"]
    assert [answer.is_error for answer in answers] == [True, True]
    assert "brief" not in str(answers)


@pytest.mark.parametrize(("said", "told"), [("Be long.", "Be long."), ("", None), (None, "Be brief.")])
async def test_instructions_that_are_empty_are_none(said: str | None, told: str | None) -> None:
    write_config(FULL)
    model = ScriptedModel(["Done."])
    agent = new_agent(model, store=MemoryStore(), place="memory:", instructions=said, files=False, approver=None)
    async with agent:
        await agent.run("Hi", session="s")
    system = [message.text for message in model.calls[0].messages if message.role == "system"]
    assert system == ([] if told is None else [told])


async def test_the_agent_follows_the_file_and_keeps_its_tools_from_the_store(folder: Path) -> None:
    write_config(FULL)
    (folder / "sessions.db").write_text("secret", encoding="utf-8")
    (folder / "open.txt").write_text("public", encoding="utf-8")
    calls = [ToolCall("1", "read_file", {"path": "sessions.db"}), ToolCall("2", "read_file", {"path": "open.txt"})]
    model = ScriptedModel([assistant(*calls), "Done."])
    store = MemoryStore()
    place = store_place(None)
    async with new_agent(model, store=store, place=place, instructions=None, files=True, approver=None) as agent:
        result = await agent.run("Look", session="s")
    assert result.output == "Done."
    forbidden, allowed = (message.tool_results[0] for message in result.messages if message.role == "tool")
    assert forbidden.is_error
    assert "secret" not in str(forbidden.content)
    assert "public" in str(allowed.content)
    assert model.calls[0].messages[0].text.startswith("Be brief.")


async def test_the_file_says_which_tools_ask() -> None:
    write_config(FULL)

    def greet(name: str) -> str:
        """Greets."""
        return f"hello {name}"

    model = ScriptedModel([assistant(ToolCall("1", "greet", {"name": "Ada"}))])
    agent = new_agent(
        model, store=MemoryStore(), place="memory:", instructions=None, tools=[tool(greet)], files=False, approver=None
    )
    async with agent:
        result = await agent.run("Greet", session="s")
    assert [request.tool_name for request in result.approvals] == ["greet"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BartackError, match="read_file"):
        new_agent(
            ScriptedModel([]),
            store=MemoryStore(),
            place="memory:",
            instructions=None,
            tools=file_tools()[:1],
            files=True,
            approver=None,
        )
