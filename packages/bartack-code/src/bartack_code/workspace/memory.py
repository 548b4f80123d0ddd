"""The user's memory for all projects: `AGENTS.md` beside the configuration file.

It is a part of the instructions in every project, as those of the project are. The model can propose to change it with
the tool `edit_memory`, which is asked about like a change to the `AGENTS.md` of a project: no rule covers it.
"""

from typing import Any

from bartack import ToolContext, ToolError
from bartack.app.permissions import MEMORY_TOOL
from bartack.app.settings import config_path
from bartack.tools import tool
from bartack.tools.file_changes import planned_change
from bartack.tools.file_operations import FileOperations
from bartack.tools.runtime import EditFile, WriteFile
from bartack.tools.sandbox import SandboxedDirectory
from bartack_code.workspace.project import NAMES, ProjectFile, text_of_file

_NAME = NAMES[0]
_MAX_OUTPUT_BYTES = 1_000_000  # Required, but no command is ever run here.


def user_memory() -> list[ProjectFile]:
    """The user's own instructions; empty if there are none. The file may be a link to one elsewhere."""
    path = config_path().with_name(_NAME)
    text = text_of_file(path, path.resolve().parent)
    return [ProjectFile(path, text, is_memory=True)] if text else []


def _preview(arguments: dict[str, Any]) -> dict[str, Any]:
    files, operation = _opened(arguments["old"], arguments["new"])
    try:
        change = planned_change(operation, files.content(operation)).as_json()
    finally:
        files.close()
    return {**change, "path": str(config_path().with_name(_NAME))}


@tool(name=MEMORY_TOOL, requires_approval=True, sequential=True, preview=_preview)
def edit_memory(ctx: ToolContext, old: str, new: str) -> str:
    """Propose a change to the user's instructions for all projects. Use it if the user asks you to remember something
    that holds everywhere. What concerns this project belongs into its AGENTS.md instead.

    Args:
        old: The text to replace, copied exactly, or empty to add a line at the end.
        new: The replacement, or the line to add.
    """
    files, operation = _opened(old, new)
    try:
        before = (ctx.preview or {}).get("before")
        output = files.edit(operation, before) if isinstance(operation, EditFile) else files.write(operation, before)
    finally:
        files.close()
    return str(output.content)


def _opened(old: str, new: str) -> tuple[FileOperations, EditFile | WriteFile]:
    path = config_path().with_name(_NAME).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = FileOperations(SandboxedDirectory(path.parent), _MAX_OUTPUT_BYTES)
    except OSError as error:
        raise ToolError(f"{path.parent}: {error.strerror}", cause=error) from None
    if old:
        return files, EditFile(path=path.name, old=old, new=new)
    text = files.content(WriteFile(path=path.name, text="")).text or ""
    return files, WriteFile(path=path.name, text=f"{text.rstrip()}\n{new.rstrip()}\n".lstrip("\n"))
