"""Files attached to a prompt: a path or a text with mentions in, parts of a message out.

The type of a file is read from its first bytes. In a text, `@src/app.py` attaches a file, `@src/app.py:10-20` some of
its lines, `@src/` the names in a directory, and `@"my file"` or `@'my file'` a path with spaces. A path that does not
exist stays as it is: @ also starts decorators and user names.

A name that is not UTF-8 is written and found with U+FFFD for each byte that is not.
"""

import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from bartack.app.errors import with_hint
from bartack.app.safe_text import valid_text
from bartack.formats import ModelRequest, encode
from bartack.formats.losses import Loss
from bartack.models.local import LocalModel
from bartack.models.model import Model
from bartack.models.provider import ProviderModel
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.nouns.messages import Message
from bartack.nouns.parts import ContentPart, FileRef, Image, type_of_data

MAX_BYTES = 50_000_000  # no provider accepts more in one request
# Every provider accepts plain text; some handle these kinds of it specially.
_TEXTS = {".csv": "text/csv", ".html": "text/html", ".md": "text/markdown"}


def load_attachment(path: Path) -> Image | FileRef:
    """The file as an image, a PDF or UTF-8 text. Raises `PartValidationError` for anything else."""
    name = valid_text(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _attachment_error(name, f"{error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _attachment_error(name, f"larger than {MAX_BYTES // 1_000_000} MB")
    if not data:
        raise _attachment_error(name, "the file is empty")
    kind = type_of_data(data)
    if kind is not None:
        if kind.startswith("image/"):
            return Image.from_bytes(data, mime_type=kind, name=name)
        return FileRef.from_bytes(data, name, mime_type=kind)
    if not _is_text(data):
        raise _attachment_error(name, "unsupported file type")
    return FileRef(name, mime_type=_TEXTS.get(path.suffix.lower(), "text/plain"), data=data, size=len(data))


def unsupported_content(model: Model, message: Message) -> tuple[Loss, ...]:
    """The content of this message that the model's provider does not accept, if that is known before a request."""
    match model:
        case ProviderModel():
            return model.prepare((message,)).report.losses
        case LocalModel():
            request = ModelRequest((message,), config=model.get_config(), provider="local")
            return encode("openai-chat", request).report.losses
        case _:
            return ()


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _attachment_error(name: str, problem: str) -> PartValidationError:
    """The error for a file that cannot be sent to a model."""
    error = PartValidationError(f"Cannot attach {name}: {problem}.", path="--attach", code=ErrorCode.INVALID_CONFIG)
    return with_hint(error, "Images (PNG, JPEG, GIF, WebP), PDFs and UTF-8 text files can be attached.")


# -- files that a prompt mentions

_MENTION = re.compile(r"""(?:(?<=\s)|^)@(?:(?:"([^"\n]+)"|'([^'\n]+)')(:\d+(?:-\d+)?)?|([^\s"]+))""")
_RANGE = re.compile(r"(.+?):(\d+)(?:-(\d+))?")
_TRAILING = ".,;:!?)]}'"  # punctuation after a mention, unless the path has it
_MAX_TEXT = 4_000_000  # bytes of a text; no model reads more
_MAX_NAMES = 500  # names listed of a directory
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}
_MAX_COMPLETIONS = 100
_MIN_SEARCHED, _MAX_SEARCHED = 2, 20_000  # characters typed before subdirectories are searched, and files looked at


class Mention(NamedTuple):
    """An existing file or directory, and the lines of it that are meant."""

    path: Path
    name: str  # the path as the user wrote it
    first: int | None = None
    last: int | None = None


def mentions(text: str, directory: Path) -> list[Mention]:
    """The files and directories that a text mentions, each once."""
    unique: dict[Mention, None] = {}
    for match in _MENTION.finditer(text):
        quoted, lines = match[1] or match[2], match[3] or ""
        mention = _resolved(match[4] if quoted is None else quoted + lines, directory)
        if mention is not None:
            unique[mention] = None
    return list(unique)


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
        return path if path.exists() else _shown_as(path)
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def _shown_as(path: Path) -> Path | None:
    """The only path that is shown like this one."""
    if "\ufffd" not in path.name:
        return None
    matches = [sibling for sibling in path.parent.iterdir() if valid_text(sibling.name) == path.name]
    return matches[0] if len(matches) == 1 else None


def load_mention(mention: Mention) -> ContentPart:
    """The content of a mention. Raises `PartValidationError` if it cannot be sent to a model."""
    if mention.path.is_dir():
        return _text_file(f"{mention.name.rstrip('/')}/", "\n".join(_names(mention)))
    if not mention.path.is_file():  # reading a pipe or a device may never end
        raise _attachment_error(mention.name, "it is neither a file nor a directory")
    part = load_attachment(mention.path)
    if not isinstance(part, FileRef) or not (part.mime_type or "").startswith("text/"):
        return part
    if mention.first is not None:
        last = max(mention.first, mention.last or mention.first)
        text = (part.data or b"").decode("utf-8", "replace").removesuffix("\n")
        lines = text.split("\n")[max(mention.first - 1, 0) : last]
        part = _text_file(mention.name, "\n".join(lines) if lines else "(no such lines)")
    size = len(part.data or b"")
    if size > _MAX_TEXT:
        raise _attachment_error(mention.name, f"{size / 1e6:.0f} MB are more than a model can read; choose some lines")
    return part


def _text_file(name: str, text: str) -> FileRef:
    return FileRef.from_bytes(text.encode(), valid_text(name), mime_type="text/plain")


def command_output_part(command: str, output: str) -> ContentPart:
    """What a command printed that the user ran, for the next message."""
    return _text_file(f"$ {' '.join(command.split())}", output or "(no output)")


def _names(mention: Mention) -> Iterator[str]:
    try:
        entries = list(mention.path.iterdir())
    except OSError as error:
        raise _attachment_error(mention.name, f"{error.strerror}") from error
    names = sorted(valid_text(_listed_name(path)) for path in entries)
    yield from names[:_MAX_NAMES]
    if len(names) > _MAX_NAMES:
        yield f"[{len(names) - _MAX_NAMES} more]"


def _listed_name(path: Path) -> str:
    """The name of an entry; that of a directory ends in a slash."""
    is_directory = os.path.isdir(path)  # noqa: PTH112 - unlike that of Path, it is False for what cannot be looked at
    return f"{path.name}/" if is_directory else path.name


# -- typing mentions


def completions(typed: str, directory: Path) -> list[str]:
    """The paths that a mention may continue to; `typed` is what follows the @ so far. Directories end in a slash.

    The start of a name also finds files in the directories below.
    """
    folder, _, start = typed.rpartition("/")
    where = _path(f"{folder}/" if folder or typed.startswith("/") else ".", directory)
    if where is None or not where.is_dir():
        return []
    try:
        entries = sorted(where.iterdir())
    except OSError:
        return []
    prefix = f"{folder}/" if "/" in typed else ""
    offered = [valid_text(f"{prefix}{_listed_name(path)}") for path in entries if _is_offered(path.name, start)]
    below = _files_below(directory, start) if len(start) >= _MIN_SEARCHED and not prefix else iter(())
    return [*offered, *islice(below, _MAX_COMPLETIONS)][:_MAX_COMPLETIONS]


def _is_offered(name: str, start: str) -> bool:
    """Hidden files only if the dot was typed."""
    is_hidden = name.startswith(".") and not start.startswith(".")
    return name.lower().startswith(start.lower()) and name not in _SKIPPED and not is_hidden


def _files_below(directory: Path, start: str) -> Iterator[str]:
    """The files in subdirectories whose names start like this, as far as they are found quickly."""
    file_count = 0
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if _is_offered(name, ""))
        file_count += len(names)
        if file_count > _MAX_SEARCHED:
            return
        if place != str(directory):
            yield from (
                valid_text(str(Path(place, name).relative_to(directory)))
                for name in sorted(names)
                if _is_offered(name, start)
            )


def as_mention(path: str) -> str:
    """How a path is mentioned."""
    if not re.search(r"""[\s"]""", path):
        return f"@{path}"
    return f"@'{path}'" if '"' in path else f'@"{path}"'


def pasted_text(pasted: str, directory: Path) -> str:
    """What a paste inserts: its lines, or mentions of the files that were dropped on the terminal."""
    text = pasted.replace("\r\n", "\n").replace("\r", "\n")
    mention = dropped_mentions(text, directory)
    return text if mention is None else f"{mention} "


def dropped_mentions(pasted: str, directory: Path) -> str | None:
    """The mentions for a paste that consists of paths of existing files, as terminals paste files that are dropped on
    them; None for any other text."""
    text = pasted.strip()
    if not text or "\n" in text or not ("/" in text or "'" in text or "\\" in text):
        return None
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    paths = [_without_scheme(word) for word in words]
    if not paths or not all(path.startswith(("/", "~")) and _path(path, directory) is not None for path in paths):
        return None
    return " ".join(as_mention(_relative(path, directory)) for path in paths)


def _without_scheme(word: str) -> str:
    path = re.sub(r"^file://(?:localhost)?(?=/)", "", word)
    return path if path == word else unquote(path)


def _relative(path: str, directory: Path) -> str:
    absolute = Path(path).expanduser()
    return str(absolute.relative_to(directory)) if absolute.is_relative_to(directory) else str(absolute)
