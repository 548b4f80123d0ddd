"""Builds an agent from flags and settings: its model, tools, instructions, working directory and store."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple

from bartack.agent import Agent
from bartack.agent.settings import PromptContext
from bartack.agent.tracing import Telemetry
from bartack.app.demo import demo_instructions
from bartack.app.errors import with_hint
from bartack.app.mcp_servers import servers_path, toolsets
from bartack.app.output_schema import SchemaOutput
from bartack.app.permissions import permissions_folder
from bartack.app.platform import current_directory, require_posix
from bartack.app.sessions import OWN_AGENT, configured_store
from bartack.app.settings import choose_model, config_path, setting, settings_file
from bartack.models.by_name import DefaultModel, connect
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig, ToolsConfig
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.nouns.wire import camel
from bartack.store import SessionStore
from bartack.store.address import StoreAddress, default_path
from bartack.tools import ApprovalPolicy, Approver, LocalRuntime, Runtime, ToolDefinition, Toolset, file_tools, tool
from bartack.tools.mcp import McpServer, ServerConfig

LEASE_S = 10.0  # how long a session stays locked after a crash
_LOCAL_NUMBERS = frozenset(("context_window", "threads", "tool_rounds"))  # of bartack.models.LocalModel
_MODEL_NAME_HINT = "Name a model as vendor:model in --model, BARTACK_MODEL or the configuration file."
_INSTRUCTIONS = "You are a helpful assistant in a terminal. Answer in Markdown, and briefly."


class AgentSetup(NamedTuple):
    """What an agent is made of."""

    choice: DefaultModel  # the name of the model, and the reason if it is the default one
    model: Model
    tools: tuple[ToolDefinition | Toolset, ...]
    files: bool  # also the file and command tools, confined to the current directory
    instructions: str
    address: StoreAddress


def resolve_setup(
    *,
    model: str | None,
    tools: Iterable[str],
    files: bool,
    instructions: str | None,
    store: str | None,
    servers: Mapping[str, ServerConfig] | None = None,
) -> AgentSetup:
    """The set-up for these flags and the settings. Nothing is opened yet. Errors carry a hint."""
    if files:
        require_posix("Tools for files and commands", "Leave out --tools (in a chat: --no-tools), or work in WSL.")
    choice = choose_model(model)
    chosen = setting("instructions", instructions)
    connected = connect_model(choice.name)
    default = demo_instructions(connected) or _INSTRUCTIONS
    return AgentSetup(
        choice=choice,
        model=connected,
        tools=(*map(load_tool, tools), *toolsets(servers or {})),
        files=files,
        instructions=default if chosen is None else chosen,
        address=configured_store(store),
    )


def new_agent(
    setup: AgentSetup,
    store: SessionStore,
    *,
    approver: Approver | None,
    approval: ApprovalPolicy | None = None,
    telemetry: Telemetry | None = None,
    runtime: Runtime | None = None,
    output: SchemaOutput | None = None,
    instructions: Callable[[PromptContext[Any]], str] | None = None,
    servers: Sequence[McpServer] = (),
) -> Agent:
    """An agent with this set-up on its open store; its files are those of the current directory, or of `runtime`.

    `instructions` replace those of the set-up with some that depend on the model. `servers` are MCP servers beside
    those of the set-up.
    """
    answers: dict[str, Any] = (
        {} if output is None else {"output_type": output.type, "output_validator": output.validate}
    )
    if setup.files and runtime is None:
        runtime = LocalRuntime(current_directory(), forbidden=private_files(store))
    return Agent(
        setup.model,
        tools=(*(file_tools() if setup.files else ()), *setup.tools, *servers),
        instructions=instructions or setup.instructions,
        store=store,
        runtime=runtime,
        approver=approver,
        approval=approval,
        config=AgentConfig(tools=ToolsConfig(approval=settings_file().settings.approval or None)),
        lease_s=LEASE_S,
        name=OWN_AGENT,
        telemetry=telemetry,
        **answers,
    )


def private_files(store: SessionStore) -> Sequence[Path]:
    """Files the tools must not touch even inside the directory: sessions, prompt history, settings, tokens."""
    sessions = () if store.path is None else (store.path,)
    settings = config_path(), servers_path(), config_path().with_name("mcp-tokens.json"), permissions_folder()
    return (*sessions, default_path().parent, *settings)


# -- the model


def connect_model(name: str) -> ProviderModel | LocalModel:
    """The named model, with [model_settings] of the configuration file applied. Errors carry a hint."""
    settings = settings_file().settings.model_settings
    _check_settings(settings)
    try:
        model: ProviderModel | LocalModel = connect(name, **settings)
        return model
    except BartackError as error:
        if error.code is ErrorCode.MISSING_CREDENTIALS:
            with_hint(error, "Set it, or use --model local, which needs no key.")
        elif isinstance(error, PartValidationError) and error.path == "$.api_key":
            with_hint(error, "--model local needs no key.")
        elif error.code is ErrorCode.INVALID_CONFIG:
            wrong = _wrong_setting(error, settings)
            is_about_name = isinstance(error, PartValidationError) and error.path in ("$.name", "$.vendor")
            hint = _MODEL_NAME_HINT if is_about_name else "Choose another model with --model, or --model local."
            with_hint(error, hint if wrong is None else f"Fix {wrong} in [model_settings] of {config_path()}.")
        raise


def _check_settings(settings: Mapping[str, Any]) -> None:
    """The file may set how a model answers, but not credentials, addresses or transport."""
    parameters = signature(connect).parameters.values()
    reserved = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD} | {"model_id", "engine"}
    for name, value in settings.items():
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if name in reserved:
            problem = "cannot be set in the configuration file."
        elif name in _LOCAL_NUMBERS and not is_number:
            problem = f"must be a positive integer, got {value!r}."
        elif name == "extra" and not isinstance(value, dict):
            problem = f"must be a table, got {value!r}."
        else:
            continue
        hint = f"{config_path()} takes fields of ModelConfig and provider settings there. "
        hint += "Set keys and addresses in the environment."
        raise with_hint(BartackError(f"[model_settings] {name} {problem}", code=ErrorCode.INVALID_CONFIG), hint)


def _wrong_setting(error: BartackError, settings: Mapping[str, Any]) -> str | None:
    """The setting that the error's path starts with, which may be spelled as in JSON."""
    path = error.path if isinstance(error, PartValidationError) else ""
    first = path.removeprefix("$.").partition(".")[0].partition("[")[0]
    return next((name for name in settings if first in (name, camel(name))), None)


# -- tools by name


def load_tool(name: str) -> ToolDefinition:
    """The tool at ``module:name``. Modules in the current directory can be imported, also later by the tool itself.

    Raises `PartValidationError` if there is no such function or it cannot be a tool.
    """
    return _as_tool(name, _load(name, _invalid_tool))


def load_agents(name: str) -> dict[str, Agent[Any, Any]]:
    """The agents at ``module:name``, by their names: an agent, several, or a mapping of names to agents.

    Raises `PartValidationError` if there are none.
    """
    value = _load(name, _invalid_agents)
    if isinstance(value, Mapping):
        agents = dict(value)
    else:
        listed = [value] if isinstance(value, Agent) else list(value) if isinstance(value, Sequence) else []
        agents = {one.name or "agent" if isinstance(one, Agent) else "": one for one in listed}
        if len(agents) < len(listed):
            raise _invalid_agents(name, "two agents have the same name")
    if not agents or not all(isinstance(one, Agent) and isinstance(key, str) for key, one in agents.items()):
        raise _invalid_agents(name, f"it must be an agent, a list of agents or a dict, got {type(value).__name__}")
    return agents


def _load(name: str, invalid: Callable[[str, str], PartValidationError]) -> Any:
    """The value at ``module:name``."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise invalid(name, "it must have the form module:name")
    here = str(current_directory())
    sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        is_itself = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        problem = "there is no module" if is_itself else "it imports the missing module"
        raise invalid(name, f"{problem} {error.name}") from error
    except Exception as error:  # importing runs arbitrary code, which may raise anything
        raise invalid(name, f"it cannot be imported: {type(error).__name__}: {error}".rstrip(".")) from error
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)  # last, so that no file there shadows an installed library
    if not hasattr(module, attribute):
        raise invalid(name, f"{module_name} has no attribute {attribute!r}")
    return getattr(module, attribute)


def _as_tool(name: str, value: Any) -> ToolDefinition:
    if isinstance(value, ToolDefinition):
        return value
    if not callable(value) or isinstance(value, type):
        raise _invalid_tool(name, f"it must be a function, got {type(value).__name__}")
    try:
        return tool(value)
    except TypeError as error:
        raise _invalid_tool(name, f"it cannot be used as a tool: {error}") from error


def _invalid_tool(name: str, problem: str) -> PartValidationError:
    error = PartValidationError(f"Invalid --tool {name!r}: {problem}.", path="--tool", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Example: --tool my_tools:weather uses the function weather in my_tools.py.")


def _invalid_agents(name: str, problem: str) -> PartValidationError:
    text = f"Invalid --agents {name!r}: {problem}."
    error = PartValidationError(text, path="--agents", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Example: --agents my_agents:agents uses the list agents in my_agents.py.")
