"""How vendors differ in the Chat Completions requests they take: one `ChatAccent` per vendor, in rows of data.

The default is OpenAI's own. A vendor nobody has heard of gets `COMPATIBLE`: the part of the format that every server
understands. How well each row is known:

- Accepted: requests that vendors answered with HTTP 200 show a part of the rows ``openai``, ``azure``, ``groq``,
  ``mistral``, ``deepseek``, ``xai``, ``zai``, ``openrouter`` and ``cerebras`` (the name of the limit, tools and their
  choice, `stream_options`, here and there a seed, thinking, images or files); a few requests show that ``writer``,
  ``snowflake``, ``together``, ``google``, ``ollama`` and ``vllm`` take tools.
- Documented: DeepSeek's own pages have its switch for thinking and its table of efforts, Alibaba's have
  `enable_thinking`.
- Told by others, in libraries that speak to the vendor: that ``zai`` takes no strict schemas and no tool choice by name
  (they know of ``auto`` alone), that ``moonshot`` wants `reasoning_content` back and takes an empty one for none, that
  ``perplexity`` has efforts.
- Not checked: everything else, above all which sounds, films and files a vendor takes, what it caches, and the rows
  ``fireworks`` and ``llama.cpp`` as a whole. Where a row is wrong, `encode` of `openai_chat` takes another accent.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from bartack.formats.history_rules import PLAIN_NAME, STRICTEST, HistoryRules

__all__ = ["ACCENTS", "COMPATIBLE", "OPENAI_RULES", "ChatAccent", "accent_of"]

ThinkingStyle = Literal[
    "reasoning_effort",  # a word
    "reasoning",  # an object with an effort, or with a budget in tokens
    "thinking",  # {"type": "enabled" | "disabled"}, and a reasoning_effort where there are efforts
    "enable_thinking",  # a boolean, and a thinking_budget
    "none",
]
FileStyle = Literal["file", "document_url", "file_url", "none"]

# Our efforts -> the words that a vendor knows. An effort that is missing cannot be asked for.
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
    # "tool_calls[0].id: string too long. Expected a string with maximum length 40"
    merge_same_role=False,
    starts_with_user=False,
    call_id_pattern=r"(?s).{1,40}",
    tool_name_pattern=PLAIN_NAME,
    allows_assistant_last=True,
    allows_user_after_tool=True,
    allows_empty_text=True,
)
_MISTRAL_RULES = HistoryRules(
    # "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9", "Unexpected role 'user' after role
    # 'tool'", "Expected last role User or Tool". The server itself joins neighbours of one role.
    merge_same_role=False,
    starts_with_user=False,
    tool_name_pattern=PLAIN_NAME,
    allows_empty_text=True,
)


class ChatAccent(Struct, frozen=True, kw_only=True):
    """One vendor's way of taking Chat Completions requests."""

    max_tokens: str = "max_completion_tokens"  # the name of that setting
    seed: str | None = "seed"
    system_role: Literal["system", "developer"] = "system"
    system_anywhere: bool = True  # a system message may stand between others
    text_lists: bool = True  # content may be a list of texts
    strict_tools: bool = True
    named_tool_choice: bool = True
    parallel_tool_calls: bool = True
    any_arguments: bool = False  # arguments of a call in the history may be text that is no JSON
    json_schema: bool = True  # response_format takes a schema; otherwise it is only "some JSON"
    stream_options: bool = True  # usage has to be asked for
    thinking: ThinkingStyle = "reasoning_effort"
    efforts: Mapping[str, str] = MappingProxyType(_OPENAI_EFFORTS)
    # What it takes back of its own answers, beside text and calls. Thinking goes back in the field it came in.
    takes_back: frozenset[str] = frozenset()
    # A field that every message with calls must have, and what it says where there was no thinking.
    empty_thinking: tuple[str, str] | None = None
    images: bool = True
    audio: frozenset[str] = frozenset()  # the formats it hears
    video: bool = False
    files: FileStyle = "none"
    file_urls: bool = False  # `file` may name an address
    caching: Literal["prompt_cache_key", "cache_control", "none"] = "none"
    rules: HistoryRules = OPENAI_RULES


_SOUNDS = frozenset(("wav", "mp3"))
_MORE_SOUNDS = _SOUNDS | {"aiff", "aac", "ogg", "flac", "m4a", "webm"}

_OPENAI = ChatAccent(any_arguments=True, audio=_SOUNDS, files="file", caching="prompt_cache_key")

COMPATIBLE = ChatAccent(
    max_tokens="max_tokens",
    text_lists=False,
    efforts=_THREE_EFFORTS,
    takes_back=frozenset({"thinking"}),
)

_SEES_ALL = replace(COMPATIBLE, text_lists=True, audio=_MORE_SOUNDS, video=True)

ACCENTS: dict[str, ChatAccent] = {
    "openai-chat": _OPENAI,  # a request that names no provider speaks to the one who made the format
    "openai": _OPENAI,
    "azure": _OPENAI,
    "azure-openai": _OPENAI,
    "groq": ChatAccent(efforts=_FOUR_EFFORTS, takes_back=frozenset({"thinking"})),
    "mistral": ChatAccent(
        max_tokens="max_tokens",
        seed="random_seed",
        system_anywhere=False,
        stream_options=False,  # unknown settings are refused; usage comes unasked
        efforts={"none": "none", "minimal": "high", "low": "high", "medium": "high", "high": "high", "max": "high"},
        takes_back=frozenset({"thinking"}),
        audio=_SOUNDS,
        files="document_url",
        caching="prompt_cache_key",
        rules=_MISTRAL_RULES,
    ),
    "deepseek": ChatAccent(
        max_tokens="max_tokens",
        seed=None,
        text_lists=False,
        parallel_tool_calls=False,
        json_schema=False,
        thinking="thinking",
        efforts={"minimal": "low", "low": "low", "medium": "high", "high": "high", "max": "max"},
        takes_back=frozenset({"thinking"}),
        empty_thinking=("reasoning_content", ""),  # "must be passed back" with every call made while thinking
        images=False,
    ),
    "xai": ChatAccent(
        efforts={"minimal": "low", "low": "low", "medium": "high", "high": "high", "max": "high"},
        takes_back=frozenset({"thinking"}),
    ),
    "zai": ChatAccent(
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
    "openrouter": ChatAccent(
        max_tokens="max_tokens",
        thinking="reasoning",
        takes_back=frozenset({"thinking", "annotations", "images"}),
        audio=_MORE_SOUNDS,
        video=True,
        files="file",
        file_urls=True,
        caching="cache_control",
    ),
    "perplexity": ChatAccent(  # "user and assistant roles should be alternating"
        max_tokens="max_tokens",
        seed=None,
        system_anywhere=False,
        stream_options=False,
        efforts={**_THREE_EFFORTS, "minimal": "minimal"},
        files="file_url",
        rules=replace(STRICTEST, call_id_pattern=OPENAI_RULES.call_id_pattern),
    ),
    "cerebras": ChatAccent(efforts=_FOUR_EFFORTS, takes_back=frozenset({"thinking"}), images=False),
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
        # "reasoning_content is missing in assistant tool call message"; empty counts as missing
        empty_thinking=("reasoning_content", " "),
    ),
    "google": replace(COMPATIBLE, text_lists=True, efforts={**_OPENAI_EFFORTS, "max": "high"}, audio=_SOUNDS),
    "snowflake": replace(COMPATIBLE, text_lists=True, max_tokens="max_completion_tokens", thinking="reasoning"),
    "ollama": replace(COMPATIBLE, text_lists=True, efforts=_FOUR_EFFORTS),
    "vllm": _SEES_ALL,
    "llama.cpp": replace(_SEES_ALL, video=False),
    "writer": replace(COMPATIBLE, strict_tools=False, thinking="none"),
}


def accent_of(provider: str) -> ChatAccent:
    """The accent of a provider; `COMPATIBLE` for one that is not in the table."""
    return ACCENTS.get(provider, COMPATIBLE)
