"""Gemini's Interactions API."""

from msgspec.structs import replace

from bartack.formats.format import ALL_FEATURES, Format
from bartack.formats.gemini_generate import FORMAT as GENERATE
from bartack.formats.gemini_interactions.decode import GeminiInteractions
from bartack.formats.gemini_interactions.encode import HOSTED, encode
from bartack.formats.gemini_interactions.read import read_request

__all__ = ["FORMAT"]

FORMAT = Format(
    hosted=HOSTED,
    decoder=GeminiInteractions,
    encode=encode,
    read_request=read_request,
    # The same models, but a flat list of steps, in which roles have no neighbours.
    rules=replace(GENERATE.rules, merge_same_role=False),
    features=ALL_FEATURES - {"prompt_caching"},
    event_types=("interaction.",),
)
