"""Bedrock's InvokeModelWithResponseStream: each model family in its own format, inside Amazon's frames."""

from bartack.formats.anthropic_messages import FORMAT as MESSAGES
from bartack.formats.bedrock_invoke.decode import BedrockInvoke
from bartack.formats.bedrock_invoke.encode import encode, lacking, rules_for
from bartack.formats.bedrock_invoke.read import read_request
from bartack.formats.format import Format

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=BedrockInvoke,
    encode=encode,
    read_request=read_request,
    streams=None,
    rules=MESSAGES.rules,  # Claude's
    carries=MESSAGES.carries,
    rules_for=rules_for,
    lacks=lacking,
    event_types=("chunk",),
)
