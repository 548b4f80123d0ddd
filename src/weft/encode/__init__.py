"""Messages to request bodies and back: one file per wire format, the mirror of `weft.decode`.

``encode("anthropic-messages", messages, config=config)`` repairs the history by the rules of the format, then lets the
format's module write the body. The record is not touched, and the report says what the provider is not told.
`read_request` goes the other way.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from weft.config import ModelConfig, ToolSpec
from weft.encode.media import with_inline_data
from weft.encode.openai_chat_accents import accent_of
from weft.encode.request import Encoded, Loss, Losses, LossReport, Request
from weft.errors import ErrorCode, PartValidationError
from weft.messages import Message
from weft.repair import RULES, HistoryRules, repair

__all__ = ["FORMATS", "Encoded", "Loss", "LossReport", "Losses", "Request", "encode", "read_request"]

# Names and not modules: a program speaks to one or two providers, and importing all formats would be most of what
# `import weft` costs. A format is imported when it is first asked for.
FORMATS: dict[str, str] = {
    "anthropic-messages": "weft.encode.anthropic_messages",
    "openai-chat": "weft.encode.openai_chat",
    "openai-responses": "weft.encode.openai_responses",
    "gemini-generate": "weft.encode.gemini_generate",
    "gemini-interactions": "weft.encode.gemini_interactions",
    "bedrock-converse": "weft.encode.bedrock_converse",
    "bedrock-invoke": "weft.encode.bedrock_invoke",
    "cohere-v2": "weft.encode.cohere_v2",
    "ollama-chat": "weft.encode.ollama_chat",
}


class _Format(Protocol):
    def encode(self, request: Request, losses: Losses) -> dict[str, Any]: ...
    def read_request(self, body: dict[str, Any], *, provider: str, model_id: str = "") -> Request: ...


def encode(
    format: str,
    messages: Sequence[Message],
    *,
    config: ModelConfig,
    tools: Sequence[ToolSpec] = (),
    provider: str | None = None,
    rules: HistoryRules | None = None,
) -> Encoded:
    """The body of a request that the provider accepts, and what it leaves out.

    `provider` names whose continuation data may go back (default: the format, as in `weft.decode`). `rules` replaces
    those of the format, for a model that takes more or less than its format's other models. A loss at ``history[i]``
    is one of the messages given here, one at ``messages[i]`` of those that were sent.

    Raises `PartValidationError` for a format that does not exist.
    """
    module = _module(format)
    provider = provider or format
    repaired = repair(messages, rules or _rules(format, provider, config.model_id))
    losses = Losses(provider)
    for note in repaired.notes:
        if note.action == "dropped":
            losses.add(f"history[{note.index}]", note.what, note.why)
    inlined = tuple(with_inline_data(message) for message in repaired.messages)
    request = Request(messages=inlined, config=config, tools=tuple(tools), provider=provider)
    body = module.encode(request, losses)
    return Encoded(body, LossReport(tuple(losses.found)))


def read_request(format: str, body: dict[str, Any], *, provider: str | None = None, model_id: str = "") -> Request:
    """The request that a body of this format makes; `model_id` is the model where the body does not name it.

    Raises `PartValidationError` for a format that does not exist and for a body that is not one of the format.
    """
    return _module(format).read_request(body, provider=provider or format, model_id=model_id)


def _rules(format: str, provider: str, model_id: str) -> HistoryRules:
    if format == "openai-chat":  # it is spoken by many, and some of them are stricter than OpenAI
        return accent_of(provider).rules
    if format == "bedrock-invoke":  # the models behind it speak different languages
        return import_module(FORMATS[format]).rules_for(model_id)  # type: ignore[no-any-return]
    return RULES[format]


def _module(format: str) -> _Format:
    path = FORMATS.get(format)
    if path is None:
        raise PartValidationError(
            f"{format!r} is not a format ({', '.join(FORMATS)})", path="$.format", code=ErrorCode.INVALID_CONFIG
        )
    return cast(_Format, import_module(path))
