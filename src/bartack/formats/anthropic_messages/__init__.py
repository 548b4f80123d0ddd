"""Anthropic's Messages API, also on Vertex AI and, wrapped, on Bedrock (`bedrock_invoke`)."""

from bartack.formats.anthropic_messages.decode import AnthropicMessages
from bartack.formats.anthropic_messages.encode import encode
from bartack.formats.anthropic_messages.read import read_request
from bartack.formats.format import Format
from bartack.formats.history_rules import HistoryRules

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=AnthropicMessages,
    encode=encode,
    read_request=read_request,
    rules=HistoryRules(
        # "text content blocks must contain non-whitespace text"; "tool_use.id: String should match pattern".
        # "This model does not support assistant message prefill": all models since Claude 4.6. Older ones accept it,
        # and all require the answer that ended with pause_turn to be sent back.
        call_id_pattern=r"[a-zA-Z0-9_-]+",
        tool_name_pattern=r"[a-zA-Z0-9_-]{1,128}",
        allows_paused_last=True,
        allows_user_after_tool=True,
    ),
    event_types=("message_start", "content_block_"),
)
