"""Which folders the user trusts: their instruction files become a part of what the model is told.

A cloned repository is written by others, and its instructions reach the model before the user has read them. So they
are used only after the user has agreed once for the folder. The list is in the user's configuration folder, where no
repository can add itself. Trust covers the folders below, as the instructions do, except that trust in the user's home
covers only the files there: most of what is cloned and unpacked is below it.
"""

from pathlib import Path

from bartack.app.errors import with_hint
from bartack.app.settings import config_path
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.mcp.private_file import changed_file, read_file

__all__ = ["is_trusted", "trust", "trust_file"]


def trust_file() -> Path:
    """The file that lists the trusted folders. If it cannot be read, no folder is trusted."""
    return config_path().with_name("trusted.json")


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts this folder, or one above it."""
    trusted, folder, home = read_file(trust_file()), folder.resolve(), Path.home().resolve()
    above = (parent for parent in folder.parents if not home.is_relative_to(parent))
    return any(trusted.get(str(covering)) is True for covering in (folder, *above))


def trust(folder: Path) -> None:
    """Trust a folder from now on. Raises `BartackError` if the list cannot be written."""
    try:
        changed_file(trust_file(), lambda trusted: trusted.update({str(folder.resolve()): True}))
    except OSError as error:
        problem = f"The list of trusted folders {trust_file()} cannot be written: {error.strerror}."
        raise with_hint(BartackError(problem, code=ErrorCode.INVALID_CONFIG), "Fix or delete it.") from error
