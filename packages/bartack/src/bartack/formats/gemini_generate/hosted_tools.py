"""The tools that Gemini executes (ai.google.dev/gemini-api/docs/tools). Vertex AI has no file search."""

from bartack.formats.tools import HostedRows, filled, hosted_row

__all__ = ["HOSTED"]

_FILES = hosted_row(  # recorded
    lambda tool: {"fileSearch": filled(fileSearchStoreNames=tool.stores, topK=tool.max_results)},
    *("stores", "max_results"),
)
_TOOLS = {
    "web_search": hosted_row(lambda _: {"googleSearch": {}}),  # recorded
    "web_fetch": hosted_row(lambda _: {"urlContext": {}}),  # recorded
    "code_execution": hosted_row(lambda _: {"codeExecution": {}}),  # recorded
}

# "Tool use with function calling is unsupported", of models before Gemini 3.
HOSTED = HostedRows(
    "gemini-generate", {"": {**_TOOLS, "file_search": _FILES}, "vertex": _TOOLS}, beside_functions=False
)
