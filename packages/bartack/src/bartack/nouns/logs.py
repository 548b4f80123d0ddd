"""The loggers of Bartack, all below ``bartack`` in the tree of the standard library.

    bartack.agent      runs, model calls, tools, approvals, compactions
    bartack.models     HTTP exchanges
    bartack.session    refused transitions of tool calls
    bartack.tools      tracebacks of tools that raised, without the text of the exception
    bartack.content    the same with its text
    bartack.views      documents and other data that could not be read

Records contain names, ids, codes and counts, never the content of a conversation and no credentials. The exception is
``bartack.content``, which is off until its level is set. Nothing is printed unless the program configures logging.
"""

import logging

__all__ = ["logger"]

logging.getLogger("bartack").addHandler(logging.NullHandler())  # otherwise Python prints warnings on its own


logging.getLogger("bartack.content").setLevel(logging.CRITICAL + 1)  # not by a level that is set for everything


def logger(name: str) -> logging.Logger:
    """The logger ``bartack.<name>``."""
    return logging.getLogger(f"bartack.{name}")
