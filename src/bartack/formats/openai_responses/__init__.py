"""OpenAI's Responses API."""

from bartack.formats.format import Format
from bartack.formats.openai_responses.decode import OpenAIResponses
from bartack.formats.openai_responses.encode import encode
from bartack.formats.openai_responses.input_items import RULES
from bartack.formats.openai_responses.read import read_request

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=OpenAIResponses,
    encode=encode,
    read_request=read_request,
    rules=RULES,
    event_types=("response.",),
)
