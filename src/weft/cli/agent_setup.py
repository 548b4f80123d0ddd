"""The agent of `weft chat` and `weft run`: model, tools, folder and store, as the settings say."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.agent import Agent
from weft.cli.settings import first_said, settings_file
from weft.cli.store_place import place_of_store
from weft.config import AgentConfig, ToolsConfig
from weft.errors import ErrorCode, PartValidationError, WeftError
from weft.models.connect import model as connect
from weft.models.model import Model
from weft.store import SessionStore
from weft.tools import ApprovalPolicy, Approver, LocalRuntime, ToolDefinition, file_tools, tool

__all__ = ["LEASE_S", "SetupFault", "ToolOption", "connected", "new_agent", "setting_up", "store_place", "tool_named"]

LEASE_S = 10.0  # after a crash the session can be continued this much later
_INSTRUCTIONS = "You are a helpful assistant in a terminal. Answer in Markdown, and briefly."

ToolOption = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="MODULE:NAME", help="A function, or what @weft.tool made of one. May be repeated."),
]


class SetupFault(WeftError):
    """What the words or the settings ask for cannot be; the command ends with this exit status."""

    exit_status = 2


@contextmanager
def setting_up() -> Iterator[None]:
    """Errors of Weft inside become a `SetupFault` with the same sentence and hint."""
    try:
        yield
    except WeftError as error:
        fault = SetupFault(error.message, code=error.code)
        for note in getattr(error, "__notes__", ()):
            fault.add_note(note)
        raise fault from error


def connected(name: str) -> Model:
    """The model of this name, with the settings of the file; an error carries a hint."""
    try:
        made: Model = connect(name, **settings_file().settings.model_settings)
    except WeftError as error:
        match error.code:
            case ErrorCode.AUTHENTICATION:
                error.add_note("or talk to the local model, which needs no key: --model local")
            case ErrorCode.INVALID_CONFIG:
                error.add_note("--model, WEFT_MODEL and the configuration file take vendor:model; weft doctor checks")
            case _:
                pass
        raise
    return made


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
    ready = file_tools() if files else ()
    return Agent(
        model,
        tools=(*ready, *tools),
        instructions=instructions or settings.instructions or _INSTRUCTIONS,
        store=store,
        runtime=LocalRuntime(Path.cwd(), forbidden=_store_files(place)) if files else None,
        approver=approver,
        approval=approval,
        config=AgentConfig(tools=ToolsConfig(approval=settings.approval or None)),
        lease_s=LEASE_S,
        name="weft",
    )


def store_place(said: str | None) -> str:
    """Where the sessions are: as the flag, the environment or the file says, else in the user's data folder."""
    return place_of_store(first_said(said, "store")).url


def _store_files(place: str) -> Sequence[Path]:
    """What the tools must not touch, should it lie in the folder."""
    scheme, _, rest = place.partition(":")
    return (Path(rest),) if scheme in {"jsonl", "sqlite"} else ()


def tool_named(name: str) -> ToolDefinition:
    """The tool that ``module:name`` means; modules of the current directory are found."""
    module_name, found, attribute = name.partition(":")
    if not (found and module_name and attribute):
        raise _wrong(name, "is not module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        is_it = error.name is not None and f"{module_name}.".startswith(f"{error.name}.")
        what = "names a module that is not there" if is_it else "needs a module that is not there"
        raise _wrong(name, f"{what}: {error.name}") from error
    except Exception as error:  # anyone's code runs here, and may fail in any way
        raise _wrong(name, f"cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
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
