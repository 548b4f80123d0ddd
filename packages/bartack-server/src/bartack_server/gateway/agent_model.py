"""`AgentModel`: an agent that answers as if it were a model, for any chat page or program.

Clients see the agent's text as it arrives, and its tool calls as reasoning; the tools run here. What the client's own
tools and settings are does not matter to an agent. A conversation that the client names (`X-Bartack-Session`, or the
header of its program) is a session of the agent, which gets only the last message. Any other request brings its history
along, and each is a session of its own.

A model call that is repeated after a failure begins a new paragraph: what was sent cannot be taken back.
"""

from collections.abc import AsyncGenerator
from typing import Any

from bartack.agent import Agent
from bartack.events import DeltaReceived, Event, Retrying, RunFinished, RunPaused, ToolChanged
from bartack.models.guard import GuardedStream, guarded_batches
from bartack.models.model import StreamingModel
from bartack.models.prices import ModelInfo
from bartack.nouns.config import ModelConfig
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, ThinkingDelta
from bartack.nouns.errors import BartackError, PartValidationError
from bartack.nouns.requests import ModelRequest
from bartack.nouns.tool_states import Running

__all__ = ["AgentModel"]

_PAUSED = (
    "I am waiting for an approval. Decide on the page or with 'bartack sessions approve', then ask me to continue."
)


class AgentModel(StreamingModel):
    """Runs an agent for each request."""

    provider = "bartack"

    def __init__(self, name: str, agent: Agent[Any, Any]) -> None:
        super().__init__(ModelConfig(name))
        self._agent = agent

    def model_info(self) -> ModelInfo:
        return ModelInfo(self.provider, self.config.model_id)

    def supports(self, feature: str) -> bool:
        return feature in ("images", "files")

    def respond(self, request: ModelRequest) -> GuardedStream:
        messages = [message for message in request.messages if message.role != "system"]
        if not messages or messages[-1].role != "user":
            raise PartValidationError("An agent answers a message of the user; the last message is not one.")
        return guarded_batches(self._batches(request, messages), request.metadata, self._environment)

    async def _batches(self, request: ModelRequest, messages: list[Any]) -> AsyncGenerator[list[Delta], None]:
        session_id = request.metadata.session_id
        history = messages[:-1] if session_id is None else ()
        yield [Start(self.config.model_id, request.metadata.run_id or "", provider=self.provider)]
        try:
            async with self._agent.stream(messages[-1], session=session_id, history=history) as run:
                async for event in run:
                    deltas = _deltas_of(event)
                    if deltas:
                        yield deltas
        except BartackError as error:  # the session is in use, or the store failed
            yield [Failed(error.code, error.message, retryable=error.retryable)]


def _deltas_of(event: Event) -> list[Delta]:
    match event:
        case DeltaReceived():
            delta = event.delta.delta
            if isinstance(delta, TextDelta | ThinkingDelta) and delta.text_delta:
                return [type(delta)(delta.text_delta)]
            return []
        case ToolChanged(state=Running()):
            return [ThinkingDelta(f"[{event.tool_name}]\n", new_part=True)]
        case Retrying(model_call_index=int()):
            return [TextDelta("\n\n")]
        case RunPaused():
            return [TextDelta(_PAUSED, new_part=True)]
        case RunFinished(result=result):
            if result.error is not None:
                return [result.error]
            usage = [] if result.usage is None else [result.usage]
            return [*usage, Done("stop")]
        case _:
            return []  # what people see of a run, but not of a model
