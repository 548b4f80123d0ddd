"""`ToolRegistry`: a set of tools, such as those of one agent. Sets can be filtered, renamed and combined."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.definition import ToolDefinition, tool

__all__ = ["ToolRegistry", "Tools"]


class ToolRegistry:
    """Tools with unique names, in the order they were added."""

    def __init__(self, tools: "Tools" = ()) -> None:
        """Contains the given tools, and those of the given sets."""
        self._tools: dict[str, ToolDefinition] = {}
        for one in tools:
            for added in one if isinstance(one, ToolRegistry) else (one,):
                self.add(added)

    def add(self, added: ToolDefinition | Callable[..., Any]) -> ToolDefinition:
        """Add a tool, or a typed function as one; `BartackError` if the name is taken."""
        definition = added if isinstance(added, ToolDefinition) else tool(added)
        if definition.name in self._tools:
            raise BartackError(f"Duplicate tool name {definition.name!r}.", code=ErrorCode.INVALID_CONFIG)
        self._tools[definition.name] = definition
        return definition

    def get(self, name: str) -> ToolDefinition | None:
        """The tool with this name, or None."""
        return self._tools.get(name)

    def filtered(self, keep: Callable[[ToolDefinition], bool]) -> "ToolRegistry":
        """The tools that `keep` returns true for, as a new set."""
        return ToolRegistry(one for one in self if keep(one))

    def prefixed(self, prefix: str) -> "ToolRegistry":
        """The same tools with names that begin with `prefix`, as a new set."""
        return ToolRegistry(replace(one, name=f"{prefix}{one.name}") for one in self)

    @property
    def names(self) -> tuple[str, ...]:
        """The tool names, in the order they were added."""
        return tuple(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def build_model_tool_specs(self) -> tuple[ToolSpec, ...]:
        """The specs for a model request, sorted by name so that the order of adding does not affect prompt caches."""
        return tuple(self._tools[name].spec for name in sorted(self._tools))


Tools = Iterable[ToolDefinition | ToolRegistry | Callable[..., Any]]  # tools, sets of tools, and typed functions
