"""The docs say what is so: the diagrams are those of the tables, the code runs, the links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft.models import VENDORS

ROOT = Path(__file__).parent.parent


def python(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_the_diagrams_are_drawn_from_the_tables() -> None:
    done = python(str(ROOT / "scripts" / "draw_tables.py"), "--check")
    assert done.returncode == 0, done.stderr


def test_a_diagram_that_is_not_current_is_noticed() -> None:
    from scripts import draw_tables

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert draw_tables.drawn(page.replace("running --> completed", "running --> lost")) == page


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> str:
    """The Python of a page, block after block, as a reader would type it."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"], input=blocks(page), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_names_every_vendor_beside_its_format() -> None:
    rows = re.findall(r"^\| `([^|]+)` \| ([^|]+) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {vendor: format for format, vendors in rows for vendor in vendors.split(", ")}
    assert named == {name: row.format for name, row in VENDORS.items()}


def test_the_first_look_runs_without_a_key() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "first_look.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stream_truncated" in done.stdout
    assert "arguments so far: {'city': 'Paris', 'days': 1}" in done.stdout
