"""Bedrock's InvokeModelWithResponseStream: each family of models in its own language, inside Amazon's frames."""

from bartack.formats.anthropic_messages import FORMAT as MESSAGES
from bartack.formats.bedrock_invoke.decode import BedrockInvoke
from bartack.formats.bedrock_invoke.encode import encode, read_request, rules_for
from bartack.formats.format import Format

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=BedrockInvoke,
    encode=encode,
    read_request=read_request,
    rules=MESSAGES.rules,  # Claude's
    rules_for=rules_for,
    event_types=("chunk",),
)
