"""`bartack sessions`: look at stored sessions, move them between stores, check and mend them, and really remove them."""

import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Annotated

import typer

from bartack.cli import sessions_print as show_as
from bartack.cli import suggestions
from bartack.cli.command import new_app
from bartack.cli.store_access import JsonOption, SessionArgument, StoreOption, print_json, with_store
from bartack.cli.terminal.safe_text import safe_line
from bartack.nouns.entries import Redaction, SessionHeader
from bartack.nouns.errors import ErrorCode, StoreError
from bartack.nouns.wire import dump
from bartack.store import Entries, Finding, Hit, Page, SessionInfo, SessionStore, Totals
from bartack.store.maintenance import check, repair
from bartack.store.maintenance import purge as purge_session
from bartack.store.transfer import Imported, export_session, import_lines

app = new_app("List, show, search, export, import, check and purge stored sessions.")

LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]


@app.command(name="list", no_args_is_help=False)
def list_sessions(
    limit: LimitOption = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before this one ended.")] = None,
    query: Annotated[str | None, typer.Option(metavar="WORDS", help="Only sessions that hold these words.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions, the one that changed last first."""
    page: Page = with_store(store, lambda opened: opened.sessions(limit, cursor, query))
    if as_json:
        print_json({"items": list(map(dump, page.items)), "cursor": page.cursor})
        return
    show_as.print_rows(show_as.INFOS, show_as.info_rows(page.items))
    if not page.items:
        _note("no sessions" if cursor is None and query is None else "no more sessions")
    if page.cursor is not None:
        _note(f"there are more: --cursor {shlex.quote(page.cursor)}")


@app.command()
def show(
    session: SessionArgument,
    entries: Annotated[int, typer.Option(min=0, help="How many of the last entries to show.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a session is: its branches, what it used, its last entries. `bartack show` tells all of it."""

    async def look(opened: SessionStore) -> tuple[SessionInfo, tuple[str, ...], Totals, Entries]:
        loaded = await opened.load(session)
        totals = await opened.totals(session)
        return await _info(opened, loaded, totals), await opened.heads(session), totals, loaded

    info, heads, totals, loaded = with_store(store, look)
    last = list(loaded[max(0, len(loaded) - entries) :])
    if as_json:
        print_json({"session": dump(info), "heads": heads, "totals": dump(totals), "entries": list(map(dump, last))})
        return
    print(f"{safe_line(info.id)}  {safe_line(info.title or '')}".rstrip())
    print(f"{_count(info.entries, 'entry', 'entries')}, {_count(len(heads), 'branch', 'branches')}")
    print(
        f"created {info.created.astimezone():%Y-%m-%d %H:%M}, last changed {info.updated.astimezone():%Y-%m-%d %H:%M}"
    )
    if totals.models:
        print()
        show_as.print_rows(show_as.SPENDS, show_as.spend_rows(totals.models))
    if last:
        print()
        show_as.print_rows(show_as.ENTRIES, show_as.entry_rows(last))


async def _info(store: SessionStore, loaded: Entries, totals: Totals) -> SessionInfo:
    header, tail = loaded[0].fact, await store.tail_of(loaded.session_id)
    return SessionInfo(
        id=loaded.session_id,
        title=header.title if isinstance(header, SessionHeader) else None,
        created=loaded[0].timestamp,
        updated=loaded[-1].timestamp,
        entries=tail.seq,
        tail=tail,
        spend=totals.spend,
    )


@app.command()
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All of them must be in an entry.")],
    limit: LimitOption = 50,
    offset: Annotated[int, typer.Option(min=0, help="How many to pass over.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find entries by their words."""
    found: tuple[Hit, ...] = with_store(store, lambda opened: opened.search(" ".join(words), offset + limit + 1))
    hits, following = found[offset : offset + limit], offset + limit if len(found) > offset + limit else None
    if as_json:
        print_json({"items": list(map(dump, hits)), "offset": following})
        return
    show_as.print_rows(show_as.HITS, show_as.hit_rows(hits))
    if not hits:
        _note("nothing found")
    if following is not None:
        _note(f"there are more: --offset {following}")


@app.command(no_args_is_help=True)
def export(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION...", help="Their ids.", autocompletion=suggestions.sessions),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the store.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - is stdout.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write sessions as canonical JSONL: one entry per line. What was redacted is left out.

    --json says what was written to FILE; stdout holds the entries themselves.
    """
    if everything == bool(sessions):
        raise typer.BadParameter("name sessions, or give --all")
    if output == "-":
        with_store(store, lambda opened: _export(opened, sessions, sys.stdout.buffer))
        return
    path = Path(output)
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} is there already; --force replaces it")
    # Beside the target, then renamed: the file is there whole or not at all, and for its owner only.
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            written = with_store(store, lambda opened: _export(opened, sessions, draft.file))
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
    _say_moved(written, "exported", as_json=as_json, file=str(path))


async def _export(store: SessionStore, sessions: list[str] | None, file: IO[bytes]) -> Imported:
    names = sessions or [info.id async for info in _all(store)]
    lines = 0
    with show_as.progress("exporting", len(names)) as step:
        for name in names:
            async for line in export_session(store, name):
                file.write(line)
                lines += 1
            step()
    file.flush()
    return Imported(tuple(names), lines)


@app.command(name="import", no_args_is_help=False)
def import_sessions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Canonical JSONL; - is stdin.")] = "-",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the sessions of a JSONL file. What is there already is left alone; a session lands whole or not at all."""
    if file == "-":
        imported = _import(sys.stdin.buffer, None, store)
    else:
        with Path(file).open("rb") as lines:
            imported = _import(lines, os.fstat(lines.fileno()).st_size, store)
    _say_moved(imported, "imported", as_json=as_json, file=file)


def _import(file: IO[bytes], size: int | None, store: str | None) -> Imported:
    with show_as.progress("reading", size) as step:

        def lines() -> Iterator[bytes]:
            for line in file:
                step(len(line))
                yield line

        try:
            return with_store(store, lambda opened: import_lines(opened, lines()), may_be_new=True)
        except StoreError as error:
            if error.code is ErrorCode.INVALID_VALUE:
                error.add_note("nothing was stored: every line is read before the first one is")
            raise


@app.command(no_args_is_help=False)
def fsck(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION...]", help="All without one.", autocompletion=suggestions.sessions),
    ] = None,
    mend: Annotated[bool, typer.Option("--repair", help="Append what is missing. Nothing is rewritten.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for damage: torn lines, gaps, calls without results, broken parents, bad JSON, lost bodies.

    The exit status is 1 if anything is found, with --repair if anything is left.
    """
    checked, mended, findings = with_store(store, lambda opened: _fsck(opened, sessions, mend=mend))
    if as_json:
        print_json({"sessions": checked, "repaired": mended, "findings": list(map(dump, findings))})
    else:
        if findings:
            show_as.print_rows(show_as.FINDINGS, show_as.finding_rows(findings))
        for name in mended:
            _note(f"repaired {safe_line(name)}")
        _note(f"{_count(checked, 'session')} checked, {_count(len(findings), 'finding')}")
    raise typer.Exit(1 if findings else 0)


async def _fsck(store: SessionStore, sessions: list[str] | None, *, mend: bool) -> tuple[int, list[str], list[Finding]]:
    findings = [] if sessions else list(await store.inspect())
    names = sessions or [info.id async for info in _all(store)]
    mended: list[str] = []
    with show_as.progress("checking", len(names)) as step:
        for name in names:
            found = await check(store, name)
            if mend and any(finding.repairable for finding in found):
                found = await repair(store, name)
                mended.append(name)
            findings += found
            step()
    return len(names), mended, findings


@app.command()
def purge(
    session: SessionArgument,
    everything: Annotated[bool, typer.Option("--everything", help="Keep nothing of the session at all.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Really remove what was redacted, or with --everything the whole session.

    Entries are never changed, so the session is written anew without the redacted content, under a new id, and the old
    one is dropped. This cannot be undone.
    """

    async def count(opened: SessionStore) -> tuple[int, int]:
        entries = await opened.entries(session)
        return len(entries), sum(isinstance(entry.fact, Redaction) for entry in entries)

    if not yes:
        total, hidden = with_store(store, count)
        _confirm(_plan(session, total, hidden, everything=everything))
    new_id = with_store(store, lambda opened: purge_session(opened, session, everything=everything))
    if as_json:
        print_json({"purged": session, "session": new_id})
    elif new_id is None:
        print(f"{safe_line(session)} is gone")
    else:
        print(f"{safe_line(session)} is gone; {new_id} takes its place")


def _plan(session: str, total: int, hidden: int, *, everything: bool) -> str:
    name = safe_line(session)
    if everything:
        return f"All {total} entries of {name} are removed for good, and nothing takes their place."
    return (
        f"{name} ({total} entries, {hidden} redactions) is written anew, without what was redacted, under a new id. "
        "Then the old session is dropped for good."
    )


def _confirm(plan: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask here; --yes answers beforehand")
    typer.echo(plan, err=True)
    if not typer.confirm("Go on?", err=True):
        _note("nothing was removed")
        raise typer.Exit(1)


async def _all(store: SessionStore) -> AsyncIterator[SessionInfo]:
    """Every session, page by page. One that changes meanwhile may come twice or move up: ids are told once."""
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await store.sessions(100, cursor)
        for info in page.items:
            if info.id not in seen:
                seen.add(info.id)
                yield info
        cursor = page.cursor
        if cursor is None:
            return


def _say_moved(moved: Imported, how: str, *, as_json: bool, file: str) -> None:
    if as_json:
        print_json({"sessions": moved.sessions, "entries": moved.entries, "file": file})
    else:
        _note(f"{how} {_count(moved.entries, 'entry', 'entries')} of {_count(len(moved.sessions), 'session')}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number or 'no'} {one if number == 1 else many or f'{one}s'}"


def _note(text: str) -> None:
    """Something about the output, which is not a part of it."""
    print(text, file=sys.stderr)
