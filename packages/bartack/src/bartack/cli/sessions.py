"""`bartack sessions`: look at stored sessions, move them between stores, check, repair and purge them.

Searching is in `bartack.cli.session_search`, and what can be requested of a session while a run is live in
`bartack.cli.session_requests`.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

from bartack.app.errors import with_hint
from bartack.app.notices import plural
from bartack.app.safe_text import safe_line
from bartack.app.sessions import (
    SessionFilter,
    configured_store,
    directory_of,
    find_session,
    home_path,
    listed_sessions,
    short_ids,
)
from bartack.app.usage import format_cost
from bartack.cli import session_requests, session_search
from bartack.cli.options import JsonOption, SessionArgument, StoreOption, complete_sessions, new_app
from bartack.cli.output import Row, columns, note, print_json, print_table, progress_bar
from bartack.cli.session_search import AgentOption, LimitOption, ProjectOption
from bartack.cli.store_access import with_session, with_store
from bartack.display.question_text import question_text
from bartack.nouns import wire
from bartack.nouns.entries import ApprovalRequired, Custom, Entry, Redaction
from bartack.nouns.errors import ErrorCode, NotFound, StoreError
from bartack.nouns.wire import dump
from bartack.session.decisions import question_digest
from bartack.session.outline import SOURCE
from bartack.session.title import title_in
from bartack.store import Entries, Finding, ModelSpend, Page, SessionInfo, SessionStore, Totals
from bartack.store.address import default_path
from bartack.store.backup import BACKUP_LIMIT_S
from bartack.store.backup import backup as backup_store
from bartack.store.backup import restore as restore_store
from bartack.store.backup import salvage as salvage_store
from bartack.store.checksums import chain, digest_of, with_checksum
from bartack.store.files import new_file
from bartack.store.foreign import ForeignSession, adopt, find_foreign
from bartack.store.index import text_of
from bartack.store.maintenance import Checked, can_repair, check_all, files_with
from bartack.store.maintenance import purge as purge_session
from bartack.store.requests import pending_approvals
from bartack.store.session_store import all_sessions
from bartack.store.transfer import Imported, export_session, import_lines, read_lines

app = new_app("List, search, export, import, check and purge stored sessions.")

SESSIONS = columns("session title~ entries# updated? tokens#? cost#?")
_LISTED = columns("session title~ entries# updated? directory? cost#?")  # the table on a terminal
MODEL_SPEND = columns("model calls# input# output# cost#")
_ENTRIES = columns("seq# time? kind text")
_FOREIGN = columns("session model? instructions~")
_FINDINGS = columns("session seq# fault details fix")
_DIRECTORY = 24  # characters of a path in a list
_TEXT = 200  # characters of an entry on one line


def session_rows(infos: Iterable[SessionInfo]) -> Iterator[Row]:
    """A row of SESSIONS for each session."""
    for info in infos:
        title, updated = safe_line(info.title or ""), f"{info.updated.astimezone():%Y-%m-%d %H:%M}"
        tokens = str(info.spend.input_tokens + info.spend.output_tokens)
        yield safe_line(info.id), title, str(info.entries), updated, tokens, format_cost(info.spend)


def _terminal_rows(infos: Sequence[SessionInfo], directories: Sequence[str]) -> Iterator[Row]:
    """A row of _LISTED for each session: with the shortest id that is enough to name it."""
    shorts = short_ids([info.id for info in infos])
    for short, directory, row in zip(shorts, directories, session_rows(infos), strict=True):
        _, title, entries, updated, _, cost = row
        yield safe_line(short), title, entries, updated, safe_line(_shorten(home_path(directory))), cost


def _shorten(directory: str) -> str:
    """The end of a long path, which is its most specific part."""
    return directory if len(directory) <= _DIRECTORY else f"...{directory[3 - _DIRECTORY :]}"


def model_spend_rows(models: Iterable[ModelSpend]) -> Iterator[Row]:
    """A row of MODEL_SPEND for each model."""
    for model_total in models:
        name = "" if model_total.model is None else f"{model_total.model.provider}/{model_total.model.model}"
        spend = model_total.spend
        yield safe_line(name), str(spend.calls), str(spend.input_tokens), str(spend.output_tokens), format_cost(spend)


@app.command(name="list", no_args_is_help=False)
def list_sessions(
    limit: LimitOption = 50,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Start after the previous page.")] = None,
    query: Annotated[str | None, typer.Option(metavar="WORDS", help="List only sessions with these words.")] = None,
    *,
    agent: AgentOption = None,
    project: ProjectOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sessions, most recently changed first."""

    async def load(opened: SessionStore) -> tuple[Page, list[str]]:
        page = await listed_sessions(opened, SessionFilter(opened, agent, project).accepts, limit, cursor, query)
        shows = sys.stdout.isatty() and not as_json
        return page, [await directory_of(opened, info.id) or "" for info in page.items] if shows else []

    page, directories = with_store(store, load, for_reading=True)
    if as_json:
        print_json({"items": list(map(dump, page.items)), "cursor": page.cursor})
        return
    if directories:
        print_table(_LISTED, _terminal_rows(page.items, directories))
    else:
        print_table(SESSIONS, session_rows(page.items))
    if not page.items:
        note("no sessions" if cursor is None and query is None else "no more sessions")
    if page.cursor is not None:
        note(f"next page: --cursor {shlex.quote(page.cursor)}")


@app.command()
def show(
    session: SessionArgument,
    entries: Annotated[int, typer.Option(metavar="N", min=0, help="Number of entries to show, from the end.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Summarize a session: branches, usage, last entries, and the questions that await an answer, in full.

    'bartack show SESSION' prints the conversation.
    """

    async def load(opened: SessionStore, session_id: str) -> _Shown:
        loaded = await opened.load(session_id)
        totals = await opened.totals(session_id)
        questions = await pending_approvals(opened, session_id)
        return _Shown(await _info(opened, loaded, totals), await opened.heads(session_id), totals, loaded, questions)

    info, heads, totals, loaded, questions = with_session(store, session, load, for_reading=True)
    last = list(loaded[max(0, len(loaded) - entries) :])
    if as_json:
        asked = [{**dump(question), "questionDigest": question_digest(question)} for question in questions]
        summary = {"session": dump(info), "heads": heads, "totals": dump(totals)}
        print_json({**summary, "entries": list(map(dump, last)), "questions": asked})
        return
    print(f"{safe_line(info.id)}  {safe_line(info.title or '')}".rstrip())
    print(f"{plural(info.entries, 'entry', 'entries')}, {plural(len(heads), 'branch', 'branches')}")
    print(f"created {info.created.astimezone():%Y-%m-%d %H:%M}, updated {info.updated.astimezone():%Y-%m-%d %H:%M}")
    if totals.models:
        print()
        print_table(MODEL_SPEND, model_spend_rows(totals.models))
    printed = [entry for entry in loaded if not _is_record(entry)] if entries else []
    if printed:
        print()
        print_table(_ENTRIES, map(_entry_row, printed[-entries:]))
    for question in questions:
        print()
        print(f"Call {safe_line(question.tool_call_id)} awaits approval. Question {question_digest(question)}:")
        print(question_text(question))


class _Shown(NamedTuple):
    """What is summarized."""

    info: SessionInfo
    heads: tuple[str, ...]
    totals: Totals
    entries: Entries
    questions: tuple[ApprovalRequired, ...]


def _is_record(entry: Entry) -> bool:
    """Whether an entry only keeps a record of the source that the session was imported from."""
    return isinstance(entry.fact, Custom) and entry.fact.name == SOURCE


def _entry_row(entry: Entry) -> Row:
    time = f"{entry.timestamp.astimezone():%Y-%m-%d %H:%M:%S}"
    return str(entry.seq), time, entry.fact.kind, safe_line(text_of(entry.fact)[:_TEXT])


async def _info(store: SessionStore, loaded: Entries, totals: Totals) -> SessionInfo:
    tail = await store.tail_of(loaded.session_id)
    return SessionInfo(
        id=loaded.session_id,
        title=title_in(loaded),
        created=loaded[0].timestamp,
        updated=loaded[-1].timestamp,
        entries=tail.seq,
        tail=tail,
        spend=totals.spend,
    )


session_search.add_commands(app)


@app.command(no_args_is_help=True)
def export(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help="Sessions to export.", autocompletion=complete_sessions),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Export all sessions.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Output file; - is stdout.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write sessions as canonical JSONL, one entry per line, without redacted content.

    With --output, --json prints a summary of what was written.
    """
    if everything == bool(sessions):
        raise typer.BadParameter("name the sessions to export, or pass --all")
    if output == "-":
        with_store(store, lambda opened: _export(opened, sessions, sys.stdout.buffer), for_reading=True)
        return
    path = Path(output)
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} already exists; pass --force to overwrite it")
    with new_file(path, overwrite=force) as file:
        exported = with_store(store, lambda opened: _export(opened, sessions, file), for_reading=True)
    _report_transfer("exported", exported, as_json=as_json, file=str(path))


async def _named_or_all(store: SessionStore, names: list[str] | None) -> list[str]:
    """The ids of these sessions, which may be given by their first characters; without any, of all sessions."""
    return [await find_session(store, name) for name in names or ()] or [info.id async for info in all_sessions(store)]


async def _export(store: SessionStore, sessions: list[str] | None, file: IO[bytes]) -> Imported:
    names = await _named_or_all(store, sessions)
    lines = 0
    with progress_bar("exporting", len(names)) as advance:
        for name in names:
            async for line in export_session(store, name):
                file.write(line)
                lines += 1
            advance()
    file.flush()
    return Imported(tuple(names), lines)


@app.command(name="import", no_args_is_help=False)
def import_sessions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Canonical JSONL; - is stdin.")] = "-",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import sessions from a JSONL file. Existing entries are skipped, so an interrupted import can be repeated.

    The whole file is checked first, and nothing is imported if there is an error in it. Runs and tool calls that it
    leaves open are closed, and nothing runs in an imported session before you adopt it: 'bartack chat' asks, 'bartack
    run' needs --adopt, and 'bartack sessions adopt' adopts without running anything.
    """
    if file == "-":
        imported = _import(sys.stdin.buffer, None, store)
    else:
        with Path(file).open("rb") as lines:
            imported = _import(lines, os.fstat(lines.fileno()).st_size, store)
    _report_transfer("imported", imported, as_json=as_json, file=file)


def _import(file: IO[bytes], size: int | None, store: str | None) -> Imported:
    with progress_bar("importing", size) as advance:

        def lines() -> Iterator[bytes]:
            for line in read_lines(file):
                advance(len(line))
                yield line

        try:
            return with_store(store, lambda opened: import_lines(opened, lines()), may_be_new=True)
        except StoreError as error:
            if error.code is ErrorCode.INVALID_VALUE:
                with_hint(error, "Nothing was imported. Fix or remove this line and import the file again.")
            raise


@app.command(name="adopt")
def adopt_sessions(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help="Sessions to adopt.", autocompletion=complete_sessions),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Adopt all sessions, such as those of a backup.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what they would bring along.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let runs continue imported sessions. A session brings along the model and the instructions that it names."""
    if everything == bool(sessions):
        raise typer.BadParameter("name the sessions to adopt, or pass --all")
    adopted = with_store(store, lambda opened: _adopt(opened, sessions, dry_run=dry_run), for_reading=dry_run)
    if as_json:
        print_json({"sessions": list(map(dump, adopted)), "adopted": not dry_run})
        return
    print_table(_FOREIGN, map(_foreign_row, adopted))
    note(f"{'would adopt' if dry_run else 'adopted'} {plural(len(adopted), 'session')}")


async def _adopt(store: SessionStore, sessions: list[str] | None, *, dry_run: bool) -> list[ForeignSession]:
    names = await _named_or_all(store, sessions)
    adopted = [foreign for name in names if (foreign := await find_foreign(store, name)) is not None]
    for foreign in () if dry_run else adopted:
        await adopt(store, foreign.session_id)
    return adopted


def _foreign_row(foreign: ForeignSession) -> Row:
    model = "" if foreign.model is None else f"{foreign.model.provider}:{foreign.model.model}"
    return safe_line(foreign.session_id), safe_line(model), safe_line((foreign.instructions or "")[:_TEXT])


def _report_transfer(verb: str, moved: Imported, *, as_json: bool, file: str) -> None:
    text = f"{verb} {plural(moved.entries, 'entry', 'entries')} of {plural(len(moved.sessions), 'session')}"
    _report({"sessions": moved.sessions, "entries": moved.entries, "file": file}, text, as_json=as_json)


def _report(summary: dict[str, Any], text: str, *, as_json: bool) -> None:
    """What a command has done, as JSON for programs or as a note for people."""
    if as_json:
        print_json(summary)
    else:
        note(text)


@app.command(no_args_is_help=False)
def fsck(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION", help="Sessions to check (default: all).", autocompletion=complete_sessions),
    ] = None,
    do_repair: Annotated[
        bool, typer.Option("--repair", help="Append missing results and set torn lines aside. Entries never change.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check for damage: altered or lost entries, torn lines, calls without results, missing blobs.

    Others may write meanwhile. Each session is judged as it is at one moment, and the open calls of a session in use
    are not reported: a run is working on them.

    The exit status is 1 if there are findings; with --repair, if any remain.
    """
    checked, live, repaired, findings = with_store(
        store, lambda opened: _fsck(opened, sessions, do_repair=do_repair), for_reading=not do_repair
    )
    if as_json:
        print_json({"sessions": checked, "live": live, "repaired": repaired, "findings": list(map(dump, findings))})
    else:
        if findings:
            print_table(_FINDINGS, map(_finding_row, findings))
        for name in repaired:
            note(f"repaired {safe_line(name)}")
        in_use = f" ({len(live)} in use)" if live else ""
        note(f"checked {plural(checked, 'session')}{in_use}: {plural(len(findings), 'finding')}")
    raise typer.Exit(1 if findings else 0)


def _finding_row(finding: Finding) -> tuple[str, ...]:
    seq = "" if finding.seq is None else str(finding.seq)
    fix = "--repair" if can_repair(finding) else ""
    return safe_line(finding.session_id or ""), seq, finding.fault, safe_line(finding.message), fix


async def _fsck(store: SessionStore, sessions: list[str] | None, *, do_repair: bool) -> Checked:
    sessions = None if sessions is None else [await find_session(store, name) for name in sessions]
    with progress_bar("checking", len(sessions) if sessions else None) as advance:
        return await check_all(store, sessions, do_repair=do_repair, on_session=advance)


PathArgument = Annotated[Path, typer.Argument(metavar="PATH", show_default=False)]


@app.command()
def backup(
    target: PathArgument,
    limit_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.0, help="Give up after this time, without a backup."),
    ] = BACKUP_LIMIT_S,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the store to PATH while others write to it.

    The backup of a SQLite or JSONL store is a store of the same kind; that of a PostgreSQL store is a JSONL export.
    """
    with_store(store, lambda opened: _backup(opened, target, limit_s), for_reading=True)
    _report({"backup": str(target)}, f"backed up to {target}", as_json=as_json)


async def _backup(store: SessionStore, target: Path, limit_s: float) -> None:
    with progress_bar("backing up", 100) as advance:
        shown_percent = 0

        def show(share: float) -> None:
            nonlocal shown_percent
            percent = int(100 * share)
            advance(percent - shown_percent)
            shown_percent = percent

        await backup_store(store, target, on_progress=show, limit_s=limit_s)


@app.command()
def restore(source: PathArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Create a new store from the backup at PATH. An existing store is never overwritten."""
    address = configured_store(store)
    asyncio.run(restore_store(source, address.text))
    _report({"store": address.display}, f"restored to {address.display}", as_json=as_json)


@app.command()
def salvage(
    damaged: PathArgument,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Output file; - is stdout.")] = "-",
    as_json: JsonOption = False,
) -> None:
    """Export whatever can be read of the damaged store or file at PATH, as JSONL for 'bartack sessions import'.

    With --output, --json prints a summary of what was written.
    """
    if output == "-":
        asyncio.run(_salvage(damaged, sys.stdout.buffer))
        return
    path = Path(output)
    with new_file(path, overwrite=False) as file:
        salvaged = asyncio.run(_salvage(damaged, file))
    _report_transfer("salvaged", salvaged, as_json=as_json, file=str(path))


async def _salvage(path: Path, file: IO[bytes]) -> Imported:
    checksums: dict[str, bytes] = {}
    count = 0
    async for entry in salvage_store(path):
        text = wire.encode(entry)
        checksums[entry.session_id] = chain(checksums.get(entry.session_id, b""), digest_of(text))
        file.write(with_checksum(text, checksums[entry.session_id]) + b"\n")
        count += 1
    if not count:
        raise NotFound(f"{path} contains no entry that can be read.")
    file.flush()
    return Imported(tuple(checksums), count)


@app.command()
def purge(
    session: SessionArgument,
    *,
    everything: Annotated[bool, typer.Option("--everything", help="Remove the whole session.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    verify: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Then search the bytes of every file for this text."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Permanently remove redacted content, or with --everything the whole session.

    Stored entries never change, so the session is rewritten under a new id without the redacted content, and the old
    one is removed. This cannot be undone. With --verify, the exit status is 1 if a file of the store still contains the
    text, which may also be in another session, or a file of the chat: its history of prompts, a checkpoint or an image.
    The compressed records of other imported sessions are not searched.
    """
    path = configured_store(store).path
    if verify is not None and (path is None or not verify):
        raise typer.BadParameter("--verify needs a text, and a store in files")
    _purge(session, everything=everything, yes=yes, store=store, as_json=as_json)
    if verify is None or path is None:
        return
    files = sorted({*files_with(path, verify), *files_with(default_path().parent, verify)})
    for file in files:
        note(f"{file} still contains the text")
    if not files:
        note("no file contains the text")
    raise typer.Exit(1 if files else 0)


@app.command()
def delete(
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Permanently remove a whole session. This cannot be undone."""
    _purge(session, everything=True, yes=yes, store=store, as_json=as_json)


def _purge(session: str, *, everything: bool, yes: bool, store: str | None, as_json: bool) -> None:
    async def count(opened: SessionStore, session_id: str) -> tuple[str, int, int]:
        entries = await opened.entries(session_id)
        return session_id, len(entries), sum(isinstance(entry.fact, Redaction) for entry in entries)

    session_id, total, redactions = with_session(store, session, count)
    if not yes:
        _confirm(_plan(session_id, total, redactions, everything=everything))
    new_id = with_store(store, lambda opened: purge_session(opened, session_id, everything=everything))
    if as_json:
        print_json({"purged": session_id, "session": new_id})
    else:
        print(f"removed {safe_line(session_id)}" + ("" if new_id is None else f"; the new session is {new_id}"))


def _plan(session: str, total: int, redactions: int, *, everything: bool) -> str:
    name, entries = safe_line(session), plural(total, "entry", "entries")
    if everything:
        return f"This permanently removes {name} and all of its {entries}."
    return (
        f"This rewrites {name} ({entries}, {plural(redactions, 'redaction')}) under a new id without the redacted "
        "content, and permanently removes the old session."
    )


def _confirm(plan: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("cannot ask for confirmation without a terminal; pass --yes")
    typer.echo(plan, err=True)
    if not typer.confirm("Continue?", err=True):
        note("nothing was removed")
        raise typer.Exit(1)


session_requests.add_commands(app)
