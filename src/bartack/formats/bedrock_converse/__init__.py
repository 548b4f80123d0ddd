"""Bedrock's Converse and ConverseStream, for every model on Bedrock."""

from bartack.formats.bedrock_converse.decode import BedrockConverse
from bartack.formats.bedrock_converse.encode import encode
from bartack.formats.bedrock_converse.read import read_request
from bartack.formats.format import Format
from bartack.formats.history_rules import PLAIN_NAME, HistoryRules

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=BedrockConverse,
    encode=encode,
    read_request=read_request,
    rules=HistoryRules(
        # "A conversation must start with a user message", "... must alternate between user and assistant roles".
        # The API accepts . and : in ids as well; Claude behind it does not.
        call_id_pattern=r"[a-zA-Z0-9_-]{1,64}",
        tool_name_pattern=PLAIN_NAME,
        allows_user_after_tool=True,
    ),
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
