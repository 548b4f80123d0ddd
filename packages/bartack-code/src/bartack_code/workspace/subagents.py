"""Sub-agents: `explore`, which reads, `task`, which does everything, and those that Markdown files define.

A sub-agent is a tool. It works in a session of its own, with the model of the run that calls it, so that what it reads
does not fill the context of the conversation; only its answer does. Its calls need the same approvals as any other, and
its number of answers is limited. It cannot start further sub-agents.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bartack.agent import Agent, Hooks
from bartack.models.model import Model
from bartack.nouns.config import AgentConfig, LoopConfig
from bartack.tools import ApprovalPolicy, Runtime, ToolDefinition, file_tools
from bartack_code.workspace.extensions import Extension, Extensions, skill_tool

__all__ = ["BUILT_IN", "SubagentDefinition", "defined_by", "extension_tools"]

_TIMEOUT_MS = 3_600_000
_MAX_TURNS = 60
_READING = ("read_file", "list_files", "search_files")
# What other agents call the same tools.
_OTHER_NAMES = {
    "Read": "read_file", "NotebookRead": "read_file", "Grep": "search_files", "Glob": "list_files", "LS": "list_files",
    "Edit": "edit_file", "MultiEdit": "edit_file", "Write": "write_file", "Bash": "run_command", "WebFetch": "fetch",
}  # fmt: skip


class SubagentDefinition(NamedTuple):
    """A sub-agent: when to use it, what it is told, and which tools it has; None for all."""

    name: str
    description: str
    instructions: str
    tools: tuple[str, ...] | None = None
    max_turns: int = _MAX_TURNS


BUILT_IN = (
    SubagentDefinition(
        "explore",
        "Explores the project with tools that only read: finds where something is, how it works, or what would be "
        "affected by a change. Use it for searches that need many files, so that they do not fill your context; "
        "several at once for independent questions.",
        "You explore a project to answer one question, and change nothing. Search broadly first, then read the parts "
        "that matter. Answer with the facts and where you found them, as path:line, and with what you could not find. "
        "Your answer is all that the caller sees.",
        _READING,
        40,
    ),
    SubagentDefinition(
        "task",
        "Does a self-contained task with all tools for files and commands, and reports what it did. It sees nothing of "
        "this conversation, so the prompt must contain everything it needs.",
        "You do one task in a project, completely, and nothing beyond it. Read before you change, follow the "
        "conventions that you find, and test what you changed. Your answer is all that the caller sees: state what you "
        "changed, how you verified it, and what is not done.",
    ),
)


def defined_by(extension: Extension) -> SubagentDefinition:
    """The sub-agent that a Markdown file defines: ``name``, ``description``, ``tools`` and ``max_turns`` in its header,
    and its instructions below."""
    fields = extension.fields
    listed = [word.strip(" []\"'") for word in fields.get("tools", "").split(",")]
    names = tuple(dict.fromkeys(_OTHER_NAMES.get(word, word) for word in listed if word and word != "*"))
    turns = fields.get("max_turns", "")
    return SubagentDefinition(
        fields.get("name") or extension.name,
        extension.description,
        extension.text.strip(),
        names or None,
        min(int(turns), 500) if turns.isdecimal() and int(turns) else _MAX_TURNS,
    )


def extension_tools(
    extensions: Extensions,
    *,
    model: Model,
    runtime: Runtime,
    approval: ApprovalPolicy | None,
    further: Iterable[ToolDefinition] = (),
    project: str = "",
    hooks: Sequence[Hooks] = (),
) -> list[ToolDefinition]:
    """The sub-agents as tools, and the tool that reads skills if there are some.

    A file with the name of a built-in sub-agent replaces it. `further` are tools beside those for files, and `project`
    is added to the instructions.
    """
    definitions = {definition.name: definition for definition in BUILT_IN}
    for extension in extensions.agents.values():
        definition = defined_by(extension)
        definitions[definition.name] = definition
    available: Sequence[ToolDefinition] = (*file_tools(), *further)
    skills = [skill_tool(extensions.skills)] if extensions.skills else []
    return skills + [
        Agent(
            model,
            name=definition.name,
            tools=[each for each in available if definition.tools is None or each.name in definition.tools],
            instructions="\n\n".join(filter(None, (definition.instructions, project))),
            runtime=runtime,
            approval=approval,
            hooks=hooks,
            config=AgentConfig(loop=LoopConfig(max_iterations=definition.max_turns)),
        ).as_tool(definition.name, definition.description, timeout_ms=_TIMEOUT_MS, uses_outer_model=True)
        for definition in definitions.values()
    ]
