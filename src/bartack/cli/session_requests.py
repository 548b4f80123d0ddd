"""`bartack sessions post`, `approve`, `deny`, `result`, `abort`, `switch`, `rename`, `note`, `redact`: requests to a
session.

A run that is live in another process reacts at once. Without one, a request waits for the next run.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from bartack.app.errors import with_hint
from bartack.app.queues import continue_queued
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store
from bartack.cli.options import JsonOption, SessionArgument, StoreOption, complete_models
from bartack.cli.output import print_json
from bartack.cli.store_access import with_session
from bartack.nouns.entries import ApprovalRequired, Entry, ToolStarted
from bartack.nouns.errors import Conflict, NotFound, PartValidationError
from bartack.nouns.json_values import json_text
from bartack.nouns.parts import ToolResult
from bartack.nouns.wire import dump
from bartack.session.decisions import Decision
from bartack.store import SessionStore, requests

CallArgument = Annotated[
    str | None, typer.Argument(metavar="CALL", help="Id of the tool call. Default: the only one that awaits approval.")
]
ReasonOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, stored with the request.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who makes the request; stored with it.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to `bartack sessions`."""
    for command in (post, approve, deny, result, abort, switch, rename, note, redact):
        app.command()(command)


def post(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    *,
    steer: Annotated[bool, typer.Option("--steer", help="Deliver it before the next model call.")] = False,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queue a message. The live run reads it before it would end; otherwise the next run does."""
    send = requests.steer if steer else requests.queue
    _request(
        store,
        session,
        lambda opened, session: send(opened, session, text, requested_by=by),
        "message queued",
        as_json=as_json,
    )


def approve(
    session: SessionArgument,
    call: CallArgument = None,
    *,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run the tool with these arguments instead.")
    ] = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a tool call. A live run continues; a paused one runs the tool when it is resumed."""
    changed = None if arguments is None else _read_arguments(arguments)
    verdict = Decision("approve" if changed is None else "modify_args", arguments=changed, reason=reason, decided_by=by)
    _request(
        store, session, lambda opened, session: _decide(opened, session, call, verdict), "approved", as_json=as_json
    )


def deny(
    session: SessionArgument,
    call: CallArgument = None,
    *,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny a tool call. The model sees the reason."""
    verdict = Decision("deny", reason=reason, decided_by=by)
    _request(store, session, lambda opened, session: _decide(opened, session, call, verdict), "denied", as_json=as_json)


def result(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The result.")],
    *,
    call: Annotated[
        str | None, typer.Option(metavar="CALL", help="Id of the tool call. Default: the only one that is deferred.")
    ] = None,
    error: Annotated[bool, typer.Option("--error", help="The call failed; TEXT is the reason.")] = False,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post the result of a deferred tool call. A paused run uses it when it is resumed."""

    def post(opened: SessionStore, found: str) -> Awaitable[Entry]:
        return _post_result(opened, found, call, text, is_error=error, by=by)

    _request(store, session, post, "result posted", as_json=as_json)


def abort(
    session: SessionArgument,
    *,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the open run: at once if it is live, otherwise when it is resumed. The partial answer is kept."""
    _request(
        store,
        session,
        lambda opened, session: requests.request_abort(opened, session, reason=reason, requested_by=by),
        "abort requested",
        as_json=as_json,
    )


def switch(
    session: SessionArgument,
    model: Annotated[str, typer.Argument(metavar="VENDOR:MODEL", help="The model.", autocompletion=complete_models)],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Switch the open run to another model from its next model call on. If no run is open, switch the next one."""
    _request(
        store,
        session,
        lambda opened, session: requests.switch_model(opened, session, model),
        "model switched",
        as_json=as_json,
    )


def rename(
    session: SessionArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.")],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the title of a session."""
    _request(
        store,
        session,
        lambda opened, session: requests.rename(opened, session, title),
        "session renamed",
        as_json=as_json,
    )


def note(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
    *,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note that models do not see."""
    data = {"text": text} if by is None else {"text": text, "by": by}
    _request(
        store,
        session,
        lambda opened, session: requests.note(opened, session, "note", data),
        "note added",
        as_json=as_json,
    )


def redact(
    session: SessionArgument,
    entry: Annotated[
        str,
        typer.Argument(metavar="ENTRY", help="Id of the entry, as 'bartack sessions show SESSION --json' prints it."),
    ],
    *,
    reason: ReasonOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hide the content of an entry from people and models. 'bartack sessions purge SESSION' deletes it."""
    _request(
        store,
        session,
        lambda opened, session: requests.redact(opened, session, entry, reason=reason),
        "entry redacted",
        as_json=as_json,
    )


def _request(
    store: str | None,
    session: str,
    send: Callable[[SessionStore, str], Awaitable[Entry]],
    done: str,
    *,
    as_json: bool,
) -> None:
    async def work(opened: SessionStore, found: str) -> Entry:
        entry = await send(opened, found)
        await continue_queued(configured_store(store), opened, entry)
        return entry

    try:
        entry = with_session(store, session, work)
    except PartValidationError as error:
        raise typer.BadParameter(error.message) from error
    if as_json:
        print_json(dump(entry))
    else:
        print(f"{done}: entry {safe_line(entry.id)}")


async def _decide(store: SessionStore, session: str, call: str | None, verdict: Decision) -> Entry:
    questions = await requests.pending_approvals(store, session)
    if call is None and len(questions) != 1:
        raise typer.BadParameter(f"name the call to decide about; {_awaiting(questions)}")
    try:
        return await requests.decide(store, session, call or questions[0].tool_call_id, verdict)
    except (NotFound, Conflict) as error:
        raise with_hint(error, f"Nothing was stored; {_awaiting(questions)}.") from None


async def _post_result(
    store: SessionStore, session: str, call: str | None, text: str, *, is_error: bool, by: str | None
) -> Entry:
    calls = await requests.deferred_calls(store, session)
    if call is None and len(calls) != 1:
        raise typer.BadParameter(f"name the call with --call; {_awaiting(calls, 'a result')}")
    try:
        made = ToolResult(call or calls[0].tool_call_id, text, is_error=is_error)
        return await requests.post_result(store, session, made.tool_call_id, made, posted_by=by)
    except (NotFound, Conflict) as error:
        raise with_hint(error, f"Nothing was stored; {_awaiting(calls, 'a result')}.") from None


def _awaiting(calls: Sequence[ApprovalRequired | ToolStarted], what: str = "approval") -> str:
    texts = [safe_line(f"{one.tool_call_id} ({one.tool_name} {json_text(one.arguments)})") for one in calls]
    return f"awaiting {what}: {', '.join(texts)}" if texts else f"no call is awaiting {what}"


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--arguments is not valid JSON: {error}") from error
    if not isinstance(read, dict):
        raise typer.BadParameter("--arguments must be a JSON object")
    return read
