"""Draw docs/pictures/walk.svg and chat-*.svg: `bartack chat` in a real terminal, with a scripted model and real tools.

    python -m lab.draw_chat [FOLDER]

`walk.svg` is a film of a new user's way from `git clone` to a committed change. The shell, the repository, the failing
test, the edit and the commit are real; only the answers of the model are scripted. The others are single screens of a
chat in a project of two files.

It needs tmux and git. With Chromium, each screen is also written as a PNG to FOLDER, to be looked at.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import NamedTuple

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from lab.repository import ROOT
from tests.cli.provider_server import Step
from tests.code.chat.gates import Gated
from tests.code.chat.scene import Scene, scene

PICTURES = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 92, 30


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    draw_walk(folder)
    draw_screens(folder)


def call(name: str, **arguments: object) -> Step:
    return {"call": name, "arguments": arguments}


def is_asking(screen: str) -> bool:
    """Whether a tool call awaits approval."""
    return screen.rstrip().endswith("[q] stop:")


class Shot(NamedTuple):
    """One screen of a film, and how long it is shown."""

    ansi: str
    seconds: float


# -- the film of a first change

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


def draw_walk(folder: Path | None) -> None:
    with TemporaryDirectory() as place, scene(Path(place), *SCRIPT) as stage:
        shots = walk(stage)
    (PICTURES / "walk.svg").write_text(film(shots, columns=COLUMNS, rows=ROWS, title="~/herbarium"), encoding="utf-8")
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


def is_ready(screen: str) -> bool:
    """Whether the chat shows an empty prompt above its status line."""
    lines = [line.rstrip() for line in screen.splitlines() if line.strip()]
    return "›" in lines[-2:]


# -- single screens

UPLOAD = '''\
"""Send a body to the server."""

ATTEMPTS = 3


def upload(client, body):
    response = client.put("/files", body)
    return response.status


def download(client):
    return client.get("/files")
'''
OLD = '    response = client.put("/files", body)\n    return response.status\n'
NEW = """\
    for _ in range(ATTEMPTS):
        response = client.put("/files", body)
        if response.status != 503:
            break
    return response.status
"""
PLAN = [
    {"text": "Read upload.py", "status": "done"},
    {"text": "Retry on 503, at most three times", "status": "doing"},
    {"text": "Run the checks", "status": "todo"},
]
PROMPT = "Uploads in @upload.py fail when the server answers 503. Make them retry."


def draw_screens(folder: Path | None) -> None:
    gate = Event()
    script = (
        ["I make a plan first.", call("update_plan", steps=PLAN)],
        [call("edit_file", path="upload.py", old=OLD, new=NEW)],
        [call("run_command", command="python3 -c 'import upload; print(1 / 0)'")],
        Gated(["The check fails, but not because of the change: ", {"gate": gate}, "it divides by zero."]),
        ["Done."],
    )
    with TemporaryDirectory() as place, scene(Path(place), *script) as stage:
        (stage.project / "upload.py").write_text(UPLOAD, encoding="utf-8")
        (stage.project / "AGENTS.md").write_text("Use type hints.\n", encoding="utf-8")
        pictures = take_pictures(stage, gate)
    for name, ansi in pictures.items():
        path = PICTURES / f"chat-{name}.svg"
        path.write_text(still(ansi, columns=COLUMNS, title="bartack chat"), encoding="utf-8")
        if folder is not None:
            as_png(path, folder / f"chat-{name}.png")


def take_pictures(stage: Scene, gate: Event) -> dict[str, str]:
    """The screens, with their escape sequences."""
    pictures: dict[str, str] = {}
    with stage.chat(columns=COLUMNS, rows=ROWS, COLORTERM="truecolor") as chat:
        chat.wait_for("from now on? [y/N]")  # the project has an AGENTS.md
        chat.say("y")
        chat.wait_for_prompt()
        chat.say(PROMPT)
        chat.wait_for(is_asking)
        pictures["approval"] = chat.colors()
        chat.say("y")
        chat.wait_for(lambda screen: is_asking(screen) and "1 / 0" in screen)
        chat.say("y")
        chat.wait_for("The check fails")
        chat.say("Then fix that as well")
        chat.type("and tell me")
        chat.wait_for(lambda screen: "› and tell me" in screen and "next step: Then fix" in screen)
        pictures["answer"] = chat.colors()
        gate.set()
        chat.wait_for("Done.")
        chat.key("C-u")
        chat.wait_for_prompt()
        chat.say("/sessions")
        chat.wait_for("search:")
        chat.wait_for("The check fails")  # in the preview
        pictures["sessions"] = chat.colors()
        chat.key("Escape")
        chat.wait_for_prompt()
        chat.say("/undo")
        chat.wait_for("undone")
        chat.key("C-u")
    return pictures


# -- screens as SVG
#
# In: the text of screens with escape sequences, as ``tmux capture-pane -e`` gives it. Out: an SVG without web fonts and
# scripts. A film is animated by its style sheet, so that it also plays as a picture in a README; for readers who prefer
# less motion it shows its last screen.

_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
_TEMPLATE = _FONTS.sub("", CONSOLE_SVG_FORMAT)
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def still(ansi: str, *, columns: int, title: str, name: str = "bartack", rows: int | None = None) -> str:
    """One screen, without the empty lines at its end, or with this number of rows. `name` is unique in a document."""
    lines = ansi.rstrip().splitlines()
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    lines += [""] * ((rows or 0) - len(lines))
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title=title, theme=MONOKAI, code_format=_TEMPLATE, unique_id=name)


def film(shots: Sequence[Shot], *, columns: int, rows: int, title: str) -> str:
    """The screens one after the other, again and again."""
    frames = [
        still(shot.ansi, columns=columns, rows=rows, title=title, name=f"shot{number}")
        for number, shot in enumerate(shots)
    ]
    size_match = _SIZE.search(frames[0])
    assert size_match is not None  # the template has it
    total = sum(shot.seconds for shot in shots)
    rules, begin = [], 0.0
    for number, shot in enumerate(shots):
        end = begin + shot.seconds
        rules.append(_rule(number, begin / total * 100, end / total * 100, total))
        begin = end
    last = len(shots) - 1
    calm = f"@media (prefers-reduced-motion) {{ .shot {{ animation: none !important }} .shot{last} {{ opacity: 1 }} }}"
    style = "\n".join([".shot { opacity: 0 }", *rules, calm])
    body = "\n".join(f'<g class="shot shot{number}">{frame}</g>' for number, frame in enumerate(frames))
    size = f'viewBox="0 0 {size_match[1]} {size_match[2]}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{style}\n</style>\n{body}\n</svg>\n'


def _rule(number: int, begin: float, end: float, total: float) -> str:
    """When a screen is seen, in percent of the film."""
    beginning = f"0%, {begin - 0.01:.2f}% {{ opacity: 0 }} " if begin else ""
    ending = "" if end > 99.99 else f" {end + 0.01:.2f}%, 100% {{ opacity: 0 }}"
    frames = f"{beginning}{begin:.2f}%, {end:.2f}% {{ opacity: 1 }}{ending}"
    return f"@keyframes shot{number} {{ {frames} }} .shot{number} {{ animation: shot{number} {total:.1f}s infinite }}"


def as_png(svg: Path, png: Path) -> None:
    """The picture as a PNG, drawn by Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={png}", "--window-size=1150,800"]
    subprocess.run([chromium, *words, str(svg)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
