"""`bartack import`: bring the sessions of other agents into the store."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bartack.app.notices import plural
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store
from bartack.app.transcripts import (
    Found,
    Imported,
    SeenFiles,
    fewer_collections,
    find_transcripts,
    found_at,
    import_transcript,
    read_transcripts,
)
from bartack.cli.options import JsonOption, StoreOption, new_app
from bartack.cli.output import Row, columns, note, print_json, print_table, progress_bar
from bartack.cli.store_access import with_store
from bartack.interop import FORMATS, Transcript
from bartack.models.weights import cache_folder
from bartack.nouns.errors import BartackError, StoreError
from bartack.store import SessionStore

app = new_app("Import sessions of other agents.")

_AGENTS = columns("agent transcripts# MB# oldest newest")
_CHECKED = columns("file session read# opaque# damaged#")
_KINDS = columns("agent record outcome count#")
_NAMES = ", ".join(sorted(FORMATS))


def _known(agents: list[str] | None) -> list[str] | None:
    for agent in agents or ():
        if agent not in FORMATS:
            raise typer.BadParameter(f"unknown agent {agent!r}; choose from {_NAMES}")
    return agents


AgentsOption = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="NAME", callback=_known, help=f"Only this agent; may be repeated: {_NAMES}."),
]


@app.command(no_args_is_help=False)
def import_(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Transcripts to import.")] = None,
    *,
    agent: AgentsOption = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only sessions that worked in this directory or below it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Import all that is found.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Report what is understood, and import nothing.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then keep importing what the agents add, until Ctrl-C.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import sessions of other agents. Their files are only read; importing again adds only what is new.

    Without FILE, transcripts are searched where each agent keeps them. With no option at all, the command shows what
    it finds and imports nothing.
    """
    found = _given(paths, agent) if paths else list(find_transcripts(agent or ()))
    if not (paths or agent or project or everything or check or follow):
        _show_found(found, as_json=as_json)
        return
    work = _Work(found, None if project is None else project.absolute())
    if not (paths or check or project):
        work.seen = SeenFiles(cache_folder(), configured_store(store).text)
    if check:
        _report_check(work, as_json=as_json)
    elif follow:
        find = (lambda: _given(paths, agent)) if paths else (lambda: list(find_transcripts(agent or ())))
        with_store(store, lambda opened: _follow(opened, work, find, as_json=as_json), may_be_new=True)
    else:
        imported = with_store(store, work.import_all, may_be_new=True)
        _report_import(work, imported, as_json=as_json)
    if work.failures:
        raise typer.Exit(1)


def _given(paths: Sequence[Path], agents: list[str] | None) -> list[Found]:
    return [found_at(path, agents[0] if agents else None) for path in paths]


def _show_found(found: Iterable[Found], *, as_json: bool) -> None:
    by_agent: dict[str, list[Found]] = {}
    for one in found:
        by_agent.setdefault(one.format.title, []).append(one)
    if as_json:
        print_json({"agents": [_agent_json(several) for several in by_agent.values()]})
        return
    print_table(_AGENTS, map(_agent_row, by_agent.values()))
    if by_agent:
        note("Import them with --all, or some of them with --agent NAME, --project DIR or a file name.")
    else:
        note(f"no transcripts found (agents: {_NAMES})")


def _agent_json(found: Sequence[Found]) -> dict[str, Any]:
    return {
        "agent": found[0].format.name,
        "transcripts": len(found),
        "bytes": sum(one.size for one in found),
        "oldest": min(one.modified for one in found).isoformat(),
        "newest": max(one.modified for one in found).isoformat(),
    }


def _agent_row(found: Sequence[Found]) -> Row:
    size = sum(one.size for one in found) / 1e6
    oldest, newest = (f"{pick(one.modified for one in found).astimezone():%Y-%m-%d}" for pick in (min, max))
    return found[0].format.title, str(len(found)), f"{size:.1f}", oldest, newest


async def _follow(store: SessionStore, work: "_Work", find: Callable[[], list[Found]], *, as_json: bool) -> None:
    """Import all, and then again and again those that have changed."""
    seen: dict[Path, tuple[int, datetime]] = {}
    while True:
        done = await work.import_all(store)
        seen |= {found.path: (found.size, found.modified) for found in work.found}
        if any(one.entries for one in done):
            _report_import(work, done, as_json=as_json)
            sys.stdout.flush()
        work.found = []
        while not work.found:
            await asyncio.sleep(_PAUSE_S)
            work.found = [found for found in find() if seen.get(found.path) != (found.size, found.modified)]
        work.failures = []


_PAUSE_S = 1.0  # between two looks at the files


class _Work:
    """Reads transcripts one by one, and collects what fails."""

    def __init__(self, found: Sequence[Found], project: Path | None) -> None:
        self.found = found
        self._project = project
        self.failures: list[tuple[Path, str]] = []
        self.seen: SeenFiles | None = None  # files that need not be read again

    def read_all(self, description: str) -> Iterator[tuple[Found, Transcript]]:
        """The transcripts in all files; one that cannot be read is reported."""
        with fewer_collections(), progress_bar(description, sum(found.size for found in self.found)) as advance:
            for found in self.found:
                for transcript in self._read(found):
                    yield found, transcript
                advance(found.size)

    def _read(self, found: Found) -> list[Transcript]:
        try:
            return [one for one in read_transcripts(found) if self._is_wanted(one)]
        except (BartackError, OSError) as error:
            self.fail(found, error)
            return []

    def _is_wanted(self, transcript: Transcript) -> bool:
        if self._project is None:
            return True
        directory = (transcript.header.metadata or {}).get("directory")
        return isinstance(directory, str) and Path(directory).is_relative_to(self._project)

    def fail(self, found: Found, error: Exception) -> None:
        self.failures.append((found.path, getattr(error, "message", str(error))))
        note(f"{found.path}: {self.failures[-1][1]}")

    async def import_all(self, store: SessionStore) -> list[Imported]:
        """Import all files that are not known already."""
        done: list[Imported] = []
        with fewer_collections(), progress_bar("importing", sum(found.size for found in self.found)) as advance:
            for found in self.found:
                known = None if self.seen is None else await self.seen.sessions_of(found, store)
                if known is None:
                    done += await self._import(store, found)
                else:
                    done += [Imported(session_id, 0, False, False) for session_id in known]
                advance(found.size)
        if self.seen is not None:
            self.seen.save()
        return done

    async def _import(self, store: SessionStore, found: Found) -> list[Imported]:
        failures = len(self.failures)
        done: list[Imported] = []
        for transcript in self._read(found):
            try:
                done.append(await import_transcript(store, transcript, found.modified))
            except StoreError as error:  # such as a session in use; the others can still be imported
                self.fail(found, error)
        if self.seen is not None and len(self.failures) == failures:
            self.seen.add(found, [one.session_id for one in done])
        return done


def _report_import(work: _Work, imported: Sequence[Imported], *, as_json: bool) -> None:
    changed = [one for one in imported if one.entries]
    if as_json:
        failures = [{"file": str(path), "error": error} for path, error in work.failures]
        print_json({"imported": [one._asdict() for one in changed], "sessions": len(imported), "failures": failures})
        return
    for one in changed if len(changed) <= _LISTED else ():
        print(safe_line(one.session_id))
    new = sum(one.is_new for one in changed)
    entries = sum(one.entries for one in changed)
    note(
        f"imported {plural(entries, 'entry', 'entries')}: {plural(new, 'new session')}, "
        f"{len(changed) - new} updated, {len(imported) - len(changed)} unchanged"
    )
    for one in changed:
        if one.is_rewritten:
            note(f"{safe_line(one.session_id)}: the file was rewritten; its new content is a branch of the session")


_LISTED = 20  # more ids than this are not printed


def _report_check(work: _Work, *, as_json: bool) -> None:
    kinds: Counter[tuple[str, str, str]] = Counter()
    rows: list[dict[str, Any]] = []
    for found, transcript in work.read_all("checking"):
        report = transcript.report
        for (kind, outcome), count in report.counts.items():
            kinds[transcript.agent, kind, outcome] += count
        problems = [{"record": problem.place + 1, "problem": problem.what} for problem in report.problems]
        totals = {outcome: report.total(outcome) for outcome in ("read", "opaque", "damaged")}
        rows.append({"file": str(found.path), "session": transcript.session_id, **totals, "problems": problems})
    if as_json:
        names = ("agent", "record", "outcome", "count")
        counts = [dict(zip(names, (*key, count), strict=True)) for key, count in sorted(kinds.items())]
        print_json({"transcripts": rows, "records": counts})
        return
    print_table(_CHECKED, (tuple(safe_line(str(row[key])) for key in _CHECK_KEYS) for row in rows))
    print()
    print_table(_KINDS, ((*map(safe_line, key), str(count)) for key, count in sorted(kinds.items())))
    for row in rows:
        for problem in row["problems"]:
            note(f"{row['file']}, record {problem['record']}: {problem['problem']}")


_CHECK_KEYS = ("file", "session", "read", "opaque", "damaged")
