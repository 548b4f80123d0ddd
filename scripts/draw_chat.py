"""Draw docs/pictures/chat-*.svg: `bartack chat` in a real terminal, with a scripted model and real tools.

    python -m scripts.draw_chat [FOLDER]

It needs tmux. The chat works in a project of two files in a temporary folder. With Chromium, each picture is also
written as a PNG to FOLDER, to be looked at.
"""

import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.cli.chat.gates import Gated
from tests.cli.chat.scene import Scene, scene
from tests.cli.provider_server import Step

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS, ROWS = 92, 30
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


def call(name: str, **arguments: object) -> Step:
    return {"call": name, "arguments": arguments}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    gate = Event()
    script = (
        ["I make a plan first.", call("update_plan", steps=PLAN)],
        [call("edit_file", path="upload.py", old=OLD, new=NEW)],
        [call("run_command", command="python3 -c 'import upload; print(1 / 0)'")],
        Gated(["The check fails, but not because of the change: ", {"gate": gate}, "it divides by zero."]),
        ["Done."],
    )
    with TemporaryDirectory() as place, scene(Path(place), *script) as here:
        (here.project / "upload.py").write_text(UPLOAD, encoding="utf-8")
        (here.project / "AGENTS.md").write_text("Use type hints.\n", encoding="utf-8")
        pictures = taken(here, gate)
    for name, ansi in pictures.items():
        path = PICTURES / f"chat-{name}.svg"
        path.write_text(drawn(ansi), encoding="utf-8")
        if folder is not None:
            as_png(path, folder / f"chat-{name}.png")


def taken(here: Scene, gate: Event) -> dict[str, str]:
    """The screens, with their escape sequences."""
    pictures: dict[str, str] = {}
    with here.chat(columns=COLUMNS, rows=ROWS, COLORTERM="truecolor") as chat:
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
        chat.wait_for(lambda screen: "› and tell me" in screen and "queued: Then fix" in screen)
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


def is_asking(screen: str) -> bool:
    """Whether a tool call awaits approval."""
    return screen.rstrip().endswith("[q] stop:")


def drawn(ansi: str) -> str:
    """The screen as SVG, without the empty lines at its end and without web fonts."""
    lines = ansi.rstrip().splitlines()
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="bartack chat", theme=MONOKAI, code_format=template, unique_id="bartack")


def as_png(svg: Path, png: Path) -> None:
    """The picture as a PNG, drawn by Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={png}", "--window-size=1150,800", str(svg)]
    subprocess.run([chromium, *words], check=True, capture_output=True)


if __name__ == "__main__":
    main()
