"""Record docs/pictures/walk.svg: a new user's way from `git clone` to a committed change, in a real terminal.

    python -m lab.record_walk [FOLDER]

It needs tmux and git. The shell, the repository, the failing test, the edit and the commit are real; only the answers
of the model are scripted. With Chromium, some of its screens are also written as PNG to FOLDER, to be looked at.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.terminal_svg import Shot, as_png, film, still
from tests.cli.provider_server import Step
from tests.code.chat.scene import Scene, scene

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "walk.svg"
COLUMNS, ROWS = 92, 30
FILES = {
    "plants.py": '''\
"""A tiny catalogue of plants."""


def thirsty(plants, today):
    """The names of the plants whose day it is."""
    return [name for name, day in plants.items() if day is today]
''',
    "test_plants.py": """\
from plants import thirsty

today = "".join(["Tues", "day"])
found = thirsty({"fern": "Tuesday", "moss": "Friday"}, today)
if found != ["fern"]:
    raise SystemExit(f"FAILED: expected ['fern'], got {found}")
print("OK")
""",
    ".gitignore": "__pycache__/\n",
}
TEST = "python3 test_plants.py"  # no traceback, which would show where the recording was made
COMMIT = 'git commit -qam "Compare days by value" && git log --oneline -2'
ASKED = "The test fails. Find out why, and fix it."


def call(name: str, **arguments: object) -> Step:
    return {"call": name, "arguments": arguments}


SCRIPT = (
    ["I'll run the test first.", call("run_command", command=TEST)],
    ["It finds no plants. Let me read the function.", call("read_file", path="plants.py")],
    [
        "`day is today` compares identity, so equal strings may not match. It should be `==`.",
        call("edit_file", path="plants.py", old="day is today", new="day == today"),
    ],
    [call("run_command", command=TEST)],
    ["The test passes now. The cause was `is` instead of `==` in `thirsty`."],
    [call("run_command", command=COMMIT, unsandboxed=True)],  # .git is read-only in the sandbox
    ["Committed."],
)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with TemporaryDirectory() as place, scene(Path(place), *SCRIPT) as stage:
        shots = walk(stage)
    PICTURE.write_text(film(shots, columns=COLUMNS, rows=ROWS, title="~/herbarium"), encoding="utf-8")
    for number, shot in enumerate(shots if folder is not None else ()):
        assert folder is not None
        picture = folder / f"walk-{number:02}.svg"
        picture.write_text(still(shot.ansi, columns=COLUMNS, rows=ROWS, title="~/herbarium"), encoding="utf-8")
        as_png(picture, picture.with_suffix(".png"))


def walk(stage: Scene) -> list[Shot]:
    """Perform the walk, and return the screens."""
    origin = repository(stage)
    shots: list[Shot] = []
    with stage.shell(columns=COLUMNS, rows=ROWS, COLORTERM="truecolor") as shell:

        def shoot(seconds: float, expected: str | Callable[[str], bool]) -> None:
            shell.wait_for(expected)
            shots.append(Shot(shell.colors(), seconds))

        def typed(text: str, seconds: float, expected: str | Callable[[str], bool]) -> None:
            """Type, as seen before and after Enter."""
            shell.type(text)
            shoot(1.2, text[-20:])
            shell.key("Enter")
            shoot(seconds, expected)

        shell.wait_for("$")
        typed(f"git clone -q {origin} herbarium && cd herbarium && ls", 1.5, "test_plants.py")
        typed(TEST, 2.5, "FAILED: expected")
        typed("clear; bartack", 2.0, lambda screen: "/help" in screen and "\n›" in screen)
        typed(ASKED, 3.0, is_asking)
        typed("y", 5.0, lambda screen: is_asking(screen) and "+ " in screen)
        typed("y", 3.0, lambda screen: is_asking(screen) and "Replaced 1" in screen)
        typed("y", 3.0, lambda screen: "The cause was" in screen and is_ready(screen))
        typed("Commit it.", 3.0, lambda screen: is_asking(screen) and "git commit" in screen)
        typed("y", 3.0, lambda screen: "Committed." in screen and is_ready(screen))
        typed("/quit", 1.5, lambda screen: screen.rstrip().endswith("$"))
        typed("git show --stat --oneline", 5.0, "1 file changed")
    return shots


def repository(stage: Scene) -> str:
    """The address of a repository to clone, with a function that has a bug and a test that finds it."""
    origin = stage.project / "origin"
    origin.mkdir()
    for name, content in FILES.items():
        (origin / name).write_text(content, encoding="utf-8")
    Path(stage.env["HOME"], ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n", encoding="utf-8")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Add the catalogue"]):
        subprocess.run(["git", *words], cwd=origin, env=stage.env, check=True)
    return "origin"


def is_asking(screen: str) -> bool:
    """Whether a tool call awaits approval."""
    return screen.rstrip().endswith("[q] stop:")


def is_ready(screen: str) -> bool:
    """Whether the chat shows an empty prompt above its status line."""
    lines = [line.rstrip() for line in screen.splitlines() if line.strip()]
    return "›" in lines[-2:]


if __name__ == "__main__":
    main()
