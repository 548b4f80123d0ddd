"""Anthropic's Messages API, also on Vertex AI and, wrapped, on Bedrock (`bedrock_invoke`)."""

from msgspec.structs import replace

from bartack.formats.anthropic_messages.blocks import carries
from bartack.formats.anthropic_messages.capabilities import HOSTED, claude, headers_for, lacking
from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.anthropic_messages.encode import encode
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.anthropic_messages.write import MessagesWriter
from bartack.formats.format import Format, HistoryRules

__all__ = ["FORMAT"]

_RULES = HistoryRules(
    # "text content blocks must contain non-whitespace text"; "tool_use.id: String should match pattern".
    # "This model does not support assistant message prefill": all models since Claude 4.6. Older ones accept it,
    # and all require the answer that ended with pause_turn to be sent back.
    call_id_pattern=r"[a-zA-Z0-9_-]+",
    tool_name_pattern=r"[a-zA-Z0-9_-]{1,128}",
    allows_paused_last=True,
    allows_user_after_tool=True,
    allows_any_result_order=True,  # Claude Code sends results in the order in which its tools finish
)
_PREFILL_RULES = replace(_RULES, allows_assistant_last=True)

FORMAT = Format(
    hosted=HOSTED,
    headers=headers_for,
    decoder=AnthropicMessages,
    encode=encode,
    read_request=read_request,
    writer=MessagesWriter,
    rules=_RULES,
    carries=carries,
    rules_for=lambda provider, model_id: _PREFILL_RULES if claude(model_id).takes_prefill else _RULES,
    lacks=lambda provider, model_id: lacking(model_id),
    event_types=("message_start", "content_block_"),
)
