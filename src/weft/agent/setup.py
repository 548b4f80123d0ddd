"""`Setup`: everything an agent is made of, as its runs need it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.agent.hooks import Hooks, Summarise
from weft.agent.output import OutputType
from weft.agent.retry import RetryPolicy
from weft.config import AgentConfig
from weft.context import ContextManager
from weft.edge import Edge
from weft.messages import ModelRef
from weft.models.model import Model
from weft.models.prices import ModelInfo
from weft.models.provider import ProviderModel
from weft.tools import ApprovalPolicy, Approver, Runtime, ToolRegistry

__all__ = ["Setup", "ref_of"]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What holds for every run of an agent."""

    model: Model
    fallback_models: tuple[Model, ...]
    registry: ToolRegistry
    instructions: str | None
    context: ContextManager
    config: AgentConfig
    retry: RetryPolicy
    hooks: Hooks
    edge: Edge
    approval: ApprovalPolicy
    approver: Approver | None
    approval_timeout_ms: int | None
    runtime: Runtime | None
    output: OutputType | None
    summarise: Summarise | None
    name: str | None
    lease_s: float
    max_repeats: int | None
    agent: object  # for tools that ask for their agent
    chance: Callable[[], float] = random.random
    infos: dict[int, tuple[Model, ModelInfo]] = field(default_factory=dict)

    async def info(self, model: Model) -> ModelInfo:
        """What is known about a model, asked once. A provider's model reads a table of prices: that takes a while."""
        known = self.infos.get(id(model))
        if known is None:
            is_slow = isinstance(model, ProviderModel)
            info = await asyncio.to_thread(model.model_info) if is_slow else model.model_info()
            known = self.infos[id(model)] = (model, info)
        return known[1]


def ref_of(info: ModelInfo) -> ModelRef:
    """The model by its names."""
    return ModelRef(info.provider, info.model_id)
