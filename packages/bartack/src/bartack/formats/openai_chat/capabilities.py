"""What each vendor accepts in Chat Completions requests: one `ChatCapabilities` row per vendor.

The defaults are OpenAI's. An unknown vendor gets `COMPATIBLE`, the part of the format that every server understands.
How well each row is known:

- Accepted: requests that vendors answered with HTTP 200 (recordings/*-chat-requests) show part of the rows ``openai``,
  ``azure``, ``groq``, ``mistral``, ``deepseek``, ``xai``, ``zai``, ``openrouter`` and ``cerebras``: the name of the
  token limit, tools and tool choice, `stream_options`, in some cases a seed, thinking, images or files. A few show that
  ``writer``, ``snowflake``, ``together``, ``google``, ``ollama`` and ``vllm`` accept tools.
- Documented: DeepSeek's thinking switch and efforts (api-docs.deepseek.com/guides/thinking_mode), Alibaba's
  `enable_thinking`.
- Taken from libraries that call the vendor: ``zai`` accepts neither strict schemas nor a tool choice by name,
  ``perplexity`` has efforts.
- Not verified: everything else, in particular which audio, video and files a vendor accepts, what it caches, and the
  rows ``fireworks`` and ``llama.cpp`` as a whole.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bartack.formats.format import PLAIN_NAME, STRICTEST, HistoryRules

__all__ = ["BY_PROVIDER", "COMPATIBLE", "OPENAI_RULES", "ChatCapabilities", "capabilities_of"]

ThinkingStyle = Literal[
    "reasoning_effort",  # a word
    "reasoning",  # an object with an effort or a token budget
    "thinking",  # {"type": "enabled" | "disabled"}, with a reasoning_effort where the vendor has efforts
    "enable_thinking",  # a boolean, and a thinking_budget
    "none",
]
FileStyle = Literal[
    "file",
    "document_url",
    "file_url",
    "file_url_or_base64",  # inline content is the bare base64, not a data URL
    "none",
]

# Our efforts and the vendor's words for them. An effort that is missing cannot be requested.
_OPENAI_EFFORTS = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "xhigh",
}
_THREE_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "high"}
_FOUR_EFFORTS = {"none": "none", **_THREE_EFFORTS}


OPENAI_RULES = HistoryRules(
    # "'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40"
    # (github.com/microsoft/autogen/issues/6377).
    merge_same_role=False,
    starts_with_user=False,
    call_id_pattern=r"(?s).{1,40}",
    tool_name_pattern=PLAIN_NAME,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_empty_text=True,
    allows_trailing_reasoning=True,
)
_MISTRAL_RULES = HistoryRules(
    # "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9"
    # (github.com/langchain-ai/langchain/pull/24668), "Expected last role User or Tool". The server itself merges
    # consecutive messages of one role, and accepts a user message after tool results, which it once refused.
    merge_same_role=False,
    starts_with_user=False,
    tool_name_pattern=PLAIN_NAME,
    allows_user_after_tool=True,
    allows_empty_text=True,
)


class ChatCapabilities(Struct, frozen=True, kw_only=True):
    """What one vendor accepts in a Chat Completions request, and under which names."""

    max_tokens: str = "max_completion_tokens"  # the name of the setting
    seed: str | None = "seed"
    system_anywhere: bool = True  # a system message may come after others
    text_lists: bool = True  # content may be a list of text pieces
    strict_tools: bool = True
    named_tool_choice: bool = True
    parallel_tool_calls: bool = True
    any_arguments: bool = False  # arguments of a past call may be text that is not JSON
    json_schema: bool = True  # response_format takes a schema; otherwise only json_object
    stream_options: bool = True  # usage is sent only if requested
    thinking: ThinkingStyle = "reasoning_effort"
    efforts: Mapping[str, str] = MappingProxyType(_OPENAI_EFFORTS)
    # What of its own answers may be sent back besides text and calls. Thinking is sent back in its original field.
    takes_back: frozenset[str] = frozenset()
    # A field required in every message with calls, and its value where there was no thinking.
    empty_thinking: tuple[str, str] | None = None
    images: bool = True
    audio: frozenset[str] = frozenset()  # the audio formats it accepts
    video: bool = False
    files: FileStyle = "none"
    file_urls: bool = False  # `file` may hold a URL
    caching: Literal["prompt_cache_key", "cache_control", "none"] = "none"
    settings: tuple[str, ...] = ()  # those of `note_settings` that it takes, under the same names
    rules: HistoryRules = OPENAI_RULES
    # In answers: how the names of the models begin whose `completion_tokens` does not include reasoning.
    reasoning_apart: tuple[str, ...] = ()


_SOUNDS = frozenset(("wav", "mp3"))
_MORE_SOUNDS = _SOUNDS | {"aiff", "aac", "ogg", "flac", "m4a", "webm"}

_OPENAI = ChatCapabilities(
    any_arguments=True,
    audio=_SOUNDS,
    files="file",
    caching="prompt_cache_key",
    settings=("service_tier", "verbosity", "ttl"),
)

COMPATIBLE = ChatCapabilities(
    max_tokens="max_tokens",
    text_lists=False,
    efforts=_THREE_EFFORTS,
    takes_back=frozenset({"thinking"}),
)

_SEES_ALL = replace(COMPATIBLE, text_lists=True, audio=_MORE_SOUNDS, video=True)

BY_PROVIDER: dict[str, ChatCapabilities] = {
    "openai-chat": _OPENAI,  # used for requests without a provider
    "openai": _OPENAI,
    "azure": _OPENAI,
    "azure-openai": _OPENAI,
    "groq": ChatCapabilities(efforts=_FOUR_EFFORTS, takes_back=frozenset({"thinking"}), settings=("service_tier",)),
    "mistral": ChatCapabilities(
        max_tokens="max_tokens",
        seed="random_seed",
        system_anywhere=False,
        stream_options=False,  # unknown settings are refused; usage is always sent
        efforts={"none": "none", "minimal": "high", "low": "high", "medium": "high", "high": "high", "max": "high"},
        takes_back=frozenset({"thinking"}),
        audio=_SOUNDS,
        files="document_url",
        caching="prompt_cache_key",
        rules=_MISTRAL_RULES,
    ),
    "deepseek": ChatCapabilities(
        max_tokens="max_tokens",
        seed=None,
        text_lists=False,
        parallel_tool_calls=False,
        json_schema=False,
        thinking="thinking",
        efforts={"minimal": "low", "low": "low", "medium": "high", "high": "high", "max": "max"},
        takes_back=frozenset({"thinking"}),
        # "The `reasoning_content` in the thinking mode must be passed back to the API", for every message with calls
        # (github.com/earendil-works/pi/issues/3636).
        empty_thinking=("reasoning_content", ""),
        images=False,
    ),
    "xai": ChatCapabilities(
        efforts={"minimal": "low", "low": "low", "medium": "high", "high": "high", "max": "high"},
        takes_back=frozenset({"thinking"}),
    ),
    "zai": ChatCapabilities(
        max_tokens="max_tokens",
        strict_tools=False,
        named_tool_choice=False,
        parallel_tool_calls=False,
        json_schema=False,
        thinking="thinking",
        efforts={},
        takes_back=frozenset({"thinking"}),
        video=True,
        files="file_url",
    ),
    "openrouter": ChatCapabilities(
        max_tokens="max_tokens",
        thinking="reasoning",
        takes_back=frozenset({"thinking", "annotations", "images"}),
        audio=_MORE_SOUNDS,
        video=True,
        files="file",
        file_urls=True,
        caching="cache_control",
        settings=("service_tier", "verbosity", "ttl"),
    ),
    "vercel": replace(
        COMPATIBLE,
        text_lists=True,
        # vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions
        thinking="reasoning",
        # Google's count of an answer leaves out its thoughts, and the gateway passes it on: 10 + 37 reasoning tokens
        # were billed as 47, beside `completion_tokens: 10` (reported, not recorded). Other models include them.
        reasoning_apart=("google/",),
    ),
    "perplexity": ChatCapabilities(
        # "After the (optional) system message(s), user and assistant roles should be alternating"
        # (github.com/perplexityai/api-discussion/issues/265).
        max_tokens="max_tokens",
        seed=None,
        system_anywhere=False,
        stream_options=False,
        efforts={**_THREE_EFFORTS, "minimal": "minimal"},
        files="file_url_or_base64",  # prismphp.com/providers/perplexity; the bare form is not verified
        rules=replace(STRICTEST, call_id_pattern=OPENAI_RULES.call_id_pattern),
    ),
    "cerebras": ChatCapabilities(efforts=_FOUR_EFFORTS, takes_back=frozenset({"thinking"}), images=False),
    "together": replace(_SEES_ALL, audio=frozenset()),
    "fireworks": replace(COMPATIBLE, text_lists=True),
    "alibaba": replace(_SEES_ALL, thinking="enable_thinking", efforts={}, json_schema=False),
    "moonshot": replace(
        COMPATIBLE,
        text_lists=True,
        thinking="thinking",
        efforts={},
        video=True,
        named_tool_choice=False,
        # "thinking is enabled but reasoning_content is missing in assistant tool call message"
        # (github.com/continuedev/continue/issues/11600). That empty counts as missing is not verified.
        empty_thinking=("reasoning_content", " "),
    ),
    "google": replace(COMPATIBLE, text_lists=True, efforts={**_OPENAI_EFFORTS, "max": "high"}, audio=_SOUNDS),
    "snowflake": replace(COMPATIBLE, text_lists=True, max_tokens="max_completion_tokens", thinking="reasoning"),
    "ollama": replace(COMPATIBLE, text_lists=True, efforts=_FOUR_EFFORTS),
    "vllm": _SEES_ALL,
    "llama.cpp": replace(_SEES_ALL, video=False),
    "writer": replace(COMPATIBLE, strict_tools=False, thinking="none"),
}


def capabilities_of(provider: str) -> ChatCapabilities:
    """The row of a provider; `COMPATIBLE` for one that is not in the table."""
    return BY_PROVIDER.get(provider, COMPATIBLE)
