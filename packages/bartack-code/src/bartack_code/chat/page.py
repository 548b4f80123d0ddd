"""The web page on the sessions of a chat: `bartack serve` as a child process, for as long as the chat runs."""

import asyncio
import os
import sys
from contextlib import suppress
from urllib.parse import quote

from bartack.nouns.errors import BartackError, ErrorCode
from bartack.store.address import StoreAddress

_START_S = 60.0


class PageServer:
    """Starts with the first link that is asked for. Each link signs one browser in."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._link = ""  # contains a code that was not given out yet
        self._has_link = asyncio.Event()
        self._errors = ""

    async def url(self, session_id: str, model_name: str) -> str:
        """A link to the page of a session. Raises `BartackError` if the server does not start."""
        if self._process is None or self._process.returncode is not None:
            await self._start(model_name)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_link.wait(), _START_S)
        if not self._link:
            problem = self._errors.strip().splitlines()[:1] or ["it gives no link; the last one may not be used yet."]
            raise BartackError(f"The web page cannot be served: {problem[0]}", code=ErrorCode.INVALID_CONFIG)
        return f"{self._link}&session={quote(session_id, safe='')}"

    async def _start(self, model_name: str) -> None:
        words = ["-m", "bartack.cli", "serve", "--port", "0", "--no-tools", "--until-eof", "--model", model_name]
        self._errors, self._link = "", ""
        self._has_link.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=asyncio.subprocess.PIPE,  # nothing is written: it is closed when this process ends, even by SIGKILL
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "BARTACK_STORE": self._address.text},  # not an argument: it may contain a password
            start_new_session=True,  # Ctrl-C in the chat is not for the server
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Take the links that the server prints: a new one as soon as the last one was used."""
        assert process.stdout is not None
        assert process.stderr is not None
        while line := await process.stdout.readline():
            _, scheme, link = line.decode("utf-8", "replace").strip().rpartition("http")
            if scheme:
                self._link = f"http{link}"
                self._has_link.set()
        self._errors = (await process.stderr.read()).decode("utf-8", "replace")
        self._link = ""
        self._has_link.set()

    async def close(self) -> None:
        """Stop the server."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        if self._reading is not None:
            await self._reading
