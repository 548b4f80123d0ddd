"""Generate the tables of formats in the guide to transcripts from the rows in bartack_transcripts/formats.py."""

from collections.abc import Iterable

from bartack_transcripts.formats import FORMATS, TranscriptFormat
from lab.pages import fill_section
from lab.repository import ROOT

PAGE = ROOT / "docs" / "guides" / "transcripts.md"
_EXTENSION = "/globalStorage/"


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + "---|" * columns, *(f"| {' | '.join(row)} |" for row in rows)])


def _home(row: TranscriptFormat) -> str:
    """Where the program keeps its sessions, in words."""
    if any(_EXTENSION in home for home in row.homes):
        return f"the folder `{row.homes[0].rpartition(_EXTENSION)[2]}` of VS Code"
    *others, last = (f"`{home}`" for home in row.homes)
    return f"{', '.join(others)} or {last}" if others else last


def _what(row: TranscriptFormat) -> tuple[str, str]:
    return f"`{row.name}`", f"{row.title}: {row.contents}"


def _directions(row: TranscriptFormat) -> str:
    return "read only" if row.writer is None else "yes"


def drawn(text: str) -> str:
    """The page with both tables regenerated."""
    programs = [row for row in FORMATS.values() if row.homes]
    files = [row for row in FORMATS.values() if not row.homes]
    text = fill_section(
        text,
        "programs",
        _table(
            "name | program | where it keeps sessions | exports | left out",
            ((*_what(row), _home(row), _directions(row), row.limits) for row in programs),
        ),
    )
    return fill_section(
        text,
        "files",
        _table("name | format | exports | left out", ((*_what(row), _directions(row), row.limits) for row in files)),
    )


def main() -> None:
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
