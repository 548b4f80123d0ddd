"""`ToolRegistry`: the tools of one agent, by name."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.tools.definition import ToolDefinition, tool

__all__ = ["ToolRegistry"]


class ToolRegistry:
    """Tools with unique names, in the order they were added."""

    def __init__(self, tools: Iterable[ToolDefinition | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, ToolDefinition] = {}
        for one in tools:
            self.add(one)

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
