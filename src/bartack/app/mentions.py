"""Files that a prompt mentions: `@path` in a text in, parts of a message out.

`@src/app.py` attaches a file, `@src/app.py:10-20` some of its lines, `@src/` the names in a directory, and `@"my file"`
a path with spaces. A path that does not exist is left as it is: @ also starts decorators and user names.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bartack.app.attachments import load_attachment
from bartack.app.safe_text import valid_text
from bartack.nouns.parts import ContentPart, FileRef

_MENTION = re.compile(r'(?:(?<=\s)|^)@(?:"([^"\n]+)"|([^\s"]+))')
_RANGE = re.compile(r"(.+?):(\d+)(?:-(\d+))?")
_TRAILING = ".,;:!?)]}'"  # punctuation after a mention, unless the path has it
_MAX_NAMES = 500  # in a directory
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}
_MAX_COMPLETIONS = 100


class Mention(NamedTuple):
    """An existing file or directory, and the lines of it that are meant."""

    path: Path
    name: str  # as it was written
    first: int | None = None
    last: int | None = None


def mentions(text: str, directory: Path) -> list[Mention]:
    """The files and directories that a text mentions, each once."""
    found: dict[Mention, None] = {}
    for match in _MENTION.finditer(text):
        mention = _resolved(match[1] or match[2], directory)
        if mention is not None:
            found[mention] = None
    return list(found)


def _resolved(word: str, directory: Path) -> Mention | None:
    candidates = [word] if word == word.rstrip(_TRAILING) else [word, word.rstrip(_TRAILING)]
    for candidate in candidates:
        if not candidate:
            continue
        path = _path(candidate, directory)
        if path is not None:
            return Mention(path, candidate)
        if lines := _RANGE.fullmatch(candidate):
            path = _path(lines[1], directory)
            if path is not None and path.is_file():
                return Mention(path, candidate, int(lines[2]), int(lines[3] or lines[2]))
    return None


def _path(word: str, directory: Path) -> Path | None:
    try:
        path = directory / Path(word).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def attached(mention: Mention) -> ContentPart:
    """The content of a mention. Raises `PartValidationError` if it cannot be sent to a model."""
    if mention.path.is_dir():
        return _text_file(f"{mention.name.rstrip('/')}/", "\n".join(_names(mention.path)))
    part = load_attachment(mention.path)
    if mention.first is None or not isinstance(part, FileRef) or not (part.mime_type or "").startswith("text/"):
        return part
    last = max(mention.first, mention.last or mention.first)
    lines = (part.data or b"").decode("utf-8", "replace").splitlines()[max(mention.first - 1, 0) : last]
    return _text_file(mention.name, "\n".join(lines) or "(no such lines)")


def _text_file(name: str, text: str) -> FileRef:
    return FileRef.from_bytes(text.encode(), valid_text(name), mime_type="text/plain")


def command_output_part(command: str, output: str) -> ContentPart:
    """What a command printed that the user ran, for the next message."""
    return _text_file(f"$ {' '.join(command.split())}", output or "(no output)")


def _names(directory: Path) -> Iterator[str]:
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in directory.iterdir())
    yield from names[:_MAX_NAMES]
    if len(names) > _MAX_NAMES:
        yield f"[{len(names) - _MAX_NAMES} more]"


# -- typing mentions


def completions(typed: str, directory: Path) -> list[str]:
    """The paths that a mention may continue to; `typed` is what follows the @ so far. Directories end in a slash."""
    folder, _, start = typed.rpartition("/")
    where = _path(f"{folder}/" if folder or typed.startswith("/") else ".", directory)
    if where is None or not where.is_dir():
        return []
    try:
        entries = sorted(where.iterdir())
    except OSError:
        return []
    prefix = f"{folder}/" if "/" in typed else ""
    found = [
        f"{prefix}{path.name}/" if path.is_dir() else f"{prefix}{path.name}"
        for path in entries
        if path.name.lower().startswith(start.lower())
        and path.name not in _SKIPPED
        and (start.startswith(".") or not path.name.startswith("."))
    ]
    return found[:_MAX_COMPLETIONS]


def as_mention(path: str) -> str:
    """How a path is mentioned."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def pasted_text(pasted: str, directory: Path) -> str:
    """What a paste inserts: its lines, or mentions of the files that were dropped on the terminal."""
    text = pasted.replace("\r\n", "\n").replace("\r", "\n")
    mention = dropped(text, directory)
    return text if mention is None else f"{mention} "


def dropped(pasted: str, directory: Path) -> str | None:
    """The mentions for a paste that consists of paths of existing files, as terminals paste files that are dropped on
    them; None for any other text."""
    text = pasted.strip()
    if not text or "\n" in text or not ("/" in text or "'" in text or "\\" in text):
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    paths = [re.sub(r"^file://(?:localhost)?(?=/)", "", word) for word in words]
    if not paths or not all(path.startswith(("/", "~")) and _path(path, directory) is not None for path in paths):
        return None
    return " ".join(as_mention(_relative(path, directory)) for path in paths)


def _relative(path: str, directory: Path) -> str:
    absolute = Path(path).expanduser()
    return str(absolute.relative_to(directory)) if absolute.is_relative_to(directory) else str(absolute)
