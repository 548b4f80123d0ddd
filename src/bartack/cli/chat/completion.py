"""What Tab completes at the prompt: commands, their arguments, and the paths of mentions."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bartack.app.mentions import as_mention, completions

_MENTION = re.compile(r'(?:^|\s)@("?)([^\s"]*)$|(?:^|\s)@(")([^"\n]*)$')
Offers = Iterable[tuple[str, str]]  # what can be inserted, and what it means


class Completed(NamedTuple):
    """A command: its summary, and a function that returns the arguments it can have."""

    summary: str
    arguments: Callable[[], Awaitable[Offers]]


class ChatCompleter(Completer):
    """Completes what is before the cursor."""

    def __init__(self, commands: Mapping[str, Completed], directory: Path) -> None:
        self._commands = commands
        self._directory = directory

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Nothing: completions are found in the event loop, because arguments may be in the store."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The completions."""
        text = document.text_before_cursor
        if mention := _MENTION.search(text):
            is_quoted = bool(mention[1] or mention[3])
            typed = mention[2] if mention[2] is not None else mention[4]
            for path in await asyncio.to_thread(completions, typed, self._directory):
                quoted = path if is_quoted else as_mention(path).removeprefix("@")
                end = quoted[:1] if quoted != path and path.endswith("/") else ""  # left open for what follows
                yield Completion(quoted.removesuffix(end), start_position=-len(typed), display=path)
            return
        async for typed, offers in self._offers(text):
            for word, meaning in offers:
                if word.lower().startswith(typed.lower()):
                    yield Completion(word, start_position=-len(typed), display_meta=meaning)

    async def _offers(self, text: str) -> AsyncIterator[tuple[str, Offers]]:
        """What is typed of a word, and the words that it may become."""
        if text.startswith("/") and " " not in text:
            yield text, [(name, command.summary) for name, command in self._commands.items()]
        elif text.startswith("/") and "\n" not in text:
            name, _, typed = text.partition(" ")
            if name in self._commands:
                yield typed.lstrip(), await self._commands[name].arguments()
