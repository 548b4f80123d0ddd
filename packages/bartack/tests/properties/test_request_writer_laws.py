"""The law of `RequestWriter`: whatever it knows about a conversation, it writes what a full encode would write."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bartack.formats import ModelRequest, RequestWriter, encode, format_named
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.messages import Message, system, user
from bartack.nouns.parts import Text
from tests.properties.histories import exchanges, messages, odd_messages
from tests.properties.test_encoder_laws import TARGETS, Target

CONFIGS: list[dict[str, Any]] = [
    {},
    {"cache_config": CacheConfig()},
    {"thinking": ThinkingConfig(budget_tokens=2048), "cache_config": CacheConfig()},
    {"temperature": 1, "extra": {"store": False, "n": 1}},
    {"temperature": 1.0, "extra": {"store": 0, "n": 1.0}},
    {"extra": {"openai-chat": {"store": True}, "anthropic-messages": {"top_k": 5}, "user": "ann"}},
]
TOOLS = [(), (ToolSpec("read", {"type": "object"}),), (ToolSpec("read", {"type": "object"}, description="Reads."),)]
PROMPTS = [[], ["Be brief."], ["Be brief.", "Be kind."], [""]]


class Conversation:
    """A conversation that changes from call to call."""

    def __init__(self, target: Target, data: st.DataObject) -> None:
        self.target, self._draw = target, data.draw
        self._history: list[Message] = []
        self._kept: list[list[Message]] = []  # other branches
        self._count = 0
        self.prompts, self.config, self.tools = PROMPTS[1], CONFIGS[0], TOOLS[0]

    def change(self) -> None:
        draw, history = self._draw, self._history
        kinds = (
            ["grow"] * 8 + ["odd"] * 4 + ["repeat", "lose", "replace", "compact", "branch", "prompt", "set", "tools"]
        )
        kind = draw(st.sampled_from(kinds))
        place = draw(st.integers(0, len(history) - 1)) if history else 0
        if kind == "grow" or not history:
            self._count += 1
            history += draw(exchanges(self._count))
        elif kind == "odd":
            history += draw(st.lists(odd_messages() | messages(), min_size=1, max_size=3))
        elif kind == "repeat":  # the results and ids of earlier calls once more
            history.append(history[place])
        elif kind == "lose":  # the last messages are taken back
            del history[place:]
        elif kind == "replace":  # a redaction
            history[place] = replace(history[place], parts=())
        elif kind == "compact":
            history[:place] = [user(Text("A summary.", synthetic=True))]
        elif kind == "branch":
            self._kept.append(history[:])
            earlier = draw(st.sampled_from(self._kept))
            self._history = earlier[: draw(st.integers(0, len(earlier)))]
        elif kind == "prompt":
            self.prompts = draw(st.sampled_from(PROMPTS))
        elif kind == "set":
            self.config = draw(st.sampled_from(CONFIGS))
        else:
            self.tools = draw(st.sampled_from(TOOLS))

    def request(self) -> ModelRequest:
        cut = self._draw(st.integers(0, 2))  # cuts an exchange in the middle, as the calls of a run do
        history = self._history[: len(self._history) - cut]
        return ModelRequest(
            (*map(system, self.prompts), *history),
            config=ModelConfig(self.target.model, **self.config),
            tools=self.tools,
            provider=self.target.provider,
        )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "-".join(map(str, target[:3])))
@given(data=st.data())
def test_a_request_has_the_same_bytes_as_one_encoded_in_full(target: Target, data: st.DataObject) -> None:
    writer = RequestWriter(format_named(target.format), without=("stream",), fields={"more": "yes"})
    conversation = Conversation(target, data)
    for _ in range(data.draw(st.integers(2, 12))):
        conversation.change()
        request = conversation.request()
        expected = encode(target.format, request)
        body = {key: value for key, value in expected.body.items() if key != "stream"} | {"more": "yes"}
        request_body = writer.write(request)
        assert request_body.body == msgspec.json.encode(body)
        assert request_body.report == expected.report
        assert request_body.call_ids == {
            call.tool_call_id for message in request.messages for call in message.tool_calls
        }
