"""A gateway that is killed loses nothing that it has sent, and the client's retry continues its session."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bartack import MemoryStore
from bartack.environment import Environment
from bartack.formats import request_facts
from bartack.nouns.deltas import Done, Start, TextDelta
from bartack.nouns.entries import Fact, StreamFailed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.store import open_store
from bartack.store.address import StoreAddress
from bartack.store.session_store import SessionStore
from bartack.testing.faults import EVENT_WRITERS
from bartack_server.gateway.client_requests import ClientRequest
from bartack_server.gateway.drafts import AnswerDraft, Drafts, drafts_folder
from bartack_server.gateway.keys import GatewayKey
from bartack_server.gateway.recording import ConversationRecord, Recorder
from tests.gateway.bodies import request
from tests.gateway.serving import LIMIT_S, stored_key

CHAT, MESSAGES = "openai-chat", "anthropic-messages"
PROGRAM = """
import sys, uvicorn
from bartack.models import connect
from bartack_server.gateway import gateway
url, path = sys.argv[1:]
app = gateway({"m": [connect("openai-compatible:m", api_key="-", base_url=url)]}, store=path)
uvicorn.run(app, port=0, ws="none", log_level="info")
"""


@asynccontextmanager
async def endless_model() -> AsyncIterator[str]:
    """The URL of a model whose answer to the first request has no end; the others are short."""
    events, count = EVENT_WRITERS[CHAT], 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(head + events.start())
        try:
            for number in range(100_000 if count == 1 else 1):
                writer.write(events.text(f"word{number} "))
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(events.finish("stop"))
            await writer.drain()
        except ConnectionError:
            pass  # the gateway was killed
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@asynccontextmanager
async def gateway_process(model_url: str, path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A gateway in a process of its own, and its URL."""
    words = [sys.executable, "-c", PROGRAM, model_url, str(path)]
    process = await asyncio.create_subprocess_exec(*words, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        line = ""
        while "running on" not in line:
            line = (await process.stderr.readline()).decode()
            assert line, "the gateway did not start"
        yield process, next(word for word in line.split() if word.startswith("http"))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def text_in(format: str, data: bytes) -> str:
    """The text that a client has received."""
    events = [json.loads(line[6:]) for line in data.split(b"\n")[:-1] if line.startswith(b"data: {")]
    if format == CHAT:
        return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


@pytest.mark.parametrize("format", [CHAT, MESSAGES])  # passed through, and translated
async def test_a_session_has_what_a_killed_gateway_has_sent_and_the_retry_continues_it(
    format: str, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    store = await open_store(path)
    secret = await stored_key(store)
    await store.close()
    url_path, body = request(format)
    async with (
        asyncio.timeout(LIMIT_S),
        aiohttp.ClientSession(headers={"x-api-key": secret}) as http,
        endless_model() as model_url,
    ):
        async with gateway_process(model_url, path) as (process, url):
            received = b""
            async with http.post(url + url_path, json=body) as response:
                while text_in(format, received).count("word") < 50:
                    received += await response.content.readany()
                process.send_signal(signal.SIGKILL)
                try:
                    while chunk := await response.content.readany():
                        received += chunk
                except aiohttp.ClientError:
                    pass  # the connection was lost
        async with gateway_process(model_url, path) as (_, url), http.post(url + url_path, json=body) as response:
            assert b"word0" in await response.read()
            store = await open_store(path)
            try:
                facts: list[Fact] = []
                while len(facts) < 4:
                    for info in (await store.sessions()).items:  # at first, there may be none
                        facts = [entry.fact for entry in await store.entries(info.id)]
                    await asyncio.sleep(0.01)
            finally:
                await store.close()
    _, question, interrupted, answer = facts
    assert isinstance(question, Message)
    assert isinstance(interrupted, StreamFailed)
    assert interrupted.error.error_code is ErrorCode.STREAM_TRUNCATED
    assert "".join(part.text for part in interrupted.parts).startswith(text_in(format, received))  # type: ignore[union-attr]
    assert isinstance(answer, Message)
    assert answer.text.strip() == "word0"
    assert files_in(Path(f"{path}-gateway-drafts")) == []


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def record(store: SessionStore, *, is_stored: bool) -> ConversationRecord:
    """The record of a request, whose question may be stored already."""
    created = store.environment.now()
    key = GatewayKey(id="k", name="k", digest="", created=created)
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    facts = request_facts(CHAT, body)
    asked = ClientRequest(format=CHAT, model="m", streams=True, facts=facts, data=b"", body=body, headers={}, query={})
    conversation = Recorder(store).conversation(key, asked)
    assert conversation is not None
    conversation.begin(asked.read(CHAT))
    if is_stored:
        await conversation.stored()
    return conversation


async def draft_in(folder: Path, store: SessionStore, *, is_stored: bool = True) -> str:
    """A draft of an answer, as its file says of a process that has died; returns its session."""
    conversation = await record(store, is_stored=is_stored)
    draft = Drafts(folder, Recorder(store)).new()
    draft.add([Start("m", "r"), TextDelta("Hello."), Done("stop")])
    draft.flush(conversation, "resp_1")
    draft.close()
    return conversation.session_id


def pretend_dead(folder: Path) -> None:
    [path] = files_in(folder)
    first, _, rest = path.read_bytes().partition(b"\n")
    header = json.loads(first)
    header["holder"]["started"] = "1"
    path.write_bytes(json.dumps(header).encode() + b"\n" + rest)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_complete_draft_becomes_an_answer_once_and_that_of_a_live_gateway_is_left_alone(
    is_stored: bool, tmp_path: Path
) -> None:
    store = MemoryStore()
    session_id = await draft_in(tmp_path, store, is_stored=is_stored)
    if not is_stored:  # the gateway died before its store had the question
        store = MemoryStore()
    await Drafts(tmp_path, Recorder(store)).recover()
    assert len((await store.sessions()).items) == int(is_stored)
    pretend_dead(tmp_path)
    [path] = files_in(tmp_path)
    data = path.read_bytes()
    for _ in range(2):  # the second time as if the gateway had died before it deleted the file
        path.write_bytes(data)
        await Drafts(tmp_path, Recorder(store)).recover()
        assert files_in(tmp_path) == []
    _, question, answer = [entry.fact for entry in await store.entries(session_id)]
    assert isinstance(question, Message)
    assert isinstance(answer, Message)
    assert answer.meta is not None
    assert (question.text, answer.text, answer.meta.response_id) == ("Hi", "Hello.", "resp_1")


async def test_gateways_that_start_at_the_same_time_store_a_draft_once(tmp_path: Path) -> None:
    first, second = [await open_store(tmp_path / "sessions.db") for _ in range(2)]
    folder = tmp_path / "drafts"
    folder.mkdir()
    session_id = await draft_in(folder, first)
    pretend_dead(folder)
    await asyncio.gather(*(Drafts(folder, Recorder(store)).recover() for store in (first, second)))
    facts = [entry.fact for entry in await first.entries(session_id)]
    assert [fact.text for fact in facts if isinstance(fact, Message)] == ["Hi", "Hello."]
    assert files_in(folder) == []
    await first.close()
    await second.close()


async def test_a_draft_without_a_session_is_kept_and_one_with_half_a_line_is_read_to_there(tmp_path: Path) -> None:
    store = MemoryStore()
    session_id = await draft_in(tmp_path, store)
    pretend_dead(tmp_path)
    await Drafts(tmp_path, Recorder(MemoryStore())).recover()
    [path] = files_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    await Drafts(tmp_path, Recorder(store)).recover()
    *_, answer = [entry.fact for entry in await store.entries(session_id)]
    assert isinstance(answer, StreamFailed)
    assert [part.text for part in answer.parts if isinstance(part, Text)] == ["Hello."]
    assert not path.exists()


def test_each_store_has_a_folder_for_drafts_unless_it_is_in_memory(tmp_path: Path) -> None:
    folders = {
        drafts_folder(StoreAddress.parse(address))
        for address in (tmp_path / "a.db", f"jsonl:{tmp_path / 'b'}", "postgresql://u:p@h/d", "postgresql://h/other")
    }
    assert len(folders) == 4
    assert not any("u:p" in str(folder) for folder in folders)
    assert drafts_folder(StoreAddress.parse("memory:")) is None


async def test_a_draft_of_another_upstream_begins_anew(tmp_path: Path) -> None:
    conversation = await record(MemoryStore(), is_stored=True)
    draft = AnswerDraft(tmp_path, Environment())
    draft.add([Start("m", "r")])
    draft.flush(conversation, None)
    draft.add([TextDelta("lost")])
    draft.restart()
    draft.flush(conversation, None)
    assert files_in(tmp_path) == []
