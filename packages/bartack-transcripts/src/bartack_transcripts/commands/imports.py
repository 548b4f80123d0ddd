"""`bartack import`: bring the sessions of other agents into the store."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import is_not
from pathlib import Path
from time import process_time
from typing import Annotated, Any

import typer

from bartack.app.notices import plural
from bartack.app.safe_text import safe_line
from bartack.app.sessions import configured_store, short_ids
from bartack.cli.options import JsonOption, StoreOption, new_app
from bartack.cli.output import Row, columns, note, print_json, print_table, progress_bar
from bartack.cli.store_access import with_store
from bartack.models.weights import cache_folder
from bartack.nouns.errors import BartackError, ErrorCode, StoreError
from bartack.store import SessionStore
from bartack_transcripts.disk.files import (
    FoundTranscript,
    as_it_is_now,
    error_text,
    find_transcripts,
    found_at,
    found_below,
    is_transcript,
    read_transcripts,
)
from bartack_transcripts.disk.importing import (
    ImportedTranscript,
    SeenFiles,
    fewer_collections,
    import_transcript,
    is_known_copy,
)
from bartack_transcripts.formats import FORMATS, Problem, Transcript

app = new_app("Import sessions of other agents.")

_AGENTS = columns("agent transcripts# MB# oldest newest")
_CHECKED = columns("session file~ read# opaque# damaged#")
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
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Transcripts to import, or folders with transcripts.")
    ] = None,
    *,
    agent: AgentsOption = None,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only sessions that worked in this directory or below it.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Import everything found.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Report what each file contains, and import nothing.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then keep importing what the agents add, until Ctrl-C.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import sessions of other agents. Their files are only read; importing again adds only what is new.

    Without FILE, the command searches where each agent keeps its transcripts. Without any options, it lists what it
    finds and imports nothing.
    """
    failures = _Failures()
    search = _Search(paths or (), agent or (), failures)
    sources = search.found(is_strict=True)
    if not (paths or agent or project or everything or check or follow):
        _show_found(sources, as_json=as_json)
        return
    work = _ImportRun(sources, None if project is None else project.absolute(), failures, skips_copies=not paths)
    if not (paths or check or project):
        work.seen = SeenFiles(cache_folder(), configured_store(store).text)
    if check:
        _report_check(work, as_json=as_json)
    elif follow:
        with_store(store, lambda opened: _follow(opened, work, search, as_json=as_json), may_be_new=True)
    else:
        imported = with_store(store, work.import_all, may_be_new=True)
        _report_import(work, imported, as_json=as_json)
    if failures.found:
        raise typer.Exit(1)


class _Failures:
    """What cannot be read or stored. It does not stop the rest, and is reported once."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], None] = {}

    def has(self, path: Path) -> bool:
        return any(failed == path for failed, _ in self.found)

    def add(self, path: Path, error: Exception) -> None:
        failure = path, error_text(error)
        if failure not in self.found:
            self.found[failure] = None
            has_path = isinstance(error, BartackError) and str(path) in failure[1]
            text = failure[1] if has_path else f"{path}: {failure[1]}"
            note(text)


class _Search:
    """Finds transcripts: in files and folders that were named, or where each agent keeps them."""

    def __init__(self, paths: Sequence[Path], agents: Sequence[str], failures: _Failures) -> None:
        self._paths = paths
        self._agents = agents
        self._failures = failures

    def found(self, *, is_strict: bool = False) -> list[FoundTranscript]:
        """All that there are now. `is_strict`: the only path that was named must be a transcript or have some."""
        if not self._paths:
            return list(find_transcripts(self._agents, self._failures.add))
        sources: list[FoundTranscript] = []
        for path in self._paths:
            try:
                sources += self._found(path)
            except (BartackError, OSError) as error:
                if is_strict and len(self._paths) == 1:
                    raise
                self._failures.add(path, error)
        return sources

    def _found(self, path: Path) -> list[FoundTranscript]:
        agent = self._agents[0] if self._agents else None
        is_folder = path.is_dir() and not is_transcript(path)
        below = list(found_below(path, agent, self._failures.add)) if is_folder else []
        return below or [found_at(path, agent)]


def _show_found(sources: Iterable[FoundTranscript], *, as_json: bool) -> None:
    by_agent: dict[str, list[FoundTranscript]] = {}
    for source in sources:
        by_agent.setdefault(source.format.title, []).append(source)
    if as_json:
        print_json({"agents": [_agent_json(several) for several in by_agent.values()]})
        return
    print_table(_AGENTS, map(_agent_row, by_agent.values()))
    if by_agent:
        note("Import all of them with --all, or some with --agent, --project or a file name.")
    else:
        note(f"no transcripts found (agents: {_NAMES})")


def _agent_json(sources: Sequence[FoundTranscript]) -> dict[str, Any]:
    return {
        "agent": sources[0].format.name,
        "transcripts": len(sources),
        "bytes": sum(source.size for source in sources),
        "oldest": min(source.modified for source in sources).isoformat(),
        "newest": max(source.modified for source in sources).isoformat(),
    }


def _agent_row(sources: Sequence[FoundTranscript]) -> Row:
    size = sum(source.size for source in sources) / 1e6
    oldest, newest = (f"{pick(source.modified for source in sources).astimezone():%Y-%m-%d}" for pick in (min, max))
    return sources[0].format.title, str(len(sources)), f"{size:.1f}", oldest, newest


async def _follow(store: SessionStore, work: "_ImportRun", search: _Search, *, as_json: bool) -> None:
    """Import all, and then again and again those that have changed."""
    versions: dict[Path, tuple[int, datetime]] = {}
    work.is_following = True
    while True:
        done = await work.import_all(store)
        versions |= {file.path: (file.size, file.modified) for file in work.found if file.path not in work.unfinished}
        if any(session.entries for session in done):
            _report_import(work, done, as_json=as_json)
            sys.stdout.flush()
        work.found = []
        pause_s = _PAUSE_S
        while not work.found:
            await asyncio.sleep(pause_s)
            began_s = process_time()
            work.found = [file for file in search.found() if versions.get(file.path) != (file.size, file.modified)]
            pause_s = pause_after(process_time() - began_s)


def pause_after(look_s: float) -> float:
    """The seconds until the next look at the files, after one that took this much CPU time: however many files there
    are, waiting for changes costs at most a fiftieth of a core."""
    return max(_PAUSE_S, 50 * look_s)


_PAUSE_S = 1.0  # the shortest time between two looks at the files
_QUIET = timedelta(seconds=10)  # A program that adds nothing for this long has completed its answer.
_ANSWERING = timedelta(minutes=10)  # the longest time that a program writes an answer


class _ImportRun:
    """Reads transcripts one by one, and collects what fails."""

    def __init__(
        self, sources: Sequence[FoundTranscript], project: Path | None, failures: _Failures, *, skips_copies: bool
    ) -> None:
        self.found = sources
        self.failures = failures
        self.damaged = 0  # records
        self.unfinished: set[Path] = set()  # files to read again: a session is in use, or its last answer may grow
        self.copies = 0  # files that were exported from this store, and not continued
        self.is_following = False  # whether files may be read while a line is written
        self._skips_copies = skips_copies
        self._project = project
        self.seen: SeenFiles | None = None  # files that need not be read again

    def read_all(self, description: str) -> Iterator[tuple[FoundTranscript, Transcript]]:
        """The transcripts in all files; one that cannot be read is reported."""
        with fewer_collections(), progress_bar(description, sum(source.size for source in self.found)) as advance:
            for source in self.found:
                for transcript in self._read(source):
                    yield source, transcript
                advance(source.size)

    def _read(self, source: FoundTranscript) -> list[Transcript]:
        if not source.size:  # a program has just begun it, or never wrote to it
            return []
        try:
            found_here = [
                transcript
                for transcript in read_transcripts(source, is_growing=self.is_following)
                if self._is_wanted(transcript)
            ]
            if found_here and not any(transcript.has_messages for transcript in found_here):
                if self._skips_copies:  # Programs leave such files behind. One that was named should have messages.
                    return []
                error_message = f"{source.path} has no messages of {source.format.title}."
                raise BartackError(error_message, code=ErrorCode.INVALID_VALUE)
            # Files that are found together are read one after the other: this one may have grown in the meantime.
            modified = as_it_is_now(source).modified if self.is_following else source.modified
        except (BartackError, OSError) as error:
            self.failures.add(source.path, error)
            return []
        read_at = datetime.now(UTC)
        if not self.is_following or modified < read_at - _QUIET:
            return found_here
        settled = [transcript.without_answer_since(read_at - _ANSWERING) for transcript in found_here]
        if any(map(is_not, settled, found_here)):
            self.unfinished.add(source.path)
        return settled

    def _is_wanted(self, transcript: Transcript) -> bool:
        if self._project is None:
            return True
        directory = (transcript.header.metadata or {}).get("directory")
        return isinstance(directory, str) and Path(directory).is_relative_to(self._project)

    async def import_all(self, store: SessionStore) -> list[ImportedTranscript]:
        """Import all files that are not known already."""
        done: list[ImportedTranscript] = []
        with fewer_collections(), progress_bar("importing", sum(source.size for source in self.found)) as advance:
            for several in _batches(self.found):
                # A commit waits for the disk, which takes longer than reading the next file; a store that is given
                # several sessions at a time waits once for all of them.
                for imported in await asyncio.gather(*(self._import(store, source, advance) for source in several)):
                    done += imported
        if self.seen is not None:
            self.seen.save()
        return done

    async def _import(
        self, store: SessionStore, source: FoundTranscript, advance: Callable[[int], None]
    ) -> list[ImportedTranscript]:
        done = await self._imported(store, source)
        advance(source.size)
        return done

    async def _imported(self, store: SessionStore, source: FoundTranscript) -> list[ImportedTranscript]:
        session_ids = None if self.seen is None else await self.seen.sessions_of(source, store)
        if session_ids is not None:
            return [ImportedTranscript(session_id, 0, False, False) for session_id in session_ids]
        done: list[ImportedTranscript] = []
        self.unfinished.discard(source.path)
        for transcript in self._read(source):
            if self._skips_copies and await is_known_copy(store, transcript):
                self.copies += 1
                continue
            self.damaged += transcript.report.total("damaged")
            try:
                done.append(await import_transcript(store, transcript, source.modified))
            except StoreError as error:  # such as a session in use; the others can still be imported
                self.unfinished.add(source.path)
                self.failures.add(source.path, error)
        if self.seen is not None and not self.is_following and not self.failures.has(source.path):
            self.seen.add(source, [session.session_id for session in done])
        return done


def _batches(sources: Sequence[FoundTranscript]) -> Iterator[list[FoundTranscript]]:
    """The files in groups that are read into memory together."""
    batch: list[FoundTranscript] = []
    size = 0
    for source in sources:
        if batch and (size + source.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size
    if batch:
        yield batch


_BATCH_BYTES, _BATCH_FILES = 4_000_000, 32


def _report_import(work: _ImportRun, imported: Sequence[ImportedTranscript], *, as_json: bool) -> None:
    changed = [session for session in imported if session.entries]
    if as_json:
        failures = [{"file": str(path), "error": error} for path, error in work.failures.found]
        print_json({"imported": [row._asdict() for row in changed], "sessions": len(imported), "failures": failures})
        return
    for session in changed if len(changed) <= _LISTED else ():
        print(safe_line(session.session_id))
    new_sessions = sum(session.is_new for session in changed)
    entries = sum(session.entries for session in changed)
    unchanged = plural(len(imported) - len(changed), "session")
    if changed:
        updated = f"{len(changed) - new_sessions} updated, {len(imported) - len(changed)} unchanged"
        note(f"imported {plural(entries, 'entry', 'entries')}: {plural(new_sessions, 'new session')}, {updated}")
    else:
        note(f"nothing new: {unchanged} unchanged" if imported else "no sessions to import")
    if work.damaged:
        note(f"{plural(work.damaged, 'damaged record')}, kept as far as they can be read; --check lists them")
    if work.copies:
        note(f"skipped {plural(work.copies, 'file')} written by 'bartack export' and not continued since")
    for session in changed:
        if session.is_rewritten:
            note(f"{safe_line(session.session_id)}: the file was rewritten; its new content is a branch of the session")


_LISTED = 20  # more ids than this are not printed


def _report_check(work: _ImportRun, *, as_json: bool) -> None:
    kinds: Counter[tuple[str, str, str]] = Counter()
    rows: list[dict[str, Any]] = []
    for source, transcript in work.read_all("checking"):
        report = transcript.report
        for (kind, outcome), count in report.counts.items():
            kinds[transcript.agent, kind, outcome] += count
        problems = [_problem_json(source, problem) for problem in report.problems]
        totals = {outcome: report.total(outcome) for outcome in ("read", "opaque", "damaged")}
        rows.append({"file": str(source.path), "session": transcript.session_id, **totals, "problems": problems})
    if as_json:
        names = ("agent", "record", "outcome", "count")
        counts = [dict(zip(names, (*key, count), strict=True)) for key, count in sorted(kinds.items())]
        print_json({"transcripts": rows, "records": counts})
        return
    _print_checked(rows)
    print()
    print_table(_KINDS, ((*map(safe_line, key), str(count)) for key, count in sorted(kinds.items())))
    for row in rows:
        for problem in row["problems"]:
            places = [row["file"], problem.get("in"), problem.get("record") and f"record {problem['record']}"]
            note(safe_line(f"{', '.join(filter(None, places))}: {problem['problem']}"))


def _problem_json(source: FoundTranscript, problem: Problem) -> dict[str, Any]:
    """Where a problem is: `in` is a file of a folder, or a row or table of a database."""
    inner = {} if problem.file == source.name else {"in": problem.file}
    place = {} if problem.place is None or inner else {"record": problem.place + 1}
    return {**inner, **place, "problem": problem.what}


def _print_checked(rows: Sequence[dict[str, Any]]) -> None:
    """A row for each session; on a terminal with short names."""
    sessions, files = [row["session"] for row in rows], [row["file"] for row in rows]
    if sys.stdout.isatty():
        sessions, files = short_ids(sessions), [Path(file).name for file in files]
    counts = ([str(row[key]) for key in ("read", "opaque", "damaged")] for row in rows)
    cells = zip(sessions, files, counts, strict=True)
    print_table(_CHECKED, ((safe_line(id), safe_line(file), *numbers) for id, file, numbers in cells))
