"""Ollama's own chat API."""

from bartack.formats.format import ALL_FEATURES, Format
from bartack.formats.history_rules import HistoryRules
from bartack.formats.ollama_chat.decode import OllamaChat
from bartack.formats.ollama_chat.encode import encode

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=OllamaChat,
    encode=encode,
    rules=HistoryRules(
        merge_same_role=False,
        starts_with_user=False,
        call_id_pattern=None,
        tool_name_pattern=r"(?s).+",
        allows_assistant_last=True,
        allows_user_after_tool=True,
        allows_empty_text=True,
    ),
    features=ALL_FEATURES - {"files", "prompt_caching", "tool_choice"},
    event_keys=(frozenset({"created_at", "message", "done"}),),
)
