"""`provider_tool`: a tool in the terms of one provider, for all that has no class in `bartack.nouns.hosted_tools`.

    provider_tool("anthropic", {"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-4-8"})

Without a function the provider executes the tool. With one, the provider only defines its arguments, and the function
executes the calls, as for Anthropic's memory or OpenAI's computer use.
"""

from collections.abc import Mapping
from typing import Any, overload

from bartack.nouns.errors import ConfigError
from bartack.nouns.hosted_tools import RawTool
from bartack.nouns.parts import Continuation
from bartack.tools.definition import Execute, NeedsApproval, ToolDefinition

__all__ = ["provider_tool"]


@overload
def provider_tool(
    provider: str, declaration: Mapping[str, Any], *, name: str | None = None, optional: bool = False
) -> RawTool: ...
@overload
def provider_tool(
    provider: str,
    declaration: Mapping[str, Any],
    *,
    execute: Execute,
    name: str | None = None,
    requires_approval: NeedsApproval = False,
) -> ToolDefinition: ...
def provider_tool(
    provider: str,
    declaration: Mapping[str, Any],
    *,
    execute: Execute | None = None,
    name: str | None = None,
    optional: bool = False,
    requires_approval: NeedsApproval = False,
) -> RawTool | ToolDefinition:
    """A tool as `provider` declares it, sent unchanged.

    Args:
        provider: A vendor such as ``anthropic``, or a wire format, which means all vendors that use it.
        execute: Executes the calls, as `ToolDefinition.execute` does. Without it, the provider does.
        name: The name that calls have; by default the declaration's own name, or else its type.
        optional: Leave the tool out, with a loss, in requests to other providers, instead of refusing them.
    """
    label = name or declaration.get("name") or declaration.get("type") or next(iter(declaration), None)
    if not isinstance(label, str):
        raise ConfigError("A provider's tool needs a declaration with a name or a type.")
    if execute is None:
        return RawTool(label=label, provider=provider, declaration=dict(declaration), optional=optional)
    return ToolDefinition(
        name=label,
        description="",
        parameter_schema={},
        execute=execute,
        requires_approval=requires_approval,
        native=Continuation(provider, "", dict(declaration)),
    )
