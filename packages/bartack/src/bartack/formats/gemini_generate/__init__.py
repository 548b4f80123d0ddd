"""Gemini's generateContent, on the Gemini API and on Vertex AI."""

from bartack.formats.format import ALL_FEATURES, Format, HistoryRules
from bartack.formats.gemini_generate.decode import GeminiGenerate
from bartack.formats.gemini_generate.encode import carries, encode
from bartack.formats.gemini_generate.read import read_request
from bartack.formats.gemini_generate.settings import HOSTED
from bartack.formats.gemini_generate.write import GenerateWriter

__all__ = ["FORMAT"]

FORMAT = Format(
    hosted=HOSTED,
    decoder=GeminiGenerate,
    encode=encode,
    carries=carries,
    read_request=read_request,
    writer=GenerateWriter,
    streams=None,
    rules=HistoryRules(
        # "Please ensure that function call turn comes immediately after a user turn"; newer models also reply
        # "Requests ending with a model turn are not supported". "Model input cannot be empty", but empty text may
        # carry a thought signature that has to be sent back. Calls are matched by their order; ids are free.
        # Tool names may contain dots and colons, but not begin with a digit.
        call_id_pattern=None,
        tool_name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
        allows_user_after_tool=True,
        allows_signed_empty_text=True,
    ),
    features=ALL_FEATURES - {"prompt_caching"},  # it caches on its own, with nothing to configure
    event_keys=(frozenset({"candidates"}), frozenset({"promptFeedback"})),
)
