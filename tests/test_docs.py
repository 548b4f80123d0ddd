"""The docs say what is so: the diagrams are those of the tables."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_diagrams_are_drawn_from_the_tables() -> None:
    script = ROOT / "scripts" / "draw_tables.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_diagram_that_is_not_current_is_noticed() -> None:
    from scripts import draw_tables

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert draw_tables.drawn(page.replace("running --> completed", "running --> lost")) == page
