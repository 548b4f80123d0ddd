"""Draw docs/pictures/chat-*.svg: `bartack chat` in a real terminal, with a scripted model and real tools.

    python -m lab.draw_chat [FOLDER]

It needs tmux. The chat works in a project of two files in a temporary folder. With Chromium, each picture is also
written as a PNG to FOLDER, to be looked at.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from lab.terminal_svg import as_png, still
from tests.cli.provider_server import Step
from tests.code.chat.gates import Gated
from tests.code.chat.scene import Scene, scene

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


if __name__ == "__main__":
    main()
