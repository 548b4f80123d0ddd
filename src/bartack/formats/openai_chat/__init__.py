"""OpenAI's Chat Completions, which many vendors offer; `capabilities` has what each of them accepts."""

from bartack.formats.format import NOT_ENFORCED, NOTHING, Format
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
    lacks=lambda provider, model_id: NOTHING if capabilities_of(provider).json_schema else NOT_ENFORCED,
    event_keys=(frozenset({"choices"}),),
)
