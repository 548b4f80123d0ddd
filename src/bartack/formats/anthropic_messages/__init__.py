"""Anthropic's Messages API, also on Vertex AI and, wrapped, on Bedrock (`bedrock_invoke`)."""

from msgspec.structs import replace

from bartack.formats.anthropic_messages.capabilities import claude, lacking
from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.anthropic_messages.encode import encode
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.format import Format
from bartack.formats.history_rules import HistoryRules

__all__ = ["FORMAT"]

_RULES = HistoryRules(
    # "text content blocks must contain non-whitespace text"; "tool_use.id: String should match pattern".
    # "This model does not support assistant message prefill": all models since Claude 4.6. Older ones accept it,
    # and all require the answer that ended with pause_turn to be sent back.
    call_id_pattern=r"[a-zA-Z0-9_-]+",
    tool_name_pattern=r"[a-zA-Z0-9_-]{1,128}",
    allows_paused_last=True,
    allows_user_after_tool=True,
)
_PREFILL_RULES = replace(_RULES, allows_assistant_last=True)

FORMAT = Format(
    decoder=AnthropicMessages,
    encode=encode,
    read_request=read_request,
    rules=_RULES,
    rules_for=lambda provider, model_id: _PREFILL_RULES if claude(model_id).takes_prefill else _RULES,
    lacks=lambda provider, model_id: lacking(model_id),
    event_types=("message_start", "content_block_"),
)
