"""`bartack export`: a session in the format of another agent, or as a document."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated
from uuid import uuid4

import typer

from bartack.app.errors import with_hint
from bartack.app.safe_text import safe_line
from bartack.app.transcript import markdown_transcript
from bartack.cli.options import JsonOption, SessionArgument, StoreOption, UsageError, new_app
from bartack.cli.output import note, print_json
from bartack.cli.store_access import with_session
from bartack.display.visible_text import visible_text
from bartack.nouns.entries import Entry, branch
from bartack.nouns.errors import BartackError, ErrorCode, NotFound
from bartack.session.redaction import visible
from bartack.store import Entries, SessionStore
from bartack.store.files import new_file
from bartack_transcripts.disk.files import files_below, home_of
from bartack_transcripts.formats import FORMATS, Exported, exported, origin_id, session_ids, with_bases, with_children

app = new_app("Export a session to another agent.")


def _html(entries: list[Entry]) -> str:
    """The session as the web page shows it; its writer comes with another package."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and needed only here

    for entry_point in entry_points(group="bartack.documents", name="html"):
        write: Callable[[list[Entry]], str] = entry_point.load()
        return write(entries)
    error = UsageError("HTML documents need the package bartack-server.", code=ErrorCode.INVALID_CONFIG)
    raise with_hint(error, "Run: pip install bartack-server")


_DOCUMENTS: Mapping[str, tuple[str, Callable[[list[Entry]], str]]] = {  # the ending of the file, and what writes it
    "html": (".html", _html),
    "markdown": (".md", markdown_transcript),
}
_ACTIONS = {"dropped": "left out", "added": "added", "moved": "moved"}
_TARGETS = ", ".join([*sorted(name for name, row in FORMATS.items() if row.writer is not None), *_DOCUMENTS])


def _known(target: str) -> str:
    row = FORMATS.get(target)
    if target not in _DOCUMENTS and (row is None or row.writer is None):
        raise typer.BadParameter(f"unknown format {target!r}; choose from {_TARGETS}")
    return target


@app.command()
def export(
    session: SessionArgument,
    target: Annotated[str, typer.Option("--to", metavar="FORMAT", callback=_known, help=f"One of: {_TARGETS}.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="New file, or an existing folder for it.")
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Put it where that agent looks for sessions, and print how to continue.")
    ] = False,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to continue in (default: the session's directory).")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="ENTRY", help="Export the branch that ends at this entry: its id or seq.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before installing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a session in the format of another agent, or as a document. Existing files are never overwritten.

    A session imported from the same agent keeps its records byte for byte. Anything the other agent cannot use is
    listed. Without --out or --install, the file is printed.
    """
    if install and (out is not None or target in _DOCUMENTS):
        raise typer.BadParameter("--install cannot be used with --out or for documents")
    entries, children, origins = with_session(store, session, _load, for_reading=True)
    head = _entry_id(entries, head)

    def exported_session(*, keep_id: bool) -> Exported:
        if target in _DOCUMENTS:
            return _document(entries, target, head)
        session_files = _exported(entries, children, target, head, project, keep_id=keep_id)
        home = home_of(FORMATS[target]) if install else None
        is_alone = home is None and (out is None or not out.is_dir())
        complete = session_files if is_alone else _with_bases(session_files, target, origins, home)
        return complete or _exported(entries, children, target, head, project, keep_id=keep_id, keep_records=False)

    document = exported_session(keep_id=True)
    paths = _paths(document, target, out, install=install)
    if install and any(path.exists() for path in paths):
        document = exported_session(keep_id=False)
        paths = _paths(document, target, out, install=True)
    if install and not yes:
        typer.confirm(f"Write {paths[0]}?", abort=True, err=True)
    for path, data in zip(paths, document.files.values(), strict=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, overwrite=False) as file:
            file.write(data)
    if not paths:
        sys.stdout.buffer.write(b"".join(document.files.values()))
        sys.stdout.buffer.flush()
    _report(document, target, paths, install=install, as_json=as_json)


async def _load(store: SessionStore, session: str) -> tuple[Entries, list[Entries], list[Entries]]:
    """The entries of a session, those of its sub-agents and of theirs, and those of the sessions that it continues."""
    sessions = {session: await store.entries(session)}
    waiting = session_ids(sessions[session])
    while waiting:
        id = waiting.pop(0)
        if id not in sessions:
            with suppress(NotFound):
                sessions[id] = await store.entries(id)
                waiting += session_ids(sessions[id])
    entries, *children = sessions.values()
    origins: dict[str, Entries] = {}
    origin = origin_id(entries)
    with suppress(NotFound):
        while origin is not None and origin not in origins:
            origins[origin] = await store.entries(origin)
            origin = origin_id(origins[origin])
    return entries, children, list(origins.values())


def _entry_id(entries: Entries, name: str | None) -> str | None:
    """The id of an entry that is named by its id or its seq."""
    if name is None or not name.isdecimal() or any(entry.id == name for entry in entries):
        return name
    return next((entry.id for entry in entries if entry.seq == int(name)), name)


def _exported(
    entries: Entries,
    children: list[Entries],
    target: str,
    head: str | None,
    project: Path | None,
    *,
    keep_id: bool,
    keep_records: bool = True,
) -> Exported:
    writer = FORMATS[target].writer
    assert writer is not None
    directory = None if project is None else str(project.absolute())
    new_id = str(uuid4())  # Gemini CLI names a file after its minute and the first digits, which must not be the time.
    export = exported(
        entries,
        target,
        writer,
        head=head,
        new_id=new_id,
        may_keep_id=keep_id,
        may_keep_records=keep_records,
        directory=directory,
    )
    return with_children(export, target, writer, entries, children, may_keep_id=keep_id)


def _with_bases(export: Exported, target: str, origins: list[Entries], home: Path | None) -> Exported | None:
    """The export with the files that it continues and the program does not have; None if one of them is missing."""
    base_of = FORMATS[target].base_of
    patterns = {pattern for data in export.files.values() if (pattern := base_of(data)) is not None}
    installed_names = [
        path.name for pattern in patterns if home is not None for path in files_below(str(home), pattern)
    ]
    return with_bases(export, base_of, origins, installed_names)


def _document(entries: Entries, target: str, head: str | None) -> Exported:
    path = {entry.id for entry in branch(entries, head or entries[-1].id)}
    visible_entries: list[Entry] = [entry for entry in visible(entries) if entry.id in path]
    ending, write = _DOCUMENTS[target]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", entries.session_id).strip("-")[:100] + ending
    return Exported(entries.session_id, {name: write(visible_entries).encode("utf-8", "replace")}, "", False, ())


def _paths(export: Exported, target: str, out: Path | None, *, install: bool) -> list[Path]:
    """Where the files go; none if they are printed."""
    if install and not FORMATS[target].homes:
        raise UsageError(f"{FORMATS[target].title} has no folder for sessions; pass --out.")
    if install:
        if export.folder == ".":
            raise UsageError(
                f"{FORMATS[target].title} does not look for files; pass --out, then import the file there."
            )
        home = home_of(FORMATS[target])
        if home is None:
            title, places = FORMATS[target].title, " or ".join(FORMATS[target].homes)
            error = BartackError(f"{title} has no folder on this machine.", code=ErrorCode.INVALID_CONFIG)
            raise with_hint(error, f"Run {title} once, or set its folder: {places}. --out writes a file elsewhere.")
        return [_inside(_inside(home, export.folder_of(name)), name) for name in export.files]
    if out is None:
        if len(export.files) > 1:
            raise UsageError("This session has several files; pass --out with a folder.")
        return []
    if out.is_dir():
        return [_inside(out, name) for name in export.files]
    if len(export.files) > 1:
        raise UsageError(f"This session has several files; {out} must be an existing folder.")
    if out.exists():
        raise UsageError(f"{out} already exists.")
    return [out]


def _inside(folder: Path, name: str) -> Path:
    """The path of a file in this folder. Names come from the session, which may have been made to write elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        error = f"The session has a file name that is not safe to write: {visible_text(name)}"
        raise with_hint(BartackError(error, code=ErrorCode.INVALID_VALUE), "--out with a new file writes to that file.")
    return folder / path


def _report(export: Exported, target: str, paths: list[Path], *, install: bool, as_json: bool) -> None:
    writer = None if target in _DOCUMENTS else FORMATS[target].writer
    command = writer.resume.format(id=shlex.quote(safe_line(export.id))) if writer is not None and install else None
    if as_json and paths:
        losses = [{"where": loss.where, "what": loss.what, "why": loss.why} for loss in export.losses]
        files = [str(path) for path in paths]
        print_json({"id": export.id, "files": files, "exact": export.is_exact, "losses": losses, "resume": command})
        return
    for path in paths:
        note(f"wrote {path}")
    counts = Counter((_ACTIONS[loss.action], loss.what, loss.why) for loss in export.losses)
    for (action, loss, why), count in counts.items():
        note(safe_line(f"{action}: {loss} ({count}): {why}" if count > 1 else f"{action}: {loss}: {why}"))
    if command is not None:
        if export.directory != "/":
            note(f"Continue it in {safe_line(export.directory)} with:")
        print(command)
