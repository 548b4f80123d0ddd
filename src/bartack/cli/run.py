"""`bartack run`: one prompt, one answer, for scripts.

The answer's text goes to stdout as it comes, everything else to stderr; with --json every event is a line on stdout.
Each run is a stored session. Nobody is asked anything: a tool call that needs approval is denied, with --yes approved.

Exit status: 0 the run completed, 1 it failed, 2 the words or settings are wrong, 130 and 143 it was stopped by SIGINT
or SIGTERM, 141 nobody reads the output any more.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from bartack.cli import suggestions
from bartack.cli.agent_setup import ToolOption, connected, setting_up, store_place, tool_named
from bartack.cli.attachments import MAX_BYTES, attached
from bartack.cli.command import new_app
from bartack.cli.one_run import Job, OneRun
from bartack.cli.run_output import JsonOutput, Output, OutputLost, TextOutput, note
from bartack.cli.settings import ModelOption, chosen_model
from bartack.cli.store_access import StoreOption
from bartack.nouns.deltas import Failed
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.tools import Approver, Decision

app = new_app("Ask a model once, for scripts.")

_PIPE_CLOSED = 128 + 13  # what a shell says of a program that SIGPIPE ended
_WRONG = frozenset((ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_VALUE))
_DENIED = "nobody is there to approve it; --yes approves"


@app.command()
def run(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to ask.")] = None,
    *,
    model: ModelOption = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="NAME",
            autocompletion=suggestions.sessions,
            help="Go on with this session; made if it is not there.",
        ),
    ] = None,
    goes_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the newest session of this directory.")
    ] = False,
    attach: Annotated[
        list[Path] | None,
        typer.Option("--attach", "-a", metavar="FILE", help="A picture, PDF or text to show. May be repeated."),
    ] = None,
    tool: ToolOption = None,
    tools: Annotated[
        Literal["files"] | None,
        typer.Option("--tools", help="Tools that read, write and run commands in the current directory."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve every tool call that asks.")] = False,
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", envvar="BARTACK_INSTRUCTIONS", metavar="TEXT", help="What the model is to be."),
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Ask a model and print its answer. What comes on stdin, if it is no terminal, follows the prompt.

    The answer goes to stdout, everything else to stderr. The conversation is stored as a session. Without --yes, tool
    calls that need approval are denied.

    The exit status is 0 for an answer, 1 for a failure, 2 for wrong words or settings, 130 after Ctrl-C.
    """
    output = JsonOutput() if as_json else TextOutput()
    try:
        status = _answered(
            _Wish(
                prompt=prompt,
                model=model,
                session=session,
                goes_on=goes_on,
                attach=attach or (),
                tools=tool or (),
                files=tools == "files",
                approver=_Yes() if yes else _Nobody(),
                instructions=instructions,
                store=store,
            ),
            output,
        )
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except OutputLost as error:
        if not isinstance(error.__cause__, BrokenPipeError):
            raise _unwritable(error) from error
        status = _PIPE_CLOSED
    raise typer.Exit(status)


def _unwritable(error: OutputLost) -> BartackError:
    fault = BartackError(f"the answer cannot be written: {error.__cause__}", code=ErrorCode.STORAGE_FAILED)
    fault.add_note("what was said until then is in the session: bartack sessions list")
    return fault


# -- approval, without anybody


class _Nobody:
    async def decide(self, request: ApprovalRequired) -> Decision:
        return Decision("deny", reason=_DENIED, decided_by="bartack run")


class _Yes:
    async def decide(self, request: ApprovalRequired) -> Decision:
        return Decision("approve", decided_by="bartack run --yes")


# -- what is wanted, made ready


class _Wish(NamedTuple):
    """The words of the command line."""

    prompt: str | None
    model: str | None
    session: str | None
    goes_on: bool
    attach: Sequence[Path]
    tools: Sequence[str]
    files: bool
    approver: Approver
    instructions: str | None
    store: str | None


def _answered(wish: _Wish, output: Output) -> int:
    """The exit status. Whatever is raised, a program that reads JSON has been told before how it ended."""
    one = OneRun(output)
    try:
        with redirect_stdout(sys.stderr):  # what tools print is no part of the answer
            with setting_up():
                job = _ready(wish, output)
            status = asyncio.run(one.run(job))
        output.end(one.result, one.failed)
    except OutputLost:
        raise
    except KeyboardInterrupt:
        if not one.has_begun:  # the run would have taken Ctrl-C itself
            output.end(None, Failed(ErrorCode.ABORTED, "stopped before the run began"))
        raise
    except Exception as error:
        output.end(one.result, one.failed or _failed_by(error))
        one.tell_session()
        if not one.has_begun and isinstance(error, BartackError) and error.code in _WRONG:
            with setting_up():
                raise
        raise
    one.tell_session()
    if status:
        note("bartack: stopped; what was said so far is in the session")
    return status


def _piped() -> bytes:
    """What somebody sends, and not a human types."""
    return b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_BYTES + 1)


def _ready(wish: _Wish, output: Output) -> Job:
    if wish.session is not None and wish.goes_on:
        raise typer.BadParameter("--session and --continue name two sessions; give one")
    if wish.session == "":
        raise typer.BadParameter("--session needs a name")
    piped = _piped()
    if not (wish.prompt or "").strip() and not piped.strip():
        raise typer.BadParameter("there is nothing to ask: give a PROMPT, or something on stdin")
    chosen = chosen_model(wish.model)
    job = Job(
        prompt=_whole_prompt(wish.prompt or "", piped),
        attachments=tuple(map(attached, wish.attach)),
        model=connected(chosen.name),
        tools=tuple(map(tool_named, wish.tools)),
        files=wish.files,
        approver=wish.approver,
        instructions=wish.instructions,
        place=store_place(wish.store),
        session=wish.session,
        goes_on=wish.goes_on,
    )
    if chosen.reason:
        kind = "local model " if chosen.name == "local" else ""
        name = job.model.get_config().model_id if kind else chosen.name
        output.tell(f"bartack: {kind}{name} ({chosen.reason})")
    return job


def _whole_prompt(words: str, piped: bytes) -> str:
    if len(piped) > MAX_BYTES:
        raise _unreadable(f"stdin holds more than {MAX_BYTES // 1_000_000} MB")
    try:
        pieces = [words.encode().decode().strip(), piped.decode().rstrip("\n")]
    except UnicodeError as error:  # what Python makes of wrong bytes in words cannot be encoded again
        where = "stdin" if isinstance(error, UnicodeDecodeError) else "PROMPT"
        raise _unreadable(f"{where} is not text in UTF-8") from error
    return "\n\n".join(piece for piece in pieces if piece.strip())


def _unreadable(what: str) -> PartValidationError:
    error = PartValidationError(what, path="$.prompt", code=ErrorCode.INVALID_CONFIG)
    error.add_note("--attach shows files of other kinds to the model")
    return error


def _failed_by(error: Exception) -> Failed:
    if isinstance(error, BartackError):
        return Failed(error.code, error.message, retryable=error.retryable)
    if isinstance(error, typer.BadParameter):
        return Failed(ErrorCode.INVALID_CONFIG, error.message)
    return Failed(ErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
