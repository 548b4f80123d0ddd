"""`bartack sessions post`, `approve`, `deny`, `result`, `abort`, `switch`, `rename`, `note`, `redact`: requests to a
session.

A run that is live in another process reacts at once. Without one, a request waits for the next run.

Each function below makes one request from its own arguments. `REQUESTS` lists them with the words that confirm them,
and `_command` adds what all have in common: the session, the store, and how the stored entry is printed.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from bartack.app.errors import with_hint
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store
from bartack.cli.options import JsonOption, SessionArgument, StoreOption, complete_models
from bartack.cli.output import print_json, show_by_windows
from bartack.cli.store_access import with_session
from bartack.display.question_text import question_text
from bartack.nouns.entries import ApprovalRequired, Entry, ToolStarted
from bartack.nouns.errors import Conflict, NotFound, PartValidationError, ToolError
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import ToolResult
from bartack.nouns.wire import dump
from bartack.session.decisions import Decision, question_digest
from bartack.store import SessionStore, requests

Request = Callable[[SessionStore, str], Awaitable[Entry]]  # called with the open store and the id of the session

CallArgument = Annotated[
    str | None, typer.Argument(metavar="CALL", help="Id of the tool call. Default: the only one that awaits approval.")
]
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, stored with the request.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who makes the request; stored with it.")]


def post(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    *,
    steer: Annotated[bool, typer.Option("--steer", help="Deliver it before the next model call.")] = False,
    by: ByOption = None,
) -> Request:
    """Queue a message. The live run reads it before it would end; otherwise the next run does."""
    send = requests.steer if steer else requests.queue
    return lambda store, session: send(store, session, text, requested_by=by)


def approve(
    call: CallArgument = None,
    *,
    question: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="The question that you approve, as 'bartack sessions show SESSION' prints it. Without it, you are "
            "shown the question and asked.",
        ),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run the tool with these arguments instead.")
    ] = None,
    reason: ReasonOption = None,
    by: ByOption = None,
) -> Request:
    """Approve a tool call. A live run continues; a paused one runs the tool when it is resumed.

    The approval applies to the question that was shown: if the call would do something else by now, it is asked about
    again.
    """
    changed = None if arguments is None else _read_arguments(arguments)
    verdict = Decision("approve" if changed is None else "modify_args", arguments=changed, reason=reason, decided_by=by)

    async def send(store: SessionStore, session: str) -> Entry:
        asked = _chosen(await requests.pending_approvals(store, session), call)
        digest = question if question is not None or asked is None else _ask_for_approval(asked)
        return await _decide(store, session, call, replace(verdict, question_digest=digest))

    return send


def deny(call: CallArgument = None, *, reason: ReasonOption = None, by: ByOption = None) -> Request:
    """Deny a tool call. The model sees the reason."""
    verdict = Decision("deny", reason=reason, decided_by=by)
    return lambda store, session: _decide(store, session, call, verdict)


def result(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The result.")],
    *,
    call: Annotated[
        str | None, typer.Option(metavar="CALL", help="Id of the tool call. Default: the only one that is deferred.")
    ] = None,
    error: Annotated[bool, typer.Option("--error", help="The call failed; TEXT is the reason.")] = False,
    by: ByOption = None,
) -> Request:
    """Post the result of a deferred tool call. A paused run uses it when it is resumed."""
    return lambda store, session: _post_result(store, session, call, text, is_error=error, by=by)


def abort(*, reason: ReasonOption = None, by: ByOption = None) -> Request:
    """End the open run: at once if it is live, otherwise when it is resumed. The partial answer is kept."""
    return lambda store, session: requests.request_abort(store, session, reason=reason, requested_by=by)


def switch(
    model: Annotated[str, typer.Argument(metavar="VENDOR:MODEL", help="The model.", autocompletion=complete_models)],
) -> Request:
    """Switch the open run to another model from its next model call on. If no run is open, switch the next one."""
    return lambda store, session: requests.switch_model(store, session, model)


def rename(title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")]) -> Request:
    """Change the title of a session."""
    return lambda store, session: requests.rename(store, session, title)


def note(text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")], *, by: ByOption = None) -> Request:
    """Add a note that models do not see."""
    data = {"text": text} if by is None else {"text": text, "by": by}
    return lambda store, session: requests.note(store, session, "note", data)


def redact(
    entry: Annotated[
        str,
        typer.Argument(metavar="ENTRY", help="Id of the entry, as 'bartack sessions show SESSION --json' prints it."),
    ],
    *,
    reason: ReasonOption = None,
) -> Request:
    """Hide the content of an entry from people and models. 'bartack sessions purge SESSION' deletes it."""
    return lambda store, session: requests.redact(store, session, entry, reason=reason)


REQUESTS: Mapping[Callable[..., Request], str] = {
    post: "message queued",
    approve: "approved",
    deny: "denied",
    result: "result posted",
    abort: "abort requested",
    switch: "model switched",
    rename: "session renamed",
    note: "note added",
    redact: "entry redacted",
}


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to `bartack sessions`."""
    for make_request, confirmation in REQUESTS.items():
        app.command()(_command(make_request, confirmation))


def _command(make_request: Callable[..., Request], confirmation: str) -> Callable[..., None]:
    """A command with the arguments of the request, after the session and before the options that all have."""

    @wraps(make_request)
    def command(session: str, *, store: str | None, as_json: bool, **arguments: Any) -> None:
        entry = _send(store, session, make_request(**arguments))
        if as_json:
            print_json(dump(entry))
        else:
            print(f"{confirmation}: entry {safe_line(entry.id)}")

    own = signature(make_request)
    parameters = [
        Parameter("session", Parameter.POSITIONAL_OR_KEYWORD, annotation=SessionArgument),
        *own.parameters.values(),
        Parameter("store", Parameter.KEYWORD_ONLY, default=None, annotation=StoreOption),
        Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
    ]
    vars(command)["__signature__"] = own.replace(parameters=parameters, return_annotation=None)
    return command


def _send(address: str | None, session: str, request: Request) -> Entry:
    async def work(store: SessionStore, session_id: str) -> Entry:
        entry = await request(store, session_id)
        from bartack.app.queues import continue_queued  # noqa: PLC0415 - only the request that continues a run uses it

        await continue_queued(configured_store(address), store, entry)
        return entry

    try:
        return with_session(address, session, work)
    except PartValidationError as error:
        raise typer.BadParameter(error.message) from error


def _chosen(questions: Sequence[ApprovalRequired], call: str | None) -> ApprovalRequired | None:
    """The question about the call, or the only one; None if the call is not awaiting approval."""
    if call is None and len(questions) != 1:
        raise typer.BadParameter(f"name the call to decide about; {_awaiting(questions)}")
    return next((question for question in questions if call in (None, question.tool_call_id)), None)


def _ask_for_approval(asked: ApprovalRequired) -> str:
    """The digest of the question, once the user has seen and approved it."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "cannot show the question without a terminal; pass --question with the digest that 'bartack sessions show' "
            "prints"
        )
    show_by_windows(question_text(asked))
    if not typer.confirm("Approve?", err=True):
        raise typer.Exit(1)
    return question_digest(asked)


async def _decide(store: SessionStore, session: str, call: str | None, verdict: Decision) -> Entry:
    questions = await requests.pending_approvals(store, session)
    asked = _chosen(questions, call)
    call_id = str(call) if asked is None else asked.tool_call_id
    try:
        return await requests.decide(store, session, call_id, verdict)
    except ToolError as error:
        raise with_hint(error, f"Nothing was stored. 'bartack sessions show {session}' prints the question.") from None
    except (NotFound, Conflict) as error:
        raise with_hint(error, f"Nothing was stored; {_awaiting(questions)}.") from None


async def _post_result(
    store: SessionStore, session: str, call: str | None, text: str, *, is_error: bool, by: str | None
) -> Entry:
    calls = await requests.deferred_calls(store, session)
    if call is None and len(calls) != 1:
        raise typer.BadParameter(f"name the call with --call; {_awaiting(calls, 'a result')}")
    try:
        tool_result = ToolResult(call or calls[0].tool_call_id, text, is_error=is_error)
        return await requests.post_result(store, session, tool_result.tool_call_id, tool_result, posted_by=by)
    except (NotFound, Conflict) as error:
        raise with_hint(error, f"Nothing was stored; {_awaiting(calls, 'a result')}.") from None


def _awaiting(calls: Sequence[ApprovalRequired | ToolStarted], missing: str = "approval") -> str:
    texts = [safe_line(f"{call.tool_call_id} ({call.tool_name} {json_text(call.arguments)})") for call in calls]
    return f"awaiting {missing}: {', '.join(texts)}" if texts else f"no call is awaiting {missing}"


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--arguments is not valid JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise typer.BadParameter("--arguments must be a JSON object")
    return arguments
