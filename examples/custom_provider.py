"""A model of your own: anything with a `stream` that keeps the contract. What breaks it becomes an error, not a lie."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bartack import Delta, Done, Message, MessageDelta, ModelConfig, Start, TextDelta, Usage
from bartack.agent import Agent, RetryPolicy
from bartack.environment import Environment
from bartack.models import ModelInfo, RequestMetadata


class Parrot:
    """Says what it heard, word by word."""

    def __init__(self, *, breaks_off: bool = False) -> None:
        self._config = ModelConfig("parrot-1")
        self._breaks_off = breaks_off
        self._environment = Environment()

    async def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Any = None,
        system_prompt: str | None = None,
        *,
        request_metadata: RequestMetadata | None = None,
        **params: Any,
    ) -> AsyncIterator[MessageDelta]:
        """The last message again."""
        run_id = (request_metadata and request_metadata.run_id) or self._environment.new_id()
        words = messages[-1].text.split()
        deltas: list[Delta] = [Start("parrot-1", self._environment.new_id(), provider="parrot")]
        deltas += [TextDelta(f"{word} ") for word in words]
        if not self._breaks_off:
            deltas += [Usage(len(words), len(words)), Done("stop")]
        for seq, delta in enumerate(deltas):
            yield MessageDelta(run_id, seq, delta, self._environment.now())

    def update_config(self, **config: Any) -> None:
        """It has one setting, its name."""

    def get_config(self) -> ModelConfig:
        """Its name."""
        return self._config

    def model_info(self) -> ModelInfo:
        """Its names."""
        return ModelInfo("parrot", "parrot-1")

    def supports(self, feature: str) -> bool:
        """It can only talk."""
        return False


async def main() -> None:
    """Once whole, once broken off."""
    result = await Agent(Parrot()).run("Polly wants a cracker")
    print(result.output, result.usage)
    broken = await Agent(Parrot(breaks_off=True), retry=RetryPolicy(max_retries=0)).run("Polly wants a cracker")
    print(broken.status, broken.error and broken.error.error_code)


if __name__ == "__main__":
    asyncio.run(main())
