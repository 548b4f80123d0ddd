"""`Toolset`: tools that are known only once something is connected, such as those of a server.

An agent opens its toolsets when a run starts and again before each model call, so that tools may come and go between
two turns. They stay open for later runs, until the agent is closed.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from bartack.tools.definition import ToolDefinition

__all__ = ["ChangedToolset", "Toolset", "origin_of"]


@runtime_checkable
class Toolset(Protocol):
    """A set of tools that can be given to an agent next to functions and registries."""

    @property
    def name(self) -> str:
        """What the set is called in messages; unique within an agent."""

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools as they are known now."""

    @property
    def hints(self) -> str | None:
        """Instructions for the model."""

    async def open(self) -> None:
        """Connect if needed, and pick up changes.

        Takes a limited time and does not raise if the other side fails: the set then has no tools, or those it had.
        """

    async def close(self) -> None:
        """Release everything. The set can be opened again."""

    def problem(self, tool_name: str) -> str | None:
        """Why a tool of this name is missing; None if it is not one of this set's names."""


class ChangedToolset:
    """Some of the tools of another set, or the same ones under other names."""

    def __init__(
        self, origin: Toolset, change: Callable[[ToolDefinition], ToolDefinition | None], *, prefix: str = ""
    ) -> None:
        """`change` returns the tool to offer, or None to leave it out."""
        self.origin = origin
        self._change = change
        self._prefix = prefix
        self._seen: tuple[ToolDefinition, ...] = ()  # the origin's tools, and what they were changed to
        self._changed: tuple[ToolDefinition, ...] = ()

    @property
    def name(self) -> str:
        return self.origin.name

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        tools = self.origin.tools
        if len(tools) != len(self._seen) or any(
            tool is not earlier for tool, earlier in zip(tools, self._seen, strict=True)
        ):
            self._seen = tools  # a definition compiles its schema, which is not to be repeated for every call
            self._changed = tuple(changed for changed in map(self._change, tools) if changed is not None)
        return self._changed

    @property
    def hints(self) -> str | None:
        return self.origin.hints

    async def open(self) -> None:
        await self.origin.open()

    async def close(self) -> None:
        await self.origin.close()

    def problem(self, tool_name: str) -> str | None:
        if not tool_name.startswith(self._prefix):
            return None
        return self.origin.problem(tool_name.removeprefix(self._prefix))


def origin_of(toolset: Toolset) -> Toolset:
    """The set itself, whose tools a `ChangedToolset` offers in another form."""
    while isinstance(toolset, ChangedToolset):
        toolset = toolset.origin
    return toolset
