"""`Setup`: everything an agent is made of, as its runs need it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bartack.agent.hooks import Hooks, Summarise
from bartack.agent.output import OutputType
from bartack.agent.retry import RetryPolicy
from bartack.environment import Environment
from bartack.models.model import Model
from bartack.models.prices import ModelInfo
from bartack.models.provider import ProviderModel
from bartack.nouns.config import AgentConfig
from bartack.nouns.messages import ModelRef
from bartack.session.context import ContextManager
from bartack.tools import ApprovalPolicy, Approver, Runtime, ToolRegistry

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
    environment: Environment
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
