"""`ToolRegistry`: a set of tools, such as those of one agent. Sets can be filtered, renamed and combined."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.nouns.logs import logger
from bartack.tools.definition import ToolDefinition, tool
from bartack.tools.toolset import ChangedToolset, Toolset

__all__ = ["ToolRegistry", "Tools"]

_log = logger("tools")


class ToolRegistry:
    """Tools with unique names, in the order they were added; those of toolsets come last."""

    def __init__(self, tools: "Tools" = ()) -> None:
        """Contains the given tools, and those of the given sets."""
        self._fixed: dict[str, ToolDefinition] = {}
        self._toolsets: dict[str, Toolset] = {}
        self._hidden: set[str] = set()  # names of toolsets that are taken; reported once
        for one in tools:
            if isinstance(one, ToolRegistry):
                for added in one._fixed.values():
                    self.add(added)
                for toolset in one.toolsets:
                    self._add_toolset(toolset)
            elif isinstance(one, Toolset):
                self._add_toolset(one)
            else:
                self.add(one)

    def add(self, added: ToolDefinition | Callable[..., Any]) -> ToolDefinition:
        """Add a tool, or a typed function as one; `BartackError` if the name is taken."""
        if not isinstance(added, ToolDefinition) and not callable(added):
            hint = "; use agent.as_tool(name, description)" if hasattr(added, "as_tool") else ""
            text = f"A tool must be a function or a ToolDefinition, not {type(added).__name__}{hint}."
            raise BartackError(text, code=ErrorCode.INVALID_CONFIG)
        definition = added if isinstance(added, ToolDefinition) else tool(added)
        if definition.name in self._fixed:
            raise BartackError(f"Duplicate tool name {definition.name!r}.", code=ErrorCode.INVALID_CONFIG)
        self._fixed[definition.name] = definition
        return definition

    def _add_toolset(self, added: Toolset) -> None:
        if added.name in self._toolsets:
            raise BartackError(f"Duplicate toolset name {added.name!r}.", code=ErrorCode.INVALID_CONFIG)
        self._toolsets[added.name] = added

    @property
    def _tools(self) -> dict[str, ToolDefinition]:
        if not self._toolsets:
            return self._fixed
        found = dict(self._fixed)
        for toolset in self._toolsets.values():
            for one in toolset.tools:
                if found.setdefault(one.name, one) is not one and one.name not in self._hidden:
                    self._hidden.add(one.name)
                    _log.warning("tool %s of toolset %s is left out: the name is taken", one.name, toolset.name)
        return found

    def get(self, name: str) -> ToolDefinition | None:
        """The tool with this name, or None."""
        return self._tools.get(name)

    def filtered(self, keep: Callable[[ToolDefinition], bool]) -> "ToolRegistry":
        """The tools that `keep` returns true for, as a new set."""
        return self._changed(lambda one: one if keep(one) else None)

    def prefixed(self, prefix: str) -> "ToolRegistry":
        """The same tools with names that begin with `prefix`, as a new set."""
        return self._changed(lambda one: replace(one, name=f"{prefix}{one.name}"), prefix=prefix)

    def _changed(self, change: Callable[[ToolDefinition], ToolDefinition | None], prefix: str = "") -> "ToolRegistry":
        fixed = [changed for one in self._fixed.values() if (changed := change(one)) is not None]
        return ToolRegistry([*fixed, *(ChangedToolset(one, change, prefix=prefix) for one in self.toolsets)])

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
        tools = self._tools
        return tuple(tools[name].spec for name in sorted(tools))

    # -- toolsets

    @property
    def toolsets(self) -> tuple[Toolset, ...]:
        """The sets whose tools are known only while they are open."""
        return tuple(self._toolsets.values())

    @property
    def hints(self) -> tuple[str, ...]:
        """What the toolsets add to the system prompt."""
        return tuple(hints for one in self.toolsets if (hints := one.hints))

    async def open(self) -> None:
        """Open the toolsets, all at the same time, or let them pick up changes."""
        if self._toolsets:
            await asyncio.gather(*(one.open() for one in self.toolsets))

    def problem(self, name: str) -> str | None:
        """Why there is no tool of this name, if a toolset can explain it."""
        return next((problem for one in self.toolsets if (problem := one.problem(name))), None)


Tools = Iterable[  # tools, sets of tools, and typed functions
    ToolDefinition | ToolRegistry | Toolset | Callable[..., Any]
]
