"""Values that cannot be used as an option of an agent or a run: one error that names the option."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from bartack import Agent, AgentConfig, BartackError, ErrorCode, LoopConfig, RetryPolicy, handoff, tool
from bartack.agent import Hooks
from bartack.agent.options import AgentOptions, RunSettings
from bartack.agent.settings import AgentSettings
from bartack.models import ScriptedModel
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.store import MemoryStore
from bartack.tools import ToolSettings
from tests.agent.kit import make, weather


def no_parameter() -> str:
    return "Be brief."


def nothing(_: Any) -> None:
    return None


async def nothing_async(_: Any) -> None:
    return None


MODEL: Any = ScriptedModel(["Hi."])
WRONG: dict[str, tuple[Any, str]] = {
    "a bare tool": ({"tools": weather}, "tools must be a list .*, not the tool 'weather'; write \\[weather\\]"),
    "a bare function": ({"tools": no_parameter}, "tools must be a list .*, not the function no_parameter"),
    "no tools": ({"tools": None}, "tools must be a list .*, not None"),
    "a number": ({"instructions": 3}, "instructions must be a string, or a function .*, not 3"),
    "no parameter": ({"instructions": no_parameter}, "instructions must be .* takes the PromptContext"),
    "a retry count": ({"retry": 3}, "retry must be a RetryPolicy, not 3"),
    "hooks as a dict": (
        {"hooks": {}},
        "hooks must be Hooks\\(before_model=.* with coroutine functions, or a list, not a",
    ),
    "a hook alone": ({"hooks": nothing}, "hooks must be Hooks\\(.*, not the function nothing"),
    "config as a dict": ({"config": {}}, "config must be an AgentConfig, not a value of type dict"),
    "an approver class": ({"approver": MemoryStore}, "approver must be an object .* not the class MemoryStore"),
    "a store number": ({"store": 3}, "store must be the address of a store or a SessionStore"),
    "a model as a list": ({"fallback_models": "a:b"}, "fallback_models must be a list"),
    "a lease of text": ({"lease_s": "long"}, "lease_s must be a positive number of seconds"),
    "repeats of truth": ({"max_repeats": True}, "max_repeats must be a positive number, not True"),
    "no lease": ({"lease_s": 0}, "lease_s must be a positive number of seconds, not 0"),
    "an async policy": (
        {"approval": nothing_async},
        "approval must be a regular function .* not the function nothing_async",
    ),
    "a negative time": ({"approval_timeout_ms": -5}, "approval_timeout_ms must be a positive number of milliseconds"),
    "a name": ({"name": 3}, "name must be a string"),
}
WRONG_IN_RUN: dict[str, tuple[Any, str]] = {
    "settings as a class": (
        {"model_settings": ModelConfig},
        'such as {"temperature": 0}, not the class ModelConfig',
    ),
    "metadata": ({"metadata": "x"}, "metadata must be a mapping, not 'x'"),
    "a bare tool": ({"tools": weather}, "tools must be a list"),
    "a session": ({"session": 3}, "session must be the name of a session"),
    "an empty session": ({"session": ""}, "session must be the name of a session, not ''"),
    "a head": ({"head": 3}, "head must be the id of an entry"),
    "limits": ({"limits": {}}, "limits must be a LoopConfig"),
    "history": ({"history": 3}, "history must be a list of messages"),
    "takeover": ({"takeover": "yes"}, "takeover must be True or False"),
    "a model": ({"model": 3}, "model must be a name such as .* or a Model, not 3"),
}


def test_every_option_of_an_agent_is_used() -> None:
    used_by_the_constructor = {"deps_type", "output_validator", "store"}
    settings = {field.name for kind in (AgentSettings, ToolSettings) for field in fields(kind)}
    assert AgentOptions.__annotations__.keys() <= settings | used_by_the_constructor


def test_every_setting_of_a_run_is_used() -> None:
    used_by_the_task = {"model", "metadata", "takeover"}
    own = inspect.signature(AgentSettings.for_run).parameters.keys() - {"self"}
    assert RunSettings.__annotations__.keys() == own | used_by_the_task


def test_the_signature_of_an_agent_shows_its_options_and_their_defaults() -> None:
    parameters = inspect.signature(Agent).parameters
    assert [*parameters] == ["model", "output_type", "output_function", *AgentOptions.__annotations__]
    assert (parameters["lease_s"].default, parameters["lease_s"].annotation) == (30.0, float)
    with pytest.raises(TypeError, match=r"Unknown option of Agent 'tool'\. Did you mean 'tools'"):
        Agent(MODEL, tool=[weather])  # type: ignore[call-overload]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_of_an_agent_is_named(case: str) -> None:
    options, problem = WRONG[case]
    with pytest.raises(PartValidationError, match=problem) as caught:
        Agent(MODEL, **options)
    assert (caught.value.code, caught.value.path) == (ErrorCode.INVALID_CONFIG, f"$.{next(iter(options))}")


@pytest.mark.parametrize("model", [3, ScriptedModel, None])
def test_a_wrong_model_is_named(model: Any) -> None:
    with pytest.raises(PartValidationError) as caught:
        Agent(model)
    assert (caught.value.code, caught.value.path) == (ErrorCode.INVALID_CONFIG, "$.model")


@pytest.mark.parametrize("case", WRONG_IN_RUN)
async def test_a_wrong_option_of_a_run_is_named_before_anything_happens(case: str) -> None:
    options, problem = WRONG_IN_RUN[case]
    agent, store, model = make(["never"])
    with pytest.raises(PartValidationError, match=problem) as caught:
        await agent.run("Go", **options)
    assert (caught.value.code, caught.value.path) == (ErrorCode.INVALID_CONFIG, f"$.{next(iter(options))}")
    assert (list(model.calls), (await store.sessions()).items) == ([], ())


WRONG_VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "retries as text": (lambda: RetryPolicy(max_retries="x"), r"max_retries: expected an integer, got text"),  # type: ignore[arg-type]
    "codes as text": (lambda: RetryPolicy(codes=frozenset({"x"})), r"\$\.retry\.codes"),  # type: ignore[arg-type]
    "negative retries": (lambda: RetryPolicy(max_retries=-1), r"max_retries: must not be negative"),
    "a hook that is a number": (lambda: Hooks(before_model=3), r"before_model hook must be a coroutine function"),  # type: ignore[arg-type]
    "a hook that is a class": (lambda: Hooks(after_tool=Hooks), r"\$\.hooks\.after_tool"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_value_is_named(case: str) -> None:
    make_it, problem = WRONG_VALUES[case]
    with pytest.raises(PartValidationError, match=problem):
        make_it()


@pytest.mark.parametrize("timeout_ms", ["long", 0, True])
def test_a_wrong_time_limit_of_a_tool_is_named(timeout_ms: Any) -> None:
    with pytest.raises(Exception, match="Tool 'no_parameter': timeout_ms must be a positive number") as caught:
        tool(timeout_ms=timeout_ms)(no_parameter)
    assert getattr(caught.value, "code", None) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", [3, "", None])
def test_a_wrong_name_of_a_tool_is_refused(name: Any) -> None:
    with pytest.raises(BartackError, match="A tool name must be a non-empty string, got") as caught:
        make([])[0].as_tool(name, "Finds things out.")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("to", ["billing", 3, None, Agent])
def test_a_handoff_is_to_an_agent(to: Any) -> None:
    with pytest.raises(BartackError, match="A handoff needs an agent or a function that returns one, not") as caught:
        handoff(to, "Handles refunds.")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("function", [nothing, nothing_async])
async def test_instructions_that_return_nothing_are_named(function: Any) -> None:
    agent, store, _ = make(["never"], instructions=function)
    with pytest.raises(PartValidationError, match="The instructions function returned None instead of a string"):
        await agent.run("Go")
    assert (await store.sessions()).items == ()


@pytest.mark.parametrize("hook", ["before_model", "after_model"])
@pytest.mark.parametrize(
    ("is_async", "problem"), [(False, "this one is not async"), (True, "returned a value of type int")]
)
async def test_a_model_hook_that_is_no_hook_is_named(hook: str, is_async: bool, problem: str) -> None:
    async def three(_: Any) -> int:
        return 3

    agent, _, _ = make(["Hi."], hooks=Hooks(**{hook: three if is_async else nothing}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"The {hook} hook must be a coroutine function .*{problem}") as caught:
        await agent.run("Go")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_valid_options_are_accepted() -> None:
    """Among them callables without a signature, generators of tools and lists that are tuples."""
    agent, _, _ = make(["Hi."], instructions=lambda context: "Be brief.", hooks=Hooks(before_model=nothing_async))
    result = await agent.run("Go", tools=iter(()), metadata={}, history=(), limits=LoopConfig())
    assert result.output == "Hi."
    Agent(MODEL, instructions=str.upper, config=AgentConfig(), fallback_models=(MODEL,))  # type: ignore[arg-type]


# -- dependencies


async def test_a_run_without_the_dependencies_of_its_agent_is_refused() -> None:
    agent, store, _ = make(["Hi.", "Hi.", "Hi."], deps_type=int)
    with pytest.raises(
        PartValidationError, match=r"needs dependencies of type int \(deps_type\); pass deps="
    ) as caught:
        await agent.run("Go", session="s")
    assert (caught.value.code, (await store.sessions()).items) == (ErrorCode.INVALID_CONFIG, ())
    assert (await agent.run("Go", session="s", deps=0)).output == "Hi."
    with pytest.raises(PartValidationError, match="deps"):
        await agent.resume("s")
    await agent.abort("s")  # needs none


@pytest.mark.parametrize("deps_type", [None, type(None), object, Any, int | None])
async def test_dependencies_that_may_be_nothing_are_optional(deps_type: Any) -> None:
    agent, _, _ = make(["Hi."], deps_type=deps_type)
    assert (await agent.run("Go")).output == "Hi."
