"""The options of an agent and of a run, each declared once: its type, its default, what it accepts and what it means.

Everything else follows from the declaration: the keyword arguments that type checkers know (``Unpack``), the signature
that `help` shows (`with_options`), the value of an option that is left out (`complete_options`), and one clear error
for a value that cannot be used (`check_options`). Python does not check types, so a wrong value would otherwise fail
much later, in words that do not name it. `bartack.agent.settings` says which setting wins.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, NoneType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, get_args

from bartack.agent.hooks import Hooks
from bartack.agent.settings import Instructions, RetryPolicy, Summarise
from bartack.agent.tracing import TelemetrySink
from bartack.environment import Environment
from bartack.events import Output
from bartack.models.model import Model
from bartack.nouns.config import AgentConfig, LoopConfig
from bartack.nouns.errors import ConfigError, nearest_name
from bartack.nouns.hosted_tools import ProviderTool
from bartack.store.session_store import SessionStore
from bartack.tools import ApprovalPolicy, Approver, Runtime, ToolDefinition, Tools, Toolset
from bartack.tools.tool_context import Deps

__all__ = ["AgentOptions", "RunSettings", "check_options", "check_settings", "complete_options", "with_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Option(NamedTuple):
    """The default of an option, and what it accepts, as a function and in words."""

    default: Any
    accepts: Callable[[Any], bool]
    expected: str
    is_optional: bool = True  # None selects the default


def _instance(*types: type[Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and not (isinstance(value, bool) and bool not in types)


def _object(*methods: str) -> Callable[[Any], bool]:
    """An object with these methods; not its class."""
    return lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _is_list(value: Any) -> bool:
    is_one = isinstance(value, str | bytes | Mapping | ToolDefinition | ProviderTool | Toolset | type)
    return isinstance(value, Iterable) and not is_one


def _is_instructions(value: Any) -> bool:
    return isinstance(value, str) or (callable(value) and not isinstance(value, type) and _takes_one(value))


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether the function can be called with one argument; True if that is not known."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function without a signature, for example one written in C
        return True
    return True


def _is_policy(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not inspect.iscoroutinefunction(value)


_is_model = _object("stream", "get_config", "model_info")
_MODEL = "a name such as 'anthropic:claude-sonnet-4-6' or a Model"


def _positive(*types: type[Any]) -> Callable[[Any], bool]:
    is_number = _instance(*types)
    return lambda value: is_number(value) and value > 0


def _is_models(value: Any) -> bool:
    return _is_list(value) and all(isinstance(model, str) or _is_model(model) for model in value)


def _is_store(value: Any) -> bool:
    return isinstance(value, str | Path) or _object("append", "load", "claim")(value)


_TOOL_LIST = Option((), _is_list, "a list of tools, functions and toolsets", is_optional=False)
_MODEL_OR_NAME = Option(None, lambda value: isinstance(value, str) or _is_model(value), _MODEL)
_INSTRUCTIONS = Option(
    None, _is_instructions, "a string, or a function that takes the PromptContext and returns a string"
)
_APPROVER = Option(None, _object("decide"), "an object with a coroutine method decide(request)")
_HOOKS = Option(
    (),
    lambda value: isinstance(value, Hooks) or (_is_list(value) and all(isinstance(item, Hooks) for item in value)),
    "Hooks(before_model=..., after_model=..., before_tool=..., after_tool=...) with coroutine functions, or a list",
    is_optional=False,
)
_ANYTHING = Option(None, lambda _: True, "a value")


class AgentOptions(TypedDict, Generic[Deps, Output], total=False):
    """The options of `Agent`, without its model and what its output is made of."""

    tools: Annotated[Tools, _TOOL_LIST]
    """Functions, tools, registries and toolsets that the model may use."""
    tool_search: Annotated[bool, Option(False, _instance(bool), "True or False", is_optional=False)]
    """Show the model only the tools that it searches for, for agents with hundreds of them. Tools with
    ``defer_loading=False`` are always shown."""
    instructions: Annotated[Instructions[Deps] | None, _INSTRUCTIONS]
    """A string, or a function that returns one for each run."""
    deps_type: Annotated[type[Deps] | None, _ANYTHING]
    """The type of the `deps` that runs pass to tools and instructions, for type checkers. A run without `deps` is
    refused."""
    output_validator: Annotated[
        Callable[[Output], Output | Awaitable[Output]] | None, Option(None, callable, "a function")
    ]
    """Checks or changes the output. If it raises `TryAgain`, the model answers again."""
    output_mode: Annotated[
        Literal["native", "tool", "prompt"] | None,
        Option(None, lambda value: value in ("native", "tool", "prompt"), "'native', 'tool' or 'prompt'"),
    ]
    """How the model gets the schema of the output: with the provider's own setting (native), as the parameters of a
    tool that it calls to answer (tool), or in the instructions (prompt). By default with the setting, and also in the
    instructions where the provider does not enforce it."""
    store: Annotated[
        SessionStore | str | Path | None, Option(None, _is_store, "the address of a store or a SessionStore")
    ]
    """A store or its address. Without it, named sessions are stored in the user's data folder and others in memory."""
    runtime: Annotated[Runtime | None, Option(None, _object("connect", "close", "get_hints"), "a Runtime")]
    """Where tools for files and commands work."""
    approver: Annotated[Approver | None, _APPROVER]
    """Decides about the calls that need approval. Without it, a run pauses for them."""
    approval: Annotated[ApprovalPolicy | None, Option(None, _is_policy, "a regular function (call, definition)")]
    """Which calls need approval; by default those that their tools say."""
    approval_timeout_ms: Annotated[int | None, Option(None, _positive(int), "a positive number of milliseconds")]
    """How long a question stays open. Then the call is denied."""
    fallback_models: Annotated[
        Sequence[str | Model], Option((), _is_models, f"a list, each item {_MODEL}", is_optional=False)
    ]
    """Models to use, in this order, when the model fails."""
    config: Annotated[AgentConfig, Option(AgentConfig(), _instance(AgentConfig), "an AgentConfig", is_optional=False)]
    """The settings that can be stored in a file."""
    retry: Annotated[RetryPolicy | None, Option(None, _instance(RetryPolicy), "a RetryPolicy")]
    """When a failed model call is retried; by default as often as ``config.loop.max_retries``."""
    hooks: Annotated[Hooks | Sequence[Hooks], _HOOKS]
    """Code that runs before and after model calls and tools, and may change or stop them; several in their order."""
    summarise: Annotated[
        Summarise | None, Option(None, callable, "a coroutine function that takes messages and returns a string")
    ]
    """Writes the summaries for compaction instead of the model."""
    environment: Annotated[Environment | None, Option(None, _instance(Environment), "an Environment")]
    """The clock and the source of ids, for tests."""
    name: Annotated[str | None, Option(None, _instance(str), "a string")]
    """The name that its runs are recorded under; workers and handoffs find the agent by it."""
    lease_s: Annotated[float, Option(30.0, _positive(int, float), "a positive number of seconds", is_optional=False)]
    """How long a session stays locked if this process dies."""
    max_repeats: Annotated[int | None, Option(5, _positive(int), "a positive number")]
    """How often in a row a model may make the same calls with the same results; None for any number."""
    telemetry: Annotated[TelemetrySink | None, Option(None, _object("start_run"), "a bartack.telemetry.Telemetry")]
    """Receives spans and metrics. An agent without one that runs as a tool uses that of the calling agent."""


class RunSettings(TypedDict, Generic[Deps], total=False):
    """The settings of one run, all of them optional."""

    deps: Annotated[Deps, _ANYTHING]
    """What its tools get as `ToolContext.deps`. It is passed along and never stored."""
    model: Annotated[str | Model | None, _MODEL_OR_NAME]
    """Used instead of the agent's own."""
    instructions: Annotated[Instructions[Deps], _INSTRUCTIONS]
    """Added to those of the agent."""
    tools: Annotated[Tools, _TOOL_LIST]
    """Added to those of the agent."""
    model_settings: Annotated[
        Mapping[str, Any], Option(None, _instance(Mapping), 'a mapping such as {"temperature": 0}')
    ]
    """Settings for its model calls, such as ``{"temperature": 0}``."""
    limits: Annotated[LoopConfig, Option(None, _instance(LoopConfig), "a LoopConfig")]
    """Used instead of ``config.loop`` of the agent."""
    approver: Annotated[Approver | None, _APPROVER]
    """Used instead of the agent's own."""
    hooks: Annotated[Hooks | Sequence[Hooks], _HOOKS]
    """Called after those of the agent."""
    metadata: Annotated[Mapping[str, Any], Option(None, _instance(Mapping), "a mapping")]
    """Your own data, stored at the start of the run."""
    takeover: Annotated[bool, Option(False, _instance(bool), "True or False", is_optional=False)]
    """Take the session from a process that died before its lease expired."""


def _declared(options: Any) -> dict[str, Option]:
    return {name: hint.__metadata__[0] for name, hint in options.__annotations__.items()}


_AGENT_OPTIONS = _declared(AgentOptions)
_CHECKED = {
    **_AGENT_OPTIONS,
    **_declared(RunSettings),
    "output_function": Option(None, callable, "a function"),
    "session": Option(None, lambda value: isinstance(value, str) and value != "", "the name of a session"),
    "head": Option(None, _instance(str), "the id of an entry"),
    "history": Option((), _is_list, "a list of messages", is_optional=False),
}


def with_options(function: Function) -> Function:
    """Show the options of an agent in the signature of a function that takes them as ``**options``."""
    own = inspect.signature(function)
    named = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    hints = AgentOptions.__annotations__
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=get_args(hints[name])[0]
        )
        for name, option in _AGENT_OPTIONS.items()
    ]
    function.__signature__ = own.replace(parameters=[*named, *options])  # type: ignore[attr-defined]
    return function


def complete_options(options: "AgentOptions[Any, Any]") -> "AgentOptions[Any, Any]":
    """All options of an agent: those that are passed, after checking them, and the defaults of the others."""
    for name in sorted(options.keys() - _AGENT_OPTIONS.keys()):
        raise _unknown_error("option of Agent", name, ("model", "output_type", "output_function", *_AGENT_OPTIONS))
    check_options(options)
    defaults: Any = {name: option.default for name, option in _AGENT_OPTIONS.items()}
    return {**defaults, **options}


def check_options(options: Mapping[str, Any]) -> None:
    """Check options and arguments; `ConfigError` for a wrong value."""
    for name, value in options.items():
        option = _CHECKED[name]
        if (value is None and option.is_optional) or option.accepts(value):
            continue
        raise _invalid_error(name, f"{name} must be {option.expected}, not {_described(value)}.")


def check_settings(run_settings: Mapping[str, Any], deps_type: Any) -> None:
    """Check the settings of a run of an agent whose dependencies are of this type; raises as `check_options` does."""
    for name in sorted(run_settings.keys() - RunSettings.__annotations__.keys()):
        raise _unknown_error("run setting", name, (*_RUN_ARGUMENTS, *RunSettings.__annotations__))
    check_options(run_settings)
    if run_settings.get("deps") is None and _needs_value(deps_type):
        name = getattr(deps_type, "__name__", deps_type)
        raise _invalid_error(
            "deps", f"The agent needs dependencies of type {name} (deps_type); pass deps=... to the run."
        )


# What a run takes besides its settings.
_RUN_ARGUMENTS = ("session", "history", "head", "snapshots")


def _unknown_error(what: str, name: str, names: Iterable[str]) -> ConfigError:
    nearest = nearest_name(name, names)
    hint = "" if nearest is None else f" Did you mean {nearest!r}?"
    return _invalid_error(name, f"Unknown {what} {name!r}.{hint} Known: {', '.join(names)}.")


def _needs_value(deps_type: Any) -> bool:
    may_be_none = (None, NoneType, object, Any)
    return deps_type not in may_be_none and NoneType not in get_args(deps_type)


def _invalid_error(name: str, problem: str) -> ConfigError:
    return ConfigError(problem, path=f"$.{name}")


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}"
    if isinstance(value, ToolDefinition):
        return f"the tool {value.name!r}; write [{value.name}]"
    if isinstance(value, str | int | float | None):
        return repr(value)
    return f"a value of type {type(value).__name__}"
