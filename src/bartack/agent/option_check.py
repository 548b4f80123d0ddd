"""`check_options`: what is passed to an agent or a run -> one clear error for a value that cannot be used.

Python does not check types, so a wrong value would fail somewhere else, much later and in words that do not name it.
Each option has a row in a table: what it accepts, and how an error describes that.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, NoneType
from typing import Any, NamedTuple, get_args

from bartack.agent.settings import Hooks, RetryPolicy, RunSettings
from bartack.environment import Environment
from bartack.nouns.config import AgentConfig, LoopConfig
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.tools import ToolDefinition, Toolset

__all__ = ["check_options", "check_settings"]


class _Rule(NamedTuple):
    accepts: Callable[[Any], bool]
    expected: str
    is_optional: bool = True  # None selects the default


def _instance(*types: type[Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and not (isinstance(value, bool) and bool not in types)


def _object(*methods: str) -> Callable[[Any], bool]:
    """An object with these methods; not its class."""
    return lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _is_list(value: Any) -> bool:
    is_one = isinstance(value, str | bytes | Mapping | ToolDefinition | Toolset | type)
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
_TOOLS = "a list of tools, functions and toolsets"


def _positive(*types: type[Any]) -> Callable[[Any], bool]:
    is_number = _instance(*types)
    return lambda value: is_number(value) and value > 0


_RULES: dict[str, _Rule] = {
    "model": _Rule(lambda value: isinstance(value, str) or _is_model(value), _MODEL),
    "fallback_models": _Rule(
        lambda value: _is_list(value) and all(isinstance(one, str) or _is_model(one) for one in value),
        f"a list, each item {_MODEL}",
        is_optional=False,
    ),
    "tools": _Rule(_is_list, _TOOLS, is_optional=False),
    "instructions": _Rule(
        _is_instructions, "a string, or a function that takes the PromptContext and returns a string"
    ),
    "output_function": _Rule(callable, "a function"),
    "output_validator": _Rule(callable, "a function"),
    "store": _Rule(
        lambda value: isinstance(value, str | Path) or _object("append", "load", "claim")(value),
        "the address of a store or a SessionStore",
    ),
    "runtime": _Rule(_object("connect", "close", "get_hints"), "a Runtime"),
    "approver": _Rule(_object("decide"), "an object with a coroutine method decide(request)"),
    "approval": _Rule(_is_policy, "a regular function (call, definition)"),
    "approval_timeout_ms": _Rule(_positive(int), "a positive number of milliseconds"),
    "config": _Rule(_instance(AgentConfig), "an AgentConfig", is_optional=False),
    "retry": _Rule(_instance(RetryPolicy), "a RetryPolicy"),
    "hooks": _Rule(
        _instance(Hooks),
        "Hooks(before_model=..., after_model=..., before_tool=..., after_tool=...) with coroutine functions",
        is_optional=False,
    ),
    "summarise": _Rule(callable, "a coroutine function that takes messages and returns a string"),
    "environment": _Rule(_instance(Environment), "an Environment"),
    "name": _Rule(_instance(str), "a string"),
    "lease_s": _Rule(_positive(int, float), "a positive number of seconds", is_optional=False),
    "max_repeats": _Rule(_positive(int), "a positive number"),
    "telemetry": _Rule(_object("start_run"), "a bartack.telemetry.Telemetry"),
    # of a run
    "session": _Rule(lambda value: isinstance(value, str) and value != "", "the name of a session"),
    "head": _Rule(_instance(str), "the id of an entry"),
    "history": _Rule(_is_list, "a list of messages", is_optional=False),
    "model_settings": _Rule(_instance(Mapping), 'a mapping such as {"temperature": 0}'),
    "limits": _Rule(_instance(LoopConfig), "a LoopConfig"),
    "metadata": _Rule(_instance(Mapping), "a mapping"),
    "takeover": _Rule(_instance(bool), "True or False", is_optional=False),
}


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options that have a rule; `PartValidationError` with the code ``invalid_config`` for a wrong value."""
    for name, value in options.items():
        rule = _RULES.get(name)
        if rule is None or (value is None and rule.is_optional) or rule.accepts(value):
            continue
        raise _invalid(name, f"{name} must be {rule.expected}, not {_described(value)}.")


def check_settings(given: Mapping[str, Any], deps_type: Any) -> None:
    """Check the settings of a run of an agent whose dependencies are of this type; raises as `check_options` does."""
    for name in given.keys() - RunSettings.__annotations__.keys():
        raise _invalid(name, f"Unknown run setting {name!r}; known settings: {', '.join(RunSettings.__annotations__)}.")
    check_options(given)
    if given.get("deps") is None and _needs_value(deps_type):
        name = getattr(deps_type, "__name__", deps_type)
        raise _invalid("deps", f"The agent needs dependencies of type {name} (deps_type); pass deps=... to the run.")


def _needs_value(deps_type: Any) -> bool:
    may_be_none = (None, NoneType, object, Any)
    return deps_type not in may_be_none and NoneType not in get_args(deps_type)


def _invalid(name: str, problem: str) -> PartValidationError:
    return PartValidationError(problem, path=f"$.{name}", code=ErrorCode.INVALID_CONFIG)


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
