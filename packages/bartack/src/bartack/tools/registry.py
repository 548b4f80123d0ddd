"""`ToolRegistry`: a set of tools, such as those of one agent. Sets can be filtered, renamed and combined."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from bartack.nouns.config import ToolSpec
from bartack.nouns.errors import ConfigError
from bartack.nouns.hosted_tools import ProviderTool
from bartack.nouns.logs import logger
from bartack.tools.definition import ToolDefinition, tool
from bartack.tools.toolset import ChangedToolset, Toolset

__all__ = ["ToolRegistry", "Tools"]

_log = logger("tools")


class ToolRegistry:
    """Tools with unique names, in the order they were added; those of toolsets come last.

    It contains the tools that this process executes. Those that the provider executes are only declared.
    """

    def __init__(self, tools: "Tools" = ()) -> None:
        """Contains the given tools, and those of the given sets."""
        self._fixed: dict[str, ToolDefinition] = {}
        self._hosted: dict[str, ProviderTool] = {}
        self._toolsets: dict[str, Toolset] = {}
        self._hidden: set[str] = set()  # names of toolsets that are taken; reported once
        for item in tools:
            if isinstance(item, ToolRegistry):
                for added in item._fixed.values():
                    self.add(added)
                for hosted in item._hosted.values():
                    self._add_hosted(hosted)
                for toolset in item.toolsets:
                    self._add_toolset(toolset)
            elif isinstance(item, Toolset):
                self._add_toolset(item)
            elif isinstance(item, ProviderTool):
                self._add_hosted(item)
            else:
                self.add(item)

    def add(self, added: ToolDefinition | Callable[..., Any]) -> ToolDefinition:
        """Add a tool, or a typed function as one; `BartackError` if the name is taken."""
        if not isinstance(added, ToolDefinition) and not callable(added):
            hint = "; use agent.as_tool(name, description)" if hasattr(added, "as_tool") else ""
            if isinstance(added, dict):
                hint = "; declare a tool of the provider with provider_tool(vendor, {...}) or a class such as WebSearch"
            text = f"A tool must be a function or a ToolDefinition, not {type(added).__name__}{hint}."
            raise ConfigError(text, path="$.tools")
        definition = added if isinstance(added, ToolDefinition) else tool(added)
        self._refuse_duplicate(definition.name)
        self._fixed[definition.name] = definition
        return definition

    def _add_hosted(self, added: ProviderTool) -> None:
        self._refuse_duplicate(added.name)
        self._hosted[added.name] = added

    def _refuse_duplicate(self, name: str) -> None:
        if name in self._fixed or name in self._hosted:
            raise ConfigError(f"Duplicate tool name {name!r}.")

    def _add_toolset(self, added: Toolset) -> None:
        if added.name in self._toolsets:
            raise ConfigError(f"Duplicate toolset name {added.name!r}.")
        self._toolsets[added.name] = added

    @property
    def _tools(self) -> dict[str, ToolDefinition]:
        if not self._toolsets:
            return self._fixed
        tools = dict(self._fixed)
        for toolset in self._toolsets.values():
            for definition in toolset.tools:
                if (
                    tools.setdefault(definition.name, definition) is not definition
                    and definition.name not in self._hidden
                ):
                    self._hidden.add(definition.name)
                    _log.warning("tool %s of toolset %s is left out: the name is taken", definition.name, toolset.name)
        return tools

    def get(self, name: str) -> ToolDefinition | None:
        """The tool with this name, or None."""
        return self._tools.get(name)

    def check_deps(self, deps_type: type[Any]) -> None:
        """Raise `ConfigError` for a tool that uses dependencies of another class."""
        for definition in self._fixed.values():
            expected = definition.deps_type
            if expected is not None and not _may_be(deps_type, expected):
                text = (
                    f"Tool {definition.name!r} uses dependencies of type {expected.__name__} (ToolContext[...]), "
                    f"but the agent has {deps_type.__name__}."
                )
                raise ConfigError(text, path="$.tools")

    def filtered(self, keep: Callable[[ToolDefinition | ProviderTool], bool]) -> "ToolRegistry":
        """The tools that `keep` returns true for, as a new set."""
        hosted = [tool for tool in self._hosted.values() if keep(tool)]
        return self._changed(lambda tool: tool if keep(tool) else None, hosted)

    def prefixed(self, prefix: str) -> "ToolRegistry":
        """The same tools with names that begin with `prefix`, as a new set. Providers name their own tools."""
        hosted = [*self._hosted.values()]
        return self._changed(lambda tool: replace(tool, name=f"{prefix}{tool.name}"), hosted, prefix=prefix)

    def _changed(
        self,
        change: Callable[[ToolDefinition], ToolDefinition | None],
        hosted: Iterable[ProviderTool],
        prefix: str = "",
    ) -> "ToolRegistry":
        fixed = [changed for tool in self._fixed.values() if (changed := change(tool)) is not None]
        toolsets = (ChangedToolset(toolset, change, prefix=prefix) for toolset in self.toolsets)
        return ToolRegistry([*fixed, *hosted, *toolsets])

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
        tools: dict[str, ToolDefinition | ProviderTool] = {**self._tools, **self._hosted}
        return tuple(tools[name].spec for name in sorted(tools))

    # -- toolsets

    @property
    def toolsets(self) -> tuple[Toolset, ...]:
        """The sets whose tools are known only while they are open."""
        return tuple(self._toolsets.values())

    @property
    def hints(self) -> tuple[str, ...]:
        """What the toolsets add to the system prompt."""
        return tuple(hints for toolset in self.toolsets if (hints := toolset.hints))

    def problem(self, name: str) -> str | None:
        """Why there is no tool of this name, if a toolset can explain it."""
        return next((problem for toolset in self.toolsets if (problem := toolset.problem(name))), None)


Tools = Iterable[  # tools, sets of tools, and typed functions
    ToolDefinition | ProviderTool | ToolRegistry | Toolset | Callable[..., Any]
]


def _may_be(cls: type[Any], expected: type[Any]) -> bool:
    """Whether objects of a class may be of the expected type, as far as can be checked."""
    try:
        return issubclass(cls, expected)
    except TypeError:  # a TypedDict, or a protocol that does not allow it
        return True
