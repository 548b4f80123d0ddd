"""What an `AgentConfig` says, made into the things an agent works with."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bartack.nouns.config import AgentConfig
from bartack.nouns.errors import ErrorCode, PartValidationError
from bartack.store.address import StoreAddress
from bartack.tools import ApprovalPolicy, LocalRuntime, Runtime, ToolDefinition, ToolRegistry, by_definition, by_tool

__all__ = ["model_name", "model_settings", "policy_of", "registry_of", "runtime_of"]


def model_name(config: AgentConfig) -> str:
    """The default model; `PartValidationError` if there is none."""
    if config.model is None:
        raise PartValidationError("an agent needs a model", path="$.model", code=ErrorCode.INVALID_CONFIG)
    return config.model.model_id


def model_settings(config: AgentConfig) -> dict[str, Any]:
    """How the default model is asked. A model that was made elsewhere has its own settings."""
    if config.model is None:
        return {}
    given = {name: getattr(config.model, name) for name in config.model.__struct_fields__}
    own = given.pop("extra") or {}
    return {**{name: value for name, value in given.items() if value is not None and name != "model_id"}, **own}


def runtime_of(config: AgentConfig, store: object) -> Runtime | None:
    """The runtime that the configuration asks for, which may not touch the sessions themselves."""
    if config.runtime.root is None:
        return None
    if config.runtime.kind != "local":
        raise PartValidationError(
            f"there is no runtime of kind {config.runtime.kind!r}; pass one as runtime=",
            path="$.runtime.kind",
            code=ErrorCode.INVALID_CONFIG,
        )
    path = StoreAddress.parse(store).path if isinstance(store, str | Path) else None
    return LocalRuntime(Path(config.runtime.root), forbidden=() if path is None else (path,))


def registry_of(tools: Iterable[ToolDefinition | Callable[..., Any]], config: AgentConfig) -> ToolRegistry:
    """The tools that are switched on; raises for two of one name."""
    enabled = config.tools.enabled or {}
    registry = ToolRegistry(tools)
    return ToolRegistry([tool for tool in registry if enabled.get(tool.name, True)])


def policy_of(config: AgentConfig) -> ApprovalPolicy:
    """Which calls wait for a human."""
    return by_definition if config.tools.approval is None else by_tool(config.tools.approval)
