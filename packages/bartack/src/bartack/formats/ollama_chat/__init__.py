"""Ollama's own chat API."""

from bartack.formats.format import ALL_FEATURES, Format, HistoryRules
from bartack.formats.ollama_chat.decode import OllamaChat
from bartack.formats.ollama_chat.encode import encode
from bartack.formats.ollama_chat.read import read_request
from bartack.formats.ollama_chat.write import OllamaWriter

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=OllamaChat,
    encode=encode,
    read_request=read_request,
    writer=OllamaWriter,
    streams=True,
    rules=HistoryRules(
        merge_same_role=False,
        starts_with_user=False,
        call_id_pattern=None,
        tool_name_pattern=r"(?s).+",
        allows_assistant_last=True,
        allows_user_after_tool=True,
        allows_empty_text=True,
        allows_trailing_reasoning=True,
    ),
    features=ALL_FEATURES - {"files", "prompt_caching", "tool_choice"},
    event_keys=(frozenset({"created_at", "message", "done"}),),
)
