"""The long description of the package: README.md without relative links.

Package indexes do not resolve relative links. If ``home`` in the table of this hook in pyproject.toml has the URL of
the repository, they become GitHub links to the files of this version, and the project URLs are set. Otherwise a link
becomes plain text and a picture is left out, so that no link is broken.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class DescriptionHook(MetadataHookInterface):
    """Fills in what pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it builds or installs the package."""
        home = str(self.config.get("home", "")).rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        described = published(text, home, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": described}
        metadata["urls"] = (
            {"Source": home, "Issues": f"{home}/issues", "Changelog": f"{home}/blob/main/CHANGELOG.md"} if home else {}
        )


def published(text: str, home: str, version: str) -> str:
    """The text with absolute links, or without relative ones if there is no home. Code is left as it is."""

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if home:
            return f"{mark}[{label}]({home}/{'raw' if mark else 'blob'}/{version}/{target})"
        return "" if mark else label

    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("```") else _LINK.sub(link, piece) for piece in pieces)
