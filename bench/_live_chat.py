"""The chat that servers play in bench/serve.py: a tool call whose arguments stream in, then an answer.

Servers of peers import this in their own environments, so it uses only the standard library.

    python -m bench._live_chat CHATS      # CPU seconds for the deltas of this many chats if nothing reads them
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence

TOOL, CALL_ID = "weather", "c1"
ARGUMENTS = ('{"city": "', *(["word "] * 38), '"}')
ANSWER = ("word ",) * 360
DELTAS = len(ARGUMENTS) + len(ANSWER)
RATE = 100.0  # deltas per second
TOKEN = "bench-token-" + "x" * 32  # only Bartack asks for one


def weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"Rain in {len(city)} characters."


async def paced(pieces: Sequence[str]) -> AsyncIterator[str]:
    """The pieces, one every hundredth of a second."""
    for piece in pieces:
        await asyncio.sleep(1 / RATE)
        yield piece


async def unread(chats: int) -> float:
    """The CPU seconds of this process while the chats are played and nothing is done with them.

    That is what it costs to wake up for each delta, whichever server plays them.
    """

    async def play() -> None:
        async for _ in paced(ARGUMENTS + ANSWER):
            pass

    before = time.process_time()
    await asyncio.gather(*(play() for _ in range(chats)))
    return time.process_time() - before


if __name__ == "__main__":
    from bartack.app.platform import run_async

    print(run_async(unread(int(sys.argv[1]))))
