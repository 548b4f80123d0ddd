"""What --debug prints during a command: the tracebacks of tools that raise, of which the model gets the last line."""

import logging
import sys

from bartack.nouns.logs import logger

__all__ = ["print_tracebacks"]


class _CurrentStderr(logging.Handler):
    """Prints to stderr as it is at the time: a chat shows what is printed during an answer above its live area."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


def print_tracebacks() -> None:
    """Print the tracebacks of tools to stderr from now on, with the text of the exceptions."""
    log = logger("content")
    log.setLevel(logging.DEBUG)
    if not any(isinstance(handler, _CurrentStderr) for handler in log.handlers):
        log.addHandler(_CurrentStderr())
