"""Bedrock's Converse and ConverseStream, for every model on Bedrock."""

from msgspec.structs import replace

from bartack.formats.anthropic_messages.capabilities import claude, lacking
from bartack.formats.bedrock_converse.blocks import carries
from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.bedrock_converse.encode import HOSTED, encode
from bartack.formats.bedrock_converse.read import read_request
from bartack.formats.format import PLAIN_NAME, Format, HistoryRules

__all__ = ["FORMAT"]

_RULES = HistoryRules(
    # "A conversation must start with a user message", "... must alternate between user and assistant roles".
    # The API accepts . and : in ids as well; Claude behind it does not.
    call_id_pattern=r"[a-zA-Z0-9_-]{1,64}",
    tool_name_pattern=PLAIN_NAME,
    allows_user_after_tool=True,
)
# Claude refuses a trailing answer since 4.6, here as in its own API; Sonnet 4.5 continues it
# (github.com/strands-agents/sdk-python/issues/1694).
_PREFILL_RULES = replace(_RULES, allows_assistant_last=True)

FORMAT = Format(
    hosted=HOSTED,
    decoder=BedrockConverse,
    encode=encode,
    read_request=read_request,
    streams=None,
    rules=_RULES,
    carries=carries,
    rules_for=lambda provider, model_id: _PREFILL_RULES if claude(model_id).takes_prefill else _RULES,
    lacks=lambda provider, model_id: lacking(model_id),
    # ConverseStreamOutput in the Bedrock API reference: its events and its exceptions.
    event_types=(
        "messageStart",
        "messageStop",
        "contentBlock",
        "metadata",
        "internalServerException",
        "modelStreamErrorException",
        "serviceUnavailableException",
        "throttlingException",
        "validationException",
    ),
    event_keys=(frozenset({"messageStart"}),),
)
