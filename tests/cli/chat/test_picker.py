"""Choosing a session from a list, and completing what is typed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from bartack.cli.chat.completion import ChatCompleter, Completed, Offers
from bartack.cli.chat.picker import Listed, Picker

NOW = datetime(2026, 1, 31, 10, tzinfo=UTC)
SESSIONS = [Listed(f"id-{n}", f"id-{n:0{9 + n % 3}}", f"title {n}", f"~/project{n % 2}", NOW) for n in range(30)]


def picker() -> Picker:
    async def preview(session_id: str) -> list[str]:
        return [f"preview of {session_id}"]

    async def search(words: str) -> set[str]:
        return {"id-7"} if words == "deep words" else set()

    return Picker(SESSIONS, preview=preview, search=search)


def test_words_are_found_in_titles_directories_and_ids() -> None:
    one = picker()
    one.type("project1 Title")
    assert [each.title for each in one.matches][:2] == ["title 1", "title 3"]
    one.type("id-29")
    assert [each.title for each in one.matches] == ["title 29"]
    one.type("nothing")
    assert one.selected is None
    one.move(1)
    assert one.rows(40, 5) == []


def test_the_selection_stays_in_the_list_and_visible() -> None:
    one = picker()
    one.move(-5)
    assert one.selected == SESSIONS[0]
    one.move(100)
    assert one.selected == SESSIONS[-1]
    rows = one.rows(40, 10)
    assert [is_selected for is_selected, _ in rows] == [False] * 9 + [True]
    assert all(len(text) == 40 for _, text in rows)
    assert "~/project1" in one.rows(80, 10)[-1][1]
    assert len({text.index(":") for _, text in one.rows(40, 30)}) == 1  # below each other, however long the ids are


async def chosen(keys: str) -> str | None:
    with create_pipe_input() as source:
        one = picker()
        choosing = asyncio.create_task(one.choose(source, DummyOutput()))
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
        one = picker()
        choosing = asyncio.create_task(one.choose(source, DummyOutput()))
        source.send_text("deep words")
        while one.preview_lines != ["preview of id-7"]:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.01)
        source.send_text("\r")
        assert await asyncio.wait_for(choosing, 60) == "id-7"


async def completed(text: str, directory: Path) -> list[str]:
    async def levels() -> Offers:
        return [("high", "much"), ("low", "little")]

    async def nothing() -> Offers:
        return ()

    commands = {"/effort": Completed("Set it.", levels), "/help": Completed("Help.", nothing)}
    completer = ChatCompleter(commands, directory)
    found = completer.get_completions_async(Document(text), CompleteEvent())
    return [text[: len(text) + each.start_position] + each.text async for each in found]


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
