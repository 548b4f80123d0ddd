"""Builds an agent from flags and settings: its model, tools, instructions, output, working directory and store."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bartack.agent import Agent, Hooks
from bartack.agent.output import OutputType
from bartack.agent.settings import PromptContext, RetryPolicy
from bartack.agent.tracing import TelemetrySink
from bartack.app.coding_prompt import coding_prompt
from bartack.app.demo_tools import demo_tools
from bartack.app.errors import with_hint
from bartack.app.mcp_servers import servers_path, toolsets
from bartack.app.permissions import permissions_folder
from bartack.app.platform import current_directory, require_posix
from bartack.app.sessions import OWN_AGENT, configured_store
from bartack.app.settings import check_variables, choose_model, config_path, setting, settings_file
from bartack.models.by_name import DefaultModel, connect
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig, CacheConfig, ToolsConfig
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.nouns.wire import camel
from bartack.session.schema_check import argument_check
from bartack.store import SessionStore
from bartack.store.address import StoreAddress, default_path
from bartack.tools import (
    ApprovalPolicy,
    Approver,
    LocalRuntime,
    ProviderTool,
    Runtime,
    ToolDefinition,
    Toolset,
    WebSearch,
    file_tools,
    tool,
)
from bartack.tools.local_runtime import CommandOptions
from bartack.tools.mcp import McpServer, ServerConfig
from bartack.tools.web_page import fetch_tool

LEASE_S = 10.0  # how long a session stays locked after a crash
_LOCAL_NUMBERS = frozenset(("context_window", "threads", "tool_rounds"))  # parameters of bartack.models.LocalModel
_READING_TOOLS = frozenset(("read_file", "list_files", "search_files"))
_CACHE_SETTING = "cache_config"
_MODEL_NAME_HINT = "Name a model as vendor:model in --model, BARTACK_MODEL or the configuration file."
_INSTRUCTIONS = "You are a helpful assistant in a terminal. Answer in Markdown, and briefly."


class AgentSetup(NamedTuple):
    """What an agent is made of."""

    choice: DefaultModel  # the name of the model, and the reason if it is the default one
    model: Model
    tools: tuple[ToolDefinition | Toolset | ProviderTool, ...]
    files: bool  # adds the file and command tools, confined to the current directory
    instructions: str
    address: StoreAddress
    has_coding_prompt: bool = False  # the instructions are Bartack's own, for work on files
    is_read_only: bool = False  # whether the tools for files can only read them

    def tools_for_files(self) -> tuple[ToolDefinition, ...]:
        """The tools for files and commands, as far as this set-up has them."""
        tools = file_tools() if self.files else ()
        return tuple(tool for tool in tools if tool.name in _READING_TOOLS) if self.is_read_only else tools


class SchemaOutput(NamedTuple):
    """The output type of an agent, and the validator that an answer has to pass."""

    type: OutputType
    validate: Callable[[Any], Any]


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
    check_variables()
    choice = choose_model(model)
    chosen = setting("instructions", instructions)
    connected = connect_model(choice.name)
    demo = demo_instructions(connected)
    default = demo or (coding_prompt(choice.name.partition(":")[0]) if files else _INSTRUCTIONS)
    return AgentSetup(
        choice=choice,
        model=connected,
        tools=(
            *(() if demo is None else demo_tools(files=files)),
            *(web_tools() if files and demo is None else ()),
            *map(load_tool, tools),
            *toolsets(servers or {}),
        ),
        files=files,
        instructions=default if chosen is None else chosen,
        address=configured_store(store),
        has_coding_prompt=files and demo is None and chosen is None,
    )


def web_tools() -> tuple[ToolDefinition | ProviderTool, ...]:
    """The tools for the web that the configuration allows: Bartack's own to read pages, and the provider's to search,
    which is left out of requests to providers that have none."""
    web = settings_file().settings.web
    search = (WebSearch(optional=True),) if web.search else ()
    return (*((fetch_tool(hosts=web.hosts),) if web.fetch else ()), *search)


def new_agent(
    setup: AgentSetup,
    store: SessionStore,
    *,
    approver: Approver | None,
    approval: ApprovalPolicy | None = None,
    telemetry: TelemetrySink | None = None,
    runtime: Runtime | None = None,
    output: SchemaOutput | None = None,
    instructions: Callable[[PromptContext[Any]], str] | None = None,
    servers: Sequence[McpServer] = (),
    hooks: Sequence[Hooks] = (),
) -> Agent:
    """An agent with this set-up on its open store; its files are those of the current directory, or of `runtime`.

    `instructions` replace those of the set-up with some that depend on the model. `servers` are MCP servers beside
    those of the set-up.
    """
    answers: dict[str, Any] = (
        {} if output is None else {"output_type": output.type, "output_validator": output.validate}
    )
    if setup.files and runtime is None:
        runtime = LocalRuntime(current_directory(), forbidden=private_files(store), **command_options())
    return Agent(
        setup.model,
        tools=(*setup.tools_for_files(), *setup.tools, *servers),
        instructions=instructions or setup.instructions,
        store=store,
        runtime=runtime,
        approver=approver,
        approval=approval,
        config=AgentConfig(tools=ToolsConfig(approval=settings_file().settings.approval or None)),
        fallback_models=tuple(map(connect_model, settings_file().settings.fallback)),
        retry=RetryPolicy(max_busy_retries=settings_file().settings.busy_retries),
        lease_s=LEASE_S,
        name=OWN_AGENT,
        telemetry=telemetry,
        hooks=hooks,
        **answers,
    )


def command_options() -> CommandOptions:
    """How the configuration says that commands run."""
    commands = settings_file().settings.commands
    return CommandOptions(
        variables=commands.variables,
        timeout_ms=int(commands.timeout_s * 1000),
        max_timeout_ms=int(commands.max_timeout_s * 1000),
        sandbox=commands.sandbox,
        image=commands.image,
        network=commands.network,
        writable=[Path(path) for path in commands.writable],
    )


def private_files(store: SessionStore) -> Sequence[Path]:
    """Files the tools must not touch even inside the directory: sessions, prompt history, settings, tokens."""
    sessions = () if store.path is None else (store.path,)
    names = ("mcp-tokens.json", "trusted.json")
    settings = config_path(), servers_path(), permissions_folder(), *map(config_path().with_name, names)
    return (*sessions, default_path().parent, *settings)


# -- the model


def connect_model(name: str) -> ProviderModel | LocalModel:
    """The named model, with [model_settings] of the configuration file applied. Prompts are cached unless those say
    ``cache_config = false``. Errors carry a hint."""
    settings = dict(settings_file().settings.model_settings)
    caches = settings.pop(_CACHE_SETTING, True)
    _check_settings(settings)
    try:
        model: ProviderModel | LocalModel = connect(name, cache_config=_cache_config(caches), **settings)
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


async def close_model(model: Model) -> None:
    """Close the connections of a model that has some."""
    close = getattr(model, "aclose", None)
    if close is not None:
        await close()


def _cache_config(value: Any) -> CacheConfig | None:
    if isinstance(value, bool):
        return CacheConfig() if value else None
    try:
        return msgspec.convert(value, CacheConfig)
    except msgspec.ValidationError as error:
        problem = f"[model_settings] {_CACHE_SETTING} must be true, false or a table, got {value!r}."
        hint = 'Example: cache_config = {strategy = "auto"}'
        raise with_hint(BartackError(problem, code=ErrorCode.INVALID_CONFIG), hint) from error


def _check_settings(settings: Mapping[str, Any]) -> None:
    """The file may set how a model answers, but not credentials, addresses or transport."""
    parameters = signature(connect).parameters.values()
    reserved = {parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD} | {
        "model_id",
        "engine",
    }
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
    return _as_tool(name, _load(name, _tool_error))


def load_agents(name: str) -> dict[str, Agent[Any, Any]]:
    """The agents at ``module:name``, by their names: an agent, several, or a mapping of names to agents.

    Raises `PartValidationError` if there are none.
    """
    value = _load(name, _agents_error)
    if isinstance(value, Mapping):
        agents = dict(value)
    else:
        listed = [value] if isinstance(value, Agent) else list(value) if isinstance(value, Sequence) else []
        agents = {agent.name or "agent" if isinstance(agent, Agent) else "": agent for agent in listed}
        if len(agents) < len(listed):
            raise _agents_error(name, "two agents have the same name")
    if not agents or not all(isinstance(agent, Agent) and isinstance(key, str) for key, agent in agents.items()):
        raise _agents_error(name, f"it must be an agent, a list of agents or a dict, got {type(value).__name__}")
    return agents


def _load(name: str, invalid: Callable[[str, str], PartValidationError]) -> Any:
    """The value at ``module:name``."""
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise invalid(name, "it must have the form module:name")
    directory = str(current_directory())
    sys.path.insert(0, directory)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        is_itself = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        problem = "there is no module" if is_itself else "it imports the missing module"
        raise invalid(name, f"{problem} {error.name}") from error
    except Exception as error:  # importing runs arbitrary code, which may raise anything
        raise invalid(name, f"it cannot be imported: {type(error).__name__}: {error}".rstrip(".")) from error
    finally:
        sys.path.remove(directory)
        if directory not in sys.path:
            sys.path.append(directory)  # last, so that no file there shadows an installed library
    if not hasattr(module, attribute):
        raise invalid(name, f"{module_name} has no attribute {attribute!r}")
    return getattr(module, attribute)


def _as_tool(name: str, value: Any) -> ToolDefinition:
    if isinstance(value, ToolDefinition):
        return value
    if not callable(value) or isinstance(value, type):
        raise _tool_error(name, f"it must be a function, got {type(value).__name__}")
    try:
        return tool(value)
    except TypeError as error:
        raise _tool_error(name, f"it cannot be used as a tool: {error}") from error


def _tool_error(name: str, problem: str) -> PartValidationError:
    error = PartValidationError(f"Invalid --tool {name!r}: {problem}.", path="--tool", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Example: --tool my_tools:weather uses the function weather in my_tools.py.")


def _agents_error(name: str, problem: str) -> PartValidationError:
    text = f"Invalid --agents {name!r}: {problem}."
    error = PartValidationError(text, path="--agents", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Example: --agents my_agents:agents uses the list agents in my_agents.py.")


# -- the demo model

# Short, because the model has half a billion parameters; with the facts that first questions are about.
_DEMO_INSTRUCTIONS = """\
You are {title}, a small demo model by {publisher}, in Bartack. You run on this machine; nothing is sent anywhere. \
Answer in one to four short sentences, or with one short code block. \
If you do not know, say that you do not know. You have no internet and do not know the date.
About Bartack: it is a terminal program and a Python library for LLM agents. It works with Anthropic, OpenAI, Google, \
Ollama and other providers, stores conversations as sessions, and asks before it changes files. It is free (MIT \
licence) and needs Python 3.11 or later. /help lists the commands, /model switches the model, /undo takes back the \
last turn, /quit exits. To get a better model, set ANTHROPIC_API_KEY or OPENAI_API_KEY. In a \
clone, `make run` installs and starts it, `make test` tests it.
You can read, list and search the files here, make small changes, calculate, count lines, and answer short questions."""


def demo_instructions(model: Model) -> str | None:
    """The instructions for a demo model; None for any other model."""
    downloadable = model.weights.known if isinstance(model, LocalModel) else None
    if downloadable is None or not downloadable.is_demo:
        return None
    return _DEMO_INSTRUCTIONS.format(title=downloadable.title, publisher=downloadable.publisher)


def demo_notice(model: Model) -> str | None:
    """What to expect of a demo model, and how to use a real one; None for any other model."""
    if demo_instructions(model) is None:
        return None
    name = model.model_info().name or model.model_info().model_id
    return (
        f"This is a small demo model ({name}). It is often wrong. For a real one, set ANTHROPIC_API_KEY, OPENAI_API_KEY"
        " or another provider's key, or use --model ollama:NAME; 'bartack init' helps."
    )


# -- output that matches a schema


def load_output_schema(path: Path) -> SchemaOutput:
    """The output that the schema in this file describes. Raises `BartackError` with a hint."""
    try:
        schema = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise _schema_error(path, f"cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _schema_error(path, f"is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise _schema_error(path, "must contain a JSON object")
    is_object = schema.get("type") == "object"
    output = OutputType(Any, schema)
    try:
        check = argument_check(output.schema)
    except BartackError as error:
        raise _schema_error(path, f"is not a usable JSON Schema: {error.message}") from error

    def validate(value: Any) -> Any:
        check(value if is_object else {"value": value})
        return value

    return SchemaOutput(output, validate)


def _schema_error(path: Path, problem: str) -> BartackError:
    error = BartackError(f"The output schema {path} {problem.rstrip('.')}.", code=ErrorCode.INVALID_CONFIG)
    return with_hint(
        error, 'Example: {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
    )
