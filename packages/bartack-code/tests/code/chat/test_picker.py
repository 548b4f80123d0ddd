"""Choosing a session from a list, and completing what is typed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from bartack_code.chat.keyboard import ChatCompleter, CommandCompletion, Offers
from bartack_code.chat.picker import Listed, Picker

NOW = datetime(2026, 1, 31, 10, tzinfo=UTC)
SESSIONS = [Listed(f"id-{n}", f"id-{n:0{9 + n % 3}}", f"title {n}", f"~/project{n % 2}", NOW) for n in range(30)]


def picker() -> Picker:
    async def preview(session_id: str) -> list[str]:
        return [f"preview of {session_id}"]

    async def search(words: str) -> set[str]:
        return {"id-7"} if words == "deep words" else set()

    return Picker(SESSIONS, preview=preview, search=search)


def test_words_are_found_in_titles_directories_and_ids() -> None:
    sessions = picker()
    sessions.type("project1 Title")
    assert [match.title for match in sessions.matches][:2] == ["title 1", "title 3"]
    sessions.type("id-29")
    assert [match.title for match in sessions.matches] == ["title 29"]
    sessions.type("nothing")
    assert sessions.selected is None
    sessions.move(1)
    assert sessions.rows(40, 5) == []


def test_the_selection_stays_in_the_list_and_visible() -> None:
    sessions = picker()
    sessions.move(-5)
    assert sessions.selected == SESSIONS[0]
    sessions.move(100)
    assert sessions.selected == SESSIONS[-1]
    rows = sessions.rows(40, 10)
    assert [is_selected for is_selected, _ in rows] == [False] * 9 + [True]
    assert all(len(text) == 40 for _, text in rows)
    assert "~/project1" in sessions.rows(80, 10)[-1][1]
    assert (
        len({text.index(":") for _, text in sessions.rows(40, 30)}) == 1
    )  # below each other, however long the ids are


async def chosen(keys: str) -> str | None:
    with create_pipe_input() as source:
        sessions = picker()
        choosing = asyncio.create_task(sessions.choose(source, DummyOutput()))
        source.send_text(keys)
        return await asyncio.wait_for(choosing, 60)


async def test_keys_choose_a_session() -> None:
    assert await chosen("\x1b[B\x1b[B\r") == "id-2"
    assert await chosen("title 29\r") == "id-29"
    assert await chosen("x\x7ftitle 2\x15\r") == "id-0"
    assert await chosen("\x03") is None
    assert await chosen("nothing at all\r") is None


async def test_messages_are_searched_a_moment_later() -> None:
    with create_pipe_input() as source:
        sessions = picker()
        choosing = asyncio.create_task(sessions.choose(source, DummyOutput()))
        source.send_text("deep words")
        while sessions.preview_lines != ["preview of id-7"]:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        source.send_text("\r")
        assert await asyncio.wait_for(choosing, 60) == "id-7"


async def completed(text: str, directory: Path) -> list[str]:
    async def levels() -> Offers:
        return [("high", "much"), ("low", "little")]

    async def nothing() -> Offers:
        return ()

    commands = {"/effort": CommandCompletion("Set it.", levels), "/help": CommandCompletion("Help.", nothing)}
    completer = ChatCompleter(commands, directory)
    completions = completer.get_completions_async(Document(text), CompleteEvent())
    return [text[: len(text) + completion.start_position] + completion.text async for completion in completions]


async def test_commands_arguments_and_mentions_are_completed(tmp_path: Path) -> None:
    (tmp_path / "my file.txt").touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").touch()
    assert await completed("/", tmp_path) == ["/effort", "/help"]
    assert await completed("/e", tmp_path) == ["/effort"]
    assert await completed("/effort ", tmp_path) == ["/effort high", "/effort low"]
    assert await completed("/effort H", tmp_path) == ["/effort high"]
    assert await completed("/nothing x", tmp_path) == []
    assert await completed("read @s", tmp_path) == ["read @src/"]
    assert await completed("read @src/a", tmp_path) == ["read @src/app.py"]
    assert await completed('@"my f', tmp_path) == ['@"my file.txt']
    assert await completed("@my", tmp_path) == ['@"my file.txt"']
    assert await completed("hello", tmp_path) == []
