"""OpenAI's Chat Completions, which many vendors offer; `capabilities` has what each of them accepts."""

from bartack.formats.format import Format
from bartack.formats.openai_chat.capabilities import OPENAI_RULES, capabilities_of
from bartack.formats.openai_chat.decode import OpenAIChat
from bartack.formats.openai_chat.encode import encode
from bartack.formats.openai_chat.read import read_request

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=OpenAIChat,
    encode=encode,
    read_request=read_request,
    rules=OPENAI_RULES,
    rules_for=lambda provider, model_id: capabilities_of(provider).rules,
    event_keys=(frozenset({"choices"}),),
)
