"""The agent of `bartack chat` and `bartack run`: model, tools, folder and store, as the settings say."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from bartack.agent import Agent
from bartack.cli.settings import config_path, first_said, settings_file
from bartack.cli.store_access import store_hint
from bartack.cli.store_place import place_of_store
from bartack.models.by_name import connect
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig, ToolsConfig
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError, StoreError
from bartack.store import SessionStore, default_path
from bartack.tools import ApprovalPolicy, Approver, LocalRuntime, ToolDefinition, file_tools, tool

__all__ = ["LEASE_S", "SetupFault", "ToolOption", "connected", "new_agent", "setting_up", "store_place", "tool_named"]

LEASE_S = 10.0  # after a crash the session can be continued this much later
_LOCAL_NUMBERS = frozenset(("context_window", "threads", "tool_rounds"))  # of bartack.models.LocalModel
_NAMES = "--model, BARTACK_MODEL and the configuration file take vendor:model; bartack doctor checks"
_INSTRUCTIONS = "You are a helpful assistant in a terminal. Answer in Markdown, and briefly."

ToolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tool", metavar="MODULE:NAME", help="A function, or what @bartack.tool made of one. May be repeated."
    ),
]


class SetupFault(BartackError):
    """What the words or the settings ask for cannot be; the command ends with this exit status."""

    exit_status = 2


@contextmanager
def setting_up() -> Iterator[None]:
    """Errors of Bartack inside become a `SetupFault` with the same sentence and hint."""
    try:
        yield
    except BartackError as error:
        fault = SetupFault(error.message, code=error.code)
        for note in getattr(error, "__notes__", ()):
            fault.add_note(note)
        raise fault from error


def connected(name: str) -> ProviderModel | LocalModel:
    """The model of this name, with the settings of the file; an error carries a hint."""
    settings = settings_file().settings.model_settings
    _check_settings(settings)
    try:
        made: ProviderModel | LocalModel = connect(name, **settings)
    except BartackError as error:
        match error.code:
            case ErrorCode.AUTHENTICATION | ErrorCode.MISSING_CREDENTIALS:
                error.add_note("or talk to the local model, which needs no key: --model local")
            case ErrorCode.INVALID_CONFIG:
                wrong = _wrong_setting(error, settings)
                told = f"{wrong} stands in [model_settings] of {config_path()}" if wrong is not None else _NAMES
                error.add_note(told)
            case _:
                pass
        raise
    return made


def _check_settings(settings: Mapping[str, Any]) -> None:
    """The file may say how a model is asked; who asks, where and by what way is not for it to say."""
    parameters = signature(connect).parameters.values()
    kept = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD} | {"model_id", "engine"}
    for name, value in settings.items():
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if name in kept:
            what = "cannot be set"
        elif name in _LOCAL_NUMBERS and not is_number:
            what = f"is a number above 0, not {value!r}"
        elif name == "extra" and not isinstance(value, dict):
            what = f"is a table, not {value!r}"
        else:
            continue
        error = BartackError(f"[model_settings] {name} {what}", code=ErrorCode.INVALID_CONFIG)
        error.add_note(
            f"{config_path()} may say fields of ModelConfig and a provider's own settings there; keys and addresses "
            "are variables of the environment"
        )
        raise error


def _wrong_setting(error: BartackError, settings: Mapping[str, Any]) -> str | None:
    """The setting that is to blame: the path of the error begins with it."""
    path = error.path if isinstance(error, PartValidationError) else ""
    first = path.removeprefix("$.").partition(".")[0].partition("[")[0]
    return next((name for name in settings if first in (name, _camel(name))), None)


def _camel(name: str) -> str:
    """A field as paths of errors name it."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def new_agent(
    model: Model,
    *,
    store: SessionStore,
    place: str,
    instructions: str | None,
    tools: Iterable[ToolDefinition] = (),
    files: bool,
    approver: Approver | None,
    approval: ApprovalPolicy | None = None,
) -> Agent:
    """An agent that keeps its sessions in `store`, which is at `place`. With `files` it works in the current directory,
    with the ready tools."""
    settings = settings_file().settings
    said = first_said(instructions, "instructions")
    ready = file_tools() if files else ()
    return Agent(
        model,
        tools=(*ready, *tools),
        instructions=_INSTRUCTIONS if said is None else said,
        store=store,
        runtime=LocalRuntime(Path.cwd(), forbidden=_private_files(place)) if files else None,
        approver=approver,
        approval=approval,
        config=AgentConfig(tools=ToolsConfig(approval=settings.approval or None)),
        lease_s=LEASE_S,
        name="bartack",
    )


def store_place(said: str | None) -> str:
    """Where the sessions are: as the flag, the environment or the file says, else in the user's data folder."""
    place = first_said(said, "store")
    try:
        return place_of_store(place).url
    except StoreError as error:
        hint = store_hint(error.code, place)
        if hint is not None:
            error.add_note(hint)
        raise


def _private_files(place: str) -> Sequence[Path]:
    """What the tools must not touch, should it lie in the folder: sessions, the history of prompts, the settings."""
    scheme, _, rest = place.partition(":")
    store = (Path(rest),) if scheme in {"jsonl", "sqlite"} else ()
    return (*store, default_path().parent, config_path())


def tool_named(name: str) -> ToolDefinition:
    """The tool that ``module:name`` means; modules of the current directory are found, also later by the tool."""
    module_name, found, attribute = name.partition(":")
    if not (found and module_name and attribute):
        raise _wrong(name, "is not module:name")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        is_it = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        what = "names a module that is not there" if is_it else "needs a module that is not there"
        raise _wrong(name, f"{what}: {error.name}") from error
    except Exception as error:  # anyone's code runs here, and may fail in any way
        raise _wrong(name, f"cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)  # last, so that no file there takes the place of a library
    if not hasattr(module, attribute):
        raise _wrong(name, f"names nothing in {module_name}")
    return _as_tool(name, getattr(module, attribute))


def _as_tool(name: str, value: Any) -> ToolDefinition:
    if isinstance(value, ToolDefinition):
        return value
    if not callable(value) or isinstance(value, type):
        raise _wrong(name, f"is a {type(value).__name__}, and not a function")
    function: Callable[..., Any] = value
    try:
        return tool(function)
    except TypeError as error:
        raise _wrong(name, f"cannot be a tool: {error}") from error


def _wrong(name: str, what: str) -> PartValidationError:
    error = PartValidationError(f"--tool {name!r} {what}", path="--tool", code=ErrorCode.INVALID_CONFIG)
    error.add_note("for example --tool my_tools:weather, for the function weather in my_tools.py")
    return error
