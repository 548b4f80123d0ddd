"""OpenAI's Chat Completions, which many vendors offer; `capabilities` has what each of them accepts."""

from bartack.formats.format import NOT_ENFORCED, NOTHING, Format
from bartack.formats.openai_chat.capabilities import OPENAI_RULES, capabilities_of
from bartack.formats.openai_chat.decode import OpenAIChat
from bartack.formats.openai_chat.encode import carries, encode
from bartack.formats.openai_chat.read import read_request
from bartack.formats.openai_chat.settings import HOSTED
from bartack.formats.openai_chat.write import ChatWriter

__all__ = ["FORMAT"]

FORMAT = Format(
    hosted=HOSTED,
    has_image_detail=True,
    decoder=OpenAIChat,
    encode=encode,
    read_request=read_request,
    writer=ChatWriter,
    usage_on_request=True,
    rules=OPENAI_RULES,
    carries=carries,
    rules_for=lambda provider, model_id: capabilities_of(provider).rules,
    lacks=lambda provider, model_id: NOTHING if capabilities_of(provider).json_schema else NOT_ENFORCED,
    event_keys=(frozenset({"choices"}),),
)
