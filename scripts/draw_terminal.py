"""Draw docs/pictures/chat.svg: a real conversation with the local model in `bartack chat`, typed into a real terminal.

    python scripts/draw_terminal.py

It needs tmux and the weights (``bartack models pull``). The chat runs in a project of three files in a temporary
folder, with its own home. The answers are the model's own, so look at the picture before you keep it.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from bartack.models.weights import known_models

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "chat.svg"
COLUMNS, ROWS = 92, 60
LIMIT_S = 300.0

FILES = {
    "README.md": "# Herbarium\n\nA tiny catalogue of plants. Run it with `python plants.py`.\n",
    "plants.py": 'PLANTS = ["fern", "moss", "clover"]\n\nfor plant in PLANTS:\n    print(plant)\n',
    "notes.txt": "water the fern on Tuesday\n",
}
PROMPTS = (
    "What does README.md say?",
    "Write a file hello.txt with the text: good morning",
)


class Chat:
    """`bartack chat` in its own tmux server."""

    def __init__(self, folder: Path) -> None:
        project = folder / "herbarium"
        project.mkdir()
        for name, content in FILES.items():
            (project / name).write_text(content, encoding="utf-8")
        # without keys and the user's own stores and settings
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.endswith(("_API_KEY", "_TOKEN")) and not name.startswith("BARTACK_")
        }
        cache = next(iter(known_models().values())).path.parent.parent
        own = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
        environment = {**kept, **own, "BARTACK_CACHE": str(cache), "COLORTERM": "truecolor", "PS1": ""}
        self._tmux = ["tmux", "-L", f"bartack-picture-{os.getpid()}", "-f", os.devnull]
        command = f"{sys.executable} -m bartack.cli chat; sleep 600"
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, "-c", str(project), command], env=environment, check=True
        )

    def type(self, text: str, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)
        for key in keys:
            subprocess.run([*self._tmux, "send-keys", key], check=True)

    def screen(self, *options: str) -> str:
        shown = subprocess.run(
            [*self._tmux, "capture-pane", "-p", *options], check=True, capture_output=True, text=True
        )
        return shown.stdout

    def wait(self, is_there: Callable[[str], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_there(self.screen()):
            if time.monotonic() > deadline:
                sys.exit(f"waited for {what}; the screen is:\n{self.screen()}")
            time.sleep(0.2)

    def close(self) -> None:
        where = subprocess.run(
            [*self._tmux, "display-message", "-p", "#{socket_path}"], check=False, capture_output=True, text=True
        )
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
        if where.stdout.strip():
            Path(where.stdout.strip()).unlink(missing_ok=True)  # tmux does not remove it


def is_asking(screen: str) -> bool:
    """Whether a tool call awaits approval."""
    return "[y]es" in screen.rstrip().rpartition("\n")[2]


def is_ready(screen: str) -> bool:
    """Whether the chat shows an empty prompt above the status line, or a question."""
    lines = [line.rstrip() for line in screen.splitlines() if line.strip()]
    return is_asking(screen) or "›" in lines[-2:]


def main() -> None:
    if not next(iter(known_models().values())).is_downloaded:
        sys.exit("the local model is not downloaded; run: bartack models pull")
    with TemporaryDirectory() as folder:
        chat = Chat(Path(folder))
        try:
            chat.wait(is_ready, "the first prompt")
            for prompt in PROMPTS:
                chat.type(prompt, "Enter")
                time.sleep(1)
                chat.wait(is_ready, f"the end of the answer to {prompt!r}")
                if is_asking(chat.screen()):
                    chat.type("y", "Enter")
                    time.sleep(1)
                    chat.wait(is_ready, "the end of the answer after the approval")
            ansi = chat.screen("-e")
        finally:
            chat.close()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(ansi), encoding="utf-8")
    print(Text.from_ansi(ansi).plain)


def drawn(ansi: str) -> str:
    """The screen as SVG, without the empty lines above the status line and without web fonts."""
    lines = ansi.rstrip().splitlines()
    status = lines.pop()
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join([*lines, "", status])), soft_wrap=True)
    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="bartack chat", theme=MONOKAI, code_format=template, unique_id="bartack")


if __name__ == "__main__":
    main()
