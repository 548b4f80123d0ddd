"""An mkdocs hook that turns links to files of the repository into plain text.

A code host follows a link such as ``../packages/bartack/README.md``. The site contains the pages of docs/ only, and a
link that leaves this folder would be broken there.
"""

import posixpath
import re
from typing import Any

INLINE = re.compile(r"(?<!!)\[([^\]]+)\]\((?P<target>[^)#:\s]+)(?:#[^)]*)?\)")
DEFINITION = re.compile(r"^\[(?P<label>[^\]]+)\]: (?P<target>\S+)\n?", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page without links that leave docs/; their text stays."""
    folder = posixpath.dirname(page.file.src_uri)

    def leaves_docs(link: re.Match[str]) -> bool:
        return posixpath.normpath(posixpath.join(folder, link["target"])).startswith("../")

    for definition in filter(leaves_docs, [*DEFINITION.finditer(markdown)]):
        markdown = markdown.replace(definition[0], "").replace(f"[{definition['label']}]", definition["label"])
    return INLINE.sub(lambda link: link[1] if leaves_docs(link) else link[0], markdown)
