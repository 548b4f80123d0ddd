"""Cohere's Chat API, version 2."""

from bartack.formats.cohere_v2.decode import CohereV2
from bartack.formats.cohere_v2.encode import encode
from bartack.formats.cohere_v2.read import read_request
from bartack.formats.format import ALL_FEATURES, PLAIN_NAME, Format, HistoryRules

__all__ = ["FORMAT"]

FORMAT = Format(
    decoder=CohereV2,
    encode=encode,
    read_request=read_request,
    rules=HistoryRules(
        # "message must be at least 1 token long or tool results must be specified", "message must not be empty in a
        # turn". Which tool names it accepts is not documented.
        merge_same_role=False,
        starts_with_user=False,
        call_id_pattern=None,
        tool_name_pattern=PLAIN_NAME,
        allows_user_after_tool=True,
    ),
    # Without tools a schema is enforced; with tools it is refused.
    features=ALL_FEATURES - {"files", "prompt_caching", "output_schema"},
    event_types=("message-start",),
)
