"""The loggers of Bartack, all below ``bartack`` in the tree of the standard library.

    bartack.agent      runs, model calls, tools, approvals, compactions
    bartack.models     HTTP exchanges
    bartack.session    refused transitions of tool calls
    bartack.views      documents and other data that could not be read

Records contain names, ids, codes and counts, never the content of a conversation and no credentials. Nothing is
printed unless the program configures logging.
"""

import logging

__all__ = ["logger"]

logging.getLogger("bartack").addHandler(logging.NullHandler())  # otherwise Python prints warnings on its own


def logger(name: str) -> logging.Logger:
    """The logger ``bartack.<name>``."""
    return logging.getLogger(f"bartack.{name}")
