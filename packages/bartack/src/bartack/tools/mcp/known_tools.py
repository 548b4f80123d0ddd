"""`KnownTools`: the definitions that tools had when they were last used, so that a later change is noticed.

A server can change a tool or its description after the user has decided to trust it. The digests are kept in one file
for all sessions, because that decision applies to all of them: "never ask about this tool" is a setting.
"""

from importlib.util import find_spec
from pathlib import Path

from bartack.nouns.logs import logger
from bartack.tools.mcp.private_file import changed_file, read_file

__all__ = ["KnownTools", "default_path"]

_log = logger("tools")


def default_path() -> Path | None:
    """The file in the user's data folder; None without the package that finds the folder."""
    if find_spec("platformdirs") is None:
        return None
    import platformdirs  # noqa: PLC0415 - an extra

    return Path(platformdirs.user_data_dir("bartack", appauthor=False)) / "mcp-tools.json"


class KnownTools:
    """The digests of one server's tools. Without a file they are kept in memory."""

    def __init__(self, path: Path | None, server: str) -> None:
        """`server` identifies the server by its name and address."""
        self._path = path
        self._server = server
        self._digests: dict[str, str] | None = None

    def get(self, tool: str) -> str | None:
        """The digest that the tool had when it was last used."""
        if self._digests is None:
            digests = read_file(self._path).get(self._server)
            self._digests = digests if isinstance(digests, dict) else {}
        return self._digests.get(tool)

    def record(self, tool: str, digest: str) -> None:
        """Note that the tool is used with this definition. If the file cannot be written, that is logged, and the
        next session compares with what the file had before."""
        if self.get(tool) == digest:
            return
        assert self._digests is not None
        self._digests[tool] = digest
        if self._path is None:
            return
        try:
            changed_file(self._path, lambda servers: servers.setdefault(self._server, {}).update({tool: digest}))
        except OSError as error:
            _log.warning("cannot write %s: %s", self._path, error.strerror)
