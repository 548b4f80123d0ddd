"""The image in the clipboard, read with the program that the desktop has for that."""

import subprocess
from hashlib import sha256
from pathlib import Path

from bartack.nouns.media_types import type_of_data
from bartack.store.files import new_file

_PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_TIMEOUT_S = 5.0


def clipboard_image() -> bytes | None:
    """The image as PNG; None if there is none, or no program that can read it."""
    for words in _PROGRAMS:
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0 and type_of_data(done.stdout) == "image/png":
            return done.stdout
    return None


def saved_image(folder: Path) -> Path | None:
    """The image in the clipboard, as a file in this folder; None if there is none. Raises `OSError`."""
    data = clipboard_image()
    if data is None:
        return None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{sha256(data).hexdigest()[:12]}.png"
    if not path.exists():
        with new_file(path, overwrite=False) as file:
            file.write(data)
    return path
