"""OpenAI's Responses API."""

from bartack.formats.format import Format
from bartack.formats.openai_responses.decode import OpenAIResponses
from bartack.formats.openai_responses.encode import HOSTED, encode
from bartack.formats.openai_responses.input_items import RULES, carries
from bartack.formats.openai_responses.read import read_request
from bartack.formats.openai_responses.write import ResponsesWriter

__all__ = ["FORMAT"]

FORMAT = Format(
    hosted=HOSTED,
    has_image_detail=True,
    decoder=OpenAIResponses,
    encode=encode,
    read_request=read_request,
    writer=ResponsesWriter,
    rules=RULES,
    carries=carries,
    event_types=("response.",),
)
