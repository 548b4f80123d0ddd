"""Runs the programs that the user configures, such as hooks: JSON on stdin, text on stdout and stderr."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bartack.tools.shell import shell_words

__all__ = ["Ended", "run_user_program"]

_CLOSING_S = 1.0  # for the pipes of a killed program, which a process in another session may hold open


class Ended(NamedTuple):
    """How a program has ended, and what it has printed."""

    exit_code: int
    output: str
    errors: str


async def run_user_program(command: str, directory: Path, data: Mapping[str, Any], *, timeout_s: float) -> Ended:
    """Run a program in the directory, with the user's environment and outside the sandbox, and kill what it leaves
    behind. Raises `TimeoutError`, and `OSError` if it cannot be started."""
    with tempfile.TemporaryFile() as request:  # a pipe would break if the program ends without reading it
        request.write(json.dumps(data).encode())
        request.seek(0)
        process = await asyncio.create_subprocess_exec(
            *shell_words(command),
            cwd=directory,
            stdin=request,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    reading = asyncio.create_task(process.communicate())
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await asyncio.shield(reading)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({reading}, timeout=_CLOSING_S)
        reading.cancel()
    assert process.returncode is not None
    return Ended(process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))
