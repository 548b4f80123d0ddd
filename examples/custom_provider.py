"""Write your own model: any object whose `stream` follows the contract. A violation becomes an error."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bartack import Delta, Done, Message, MessageDelta, ModelConfig, Start, TextDelta, Usage
from bartack.agent import Agent, RetryPolicy
from bartack.environment import Environment
from bartack.models import ModelInfo, RequestMetadata


class Parrot:
    """Repeats the last message, word by word."""

    def __init__(self, *, truncated: bool = False) -> None:
        self._config = ModelConfig("parrot-1")
        self._truncated = truncated
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
        run_id = (request_metadata and request_metadata.run_id) or self._environment.new_id()
        words = messages[-1].text.split()
        deltas: list[Delta] = [Start("parrot-1", self._environment.new_id(), provider="parrot")]
        deltas += [TextDelta(f"{word} ") for word in words]
        if not self._truncated:
            deltas += [Usage(len(words), len(words)), Done("stop")]
        for seq, delta in enumerate(deltas):
            yield MessageDelta(run_id, seq, delta, self._environment.now())

    def update_config(self, **config: Any) -> None:
        """There are no settings to change."""

    def get_config(self) -> ModelConfig:
        return self._config

    def model_info(self) -> ModelInfo:
        return ModelInfo("parrot", "parrot-1")

    def supports(self, feature: str) -> bool:
        return False


async def main() -> None:
    result = await Agent(Parrot()).run("Polly wants a cracker")
    print(result.output, result.usage)
    broken = await Agent(Parrot(truncated=True), retry=RetryPolicy(max_retries=0)).run("Polly wants a cracker")
    print(broken.status, broken.error and broken.error.error_code)


if __name__ == "__main__":
    asyncio.run(main())
