"""A new user's way from a clone to a committed change, as docs/guides/first-change.md shows it."""

import subprocess
from pathlib import Path

from rich.text import Text

from lab.draw_chat import ASKED, SCRIPT, TEST, film, walk
from tests.code.chat.scene import scene
from tests.code.chat.terminal import needs_tmux

pytestmark = needs_tmux


def test_a_failing_test_is_fixed_and_committed(tmp_path: Path) -> None:
    with scene(tmp_path, *SCRIPT) as stage:
        shots = walk(stage)
        clone = stage.project / "herbarium"
        assert "day == today" in (clone / "plants.py").read_text()
        log = subprocess.run(["git", "log", "--format=%an %s"], cwd=clone, capture_output=True, text=True, check=True)
        assert log.stdout.splitlines() == ["Ada Compare days by value", "Ada Add the catalogue"]
        status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, check=True)
        assert status.stdout == b""
        assert stage.user_texts() == [ASKED, "Commit it."]
    screens = [Text.from_ansi(shot.ansi).plain for shot in shots]
    assert "FAILED: expected" in screens[3]
    question = next(screen for screen in screens if "+1 -1" in screen)
    assert "6 -     return [name for name, day in plants.items() if day is today]" in question
    assert "6 +     return [name for name, day in plants.items() if day == today]" in question
    assert any(TEST in screen and "\n  OK" in screen for screen in screens)
    assert "1 file changed, 1 insertion(+), 1 deletion(-)" in screens[-1]
    picture = film(shots, columns=92, rows=30, title="x")
    assert picture.count('<g class="shot ') == len(shots)
