"""Tools that providers execute themselves: `WebSearch()` and others that two or more providers offer, and `RawTool`.

    Agent("anthropic:claude-sonnet-4-6", tools=[weather, WebSearch(max_uses=3), CodeExecution()])

A class has the options that providers share. `bartack.formats.tools` writes it as each provider declares
it; an option that a provider lacks becomes a loss. A tool that a provider lacks refuses the request, because the agent
was built around it, unless it is `optional`: then it becomes a loss too.

Computer use and memory have no class here. Both are executed by the client, with arguments that differ from provider
to provider, so they are declared with `bartack.tools.provider_tool` and a function.
"""

from typing import Any, ClassVar, Literal

from msgspec import Struct, convert, to_builtins
from msgspec.structs import fields

from bartack.nouns.config import HostedTool, ToolSpec
from bartack.nouns.errors import ConfigError, PartValidationError
from bartack.nouns.noun import wrong_types
from bartack.nouns.parts import Continuation

__all__ = [
    "HOSTED_TOOLS",
    "CodeExecution",
    "FileSearch",
    "ImageGeneration",
    "McpConnector",
    "PortableTool",
    "ProviderTool",
    "RawTool",
    "ToolSearch",
    "UserLocation",
    "WebFetch",
    "WebSearch",
    "hosted_tool",
]


class ProviderTool(Struct, frozen=True, kw_only=True):
    """A tool that the provider executes: it has no function, and its calls have results when they arrive."""

    optional: bool = False  # leave it out, with a loss, where a provider lacks it

    @property
    def name(self) -> str:
        """The name of the tool in lists and in the configuration."""
        return self.spec.name

    @property
    def spec(self) -> ToolSpec:
        """The tool as a request declares it."""
        raise NotImplementedError


class PortableTool(ProviderTool, frozen=True, kw_only=True):
    """A tool that two or more providers offer."""

    tool: ClassVar[str]

    def __post_init__(self) -> None:
        for path, problem in wrong_types(self):
            text = f"{type(self).__name__}: {path.removeprefix('$.')}: {problem}"
            raise ConfigError(text, path="$.tools")

    @property
    def set_options(self) -> frozenset[str]:
        """The names of the options that do not have their default values."""
        return frozenset(
            field.name
            for field in fields(type(self))
            if field.name != "optional" and (field.required or getattr(self, field.name) != field.default)
        )

    @property
    def spec(self) -> ToolSpec:
        """The tool as a request declares it."""
        values = to_builtins(self)
        options = {name: values[name] for name in sorted(self.set_options)}
        hosted = HostedTool(tool=self.tool, options=options or None)
        return ToolSpec(self._label, {}, hosted=hosted, required=not self.optional)

    @property
    def _label(self) -> str:
        return self.tool


class UserLocation(Struct, frozen=True, kw_only=True):
    """Where the user is, roughly, for results near them."""

    city: str | None = None
    region: str | None = None
    country: str | None = None  # two letters, such as FR
    timezone: str | None = None


class WebSearch(PortableTool, frozen=True, kw_only=True):
    """Search the web; the answer cites its sources."""

    tool: ClassVar[str] = "web_search"
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    user_location: UserLocation | None = None
    context_size: Literal["low", "medium", "high"] | None = None


class WebFetch(PortableTool, frozen=True, kw_only=True):
    """Read web pages and documents by their addresses."""

    tool: ClassVar[str] = "web_fetch"
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_content_tokens: int | None = None
    citations: bool = False


class CodeExecution(PortableTool, frozen=True, kw_only=True):
    """Run code in a sandbox of the provider."""

    tool: ClassVar[str] = "code_execution"
    file_ids: tuple[str, ...] = ()  # uploaded files that the code can read


class FileSearch(PortableTool, frozen=True, kw_only=True):
    """Search in files that were uploaded to stores of the provider."""

    tool: ClassVar[str] = "file_search"
    stores: tuple[str, ...]
    max_results: int | None = None


class ImageGeneration(PortableTool, frozen=True, kw_only=True):
    """Generate images, which are part of the answer."""

    tool: ClassVar[str] = "image_generation"
    size: str | None = None  # such as 1024x1024
    quality: Literal["low", "medium", "high", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    output_format: Literal["png", "webp", "jpeg"] | None = None


class McpConnector(PortableTool, frozen=True, kw_only=True):
    """The tools of a remote MCP server, which the provider itself connects to and calls.

    With ``approval="always"``, the provider asks before each call. The question goes through the approval of the agent.
    The `authorization` is sent to the provider and never stored.
    """

    tool: ClassVar[str] = "mcp"
    label: str
    url: str
    description: str | None = None
    authorization: str | None = None
    allowed_tools: tuple[str, ...] = ()
    approval: Literal["never", "always"] = "never"

    @property
    def _label(self) -> str:
        return self.label


class ToolSearch(PortableTool, frozen=True, kw_only=True):
    """The provider's own search for tools with `defer_loading`; `Agent(tool_search=True)` adds it where it exists."""

    tool: ClassVar[str] = "tool_search"


HOSTED_TOOLS: dict[str, type[PortableTool]] = {
    cls.tool: cls for cls in (WebSearch, WebFetch, CodeExecution, FileSearch, ImageGeneration, McpConnector, ToolSearch)
}


def hosted_tool(hosted: HostedTool) -> PortableTool:
    """The portable tool of a declaration; `PartValidationError` if it is unknown or has other options."""
    cls = HOSTED_TOOLS.get(hosted.tool)
    if cls is None:
        raise PartValidationError(f"unknown tool {hosted.tool!r}", path="$.hosted.tool")
    try:
        return convert(hosted.options or {}, cls)
    except ValueError as error:
        raise PartValidationError(str(error), path="$.hosted.options") from None


class RawTool(ProviderTool, frozen=True, kw_only=True):
    """A tool in the terms of one provider, or of all providers with one format."""

    label: str
    provider: str
    declaration: dict[str, Any]

    @property
    def spec(self) -> ToolSpec:
        """The tool as a request declares it."""
        native = Continuation(self.provider, "", self.declaration)
        return ToolSpec(self.label, {}, native=native, required=not self.optional)
