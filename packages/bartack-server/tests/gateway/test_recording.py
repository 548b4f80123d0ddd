"""Conversations of clients become sessions: only new messages are stored, and nobody reads another's."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bartack import MemoryStore, ScriptedModel, ToolCall, assistant
from bartack.nouns.deltas import Delta, Failed, Start, TextDelta
from bartack.nouns.entries import SessionHeader, StreamFailed
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message
from bartack.nouns.parts import Text
from bartack.store import open_store
from bartack.store.session_store import SessionInfo, SessionStore
from bartack_server.gateway import gateway
from tests.gateway.bodies import request
from tests.gateway.serving import LIMIT_S, BrokenStore, WaitingModel, serving, stored_key

T = TypeVar("T")
CHAT, MESSAGES, RESPONSES, GEMINI = "openai-chat", "anthropic-messages", "openai-responses", "gemini-generate"


async def sessions(store: SessionStore, count: int = 1) -> list[list[Any]]:
    """The facts of all sessions, once there are so many with an answer."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            ids = [info.id for info in (await store.sessions()).items]
            facts = [[entry.fact for entry in await store.entries(session_id)] for session_id in sorted(ids)]
            if len(facts) == count and all(_is_answered(session[-1]) for session in facts):
                return facts
            await asyncio.sleep(0.01)


async def eventually(read: Callable[[], Awaitable[T]], is_right: Callable[[T], bool]) -> T:
    """What is read, once it is right."""
    while not is_right(value := await read()):  # noqa: ASYNC110 - another task or store changes it
        await asyncio.sleep(0.01)
    return value


async def _listed(store: SessionStore) -> Sequence[SessionInfo]:
    return (await store.sessions()).items


def _is_answered(fact: Any) -> bool:
    return isinstance(fact, StreamFailed) or (isinstance(fact, Message) and fact.role == "assistant")


def lines(session: list[Any]) -> list[tuple[str, str]]:
    return [(fact.role, fact.text) for fact in session if isinstance(fact, Message)]


def turns(format: str, *texts: str) -> tuple[str, dict[str, Any]]:
    """A request whose history has these texts, from the user and the model in turn."""
    path, body = request(format)
    if format == GEMINI:
        body["contents"] = [
            {"role": ("user", "model")[index % 2], "parts": [{"text": text}]} for index, text in enumerate(texts)
        ]
    else:
        body["input" if format == RESPONSES else "messages"] = [
            {"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)
        ]
    return path, body


@pytest.mark.parametrize("format", [CHAT, MESSAGES, RESPONSES, GEMINI])
async def test_a_conversation_is_one_session_and_only_new_messages_are_stored(format: str) -> None:
    async with serving({"m": [ScriptedModel(["One.", "Two."])]}) as gateway:
        await gateway.post(*turns(format, "first"))
        await sessions(gateway.store)
        await gateway.post(*turns(format, "first", "One.", "second"))
        async with asyncio.timeout(LIMIT_S):
            while len(lines((await sessions(gateway.store))[0])) < 4:  # noqa: ASYNC110 - another task stores them
                await asyncio.sleep(0.01)
        [session] = await sessions(gateway.store)
    assert lines(session) == [("user", "first"), ("assistant", "One."), ("user", "second"), ("assistant", "Two.")]
    assert isinstance(session[0], SessionHeader)
    assert session[0].title == "first"


async def test_the_same_name_of_a_conversation_under_another_key_is_another_session() -> None:
    store = MemoryStore()
    other = await stored_key(store, name="other")
    async with serving({"m": [ScriptedModel(["One.", "Two."])]}, store=store) as gateway:
        path, body = turns(MESSAGES, "first")
        named = {"x-claude-code-session-id": "same"}
        await gateway.post(path, body, headers=named)
        await gateway.post(path, body, headers={**named, "x-api-key": other})
        first, second = await sessions(store, 2)
    assert {lines(first)[1], lines(second)[1]} == {("assistant", "One."), ("assistant", "Two.")}


async def test_a_side_call_has_a_session_of_its_own_that_is_marked() -> None:
    async with serving({"m": [ScriptedModel(["One.", "A title."])]}) as gateway:
        named = {"x-claude-code-session-id": "same"}
        path, body = turns(MESSAGES, "first")
        await gateway.post(path, body, headers=named)
        del body["tools"]
        await gateway.post(path, {**body, "messages": [{"role": "user", "content": "Title?"}]}, headers=named)
        both = await sessions(gateway.store, 2)
    marks = {lines(session)[-1][1]: session[0].metadata["sideCall"] for session in both}
    assert marks == {"One.": False, "A title.": True}


@pytest.mark.parametrize("format", [CHAT, MESSAGES])
async def test_a_request_that_is_repeated_after_a_failure_is_a_retry_of_the_same_turn(format: str) -> None:
    """Claude Code repeats a request without `stream` after a stream that failed."""
    failing = Failed(ErrorCode.OVERLOADED, "busy", retryable=True)
    async with serving({"m": [ScriptedModel([failing, failing, "One.", "Two."])]}) as gateway:
        path, body = turns(format, "first")
        for _ in range(2):
            assert (await gateway.post(path, body))[0] != 200
        assert (await gateway.post(path, {**body, "stream": False}))[0] == 200
        assert (await gateway.post(*turns(format, "first", "One.", "second")))[0] == 200
        async with asyncio.timeout(LIMIT_S):
            while len(lines((await sessions(gateway.store))[0])) < 4:  # noqa: ASYNC110 - another task stores them
                await asyncio.sleep(0.01)
        [info] = (await gateway.store.sessions()).items
        assert len(await gateway.store.heads(info.id)) == 1
        branch = [entry.fact for entry in await gateway.store.load(info.id)]
    assert [type(fact) for fact in branch[1:5]] == [Message, StreamFailed, StreamFailed, Message]
    assert lines(branch) == [("user", "first"), ("assistant", "One."), ("user", "second"), ("assistant", "Two.")]


async def test_turns_that_follow_at_once_are_one_branch(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "sessions.db")
    texts = [f"{number}" for number in range(24)]  # the last histories are longer than those that wait for an answer
    async with serving({"m": [ScriptedModel(texts[1::2])]}, store=store) as gateway:
        await gateway.until(200, gateway.key)
        for number in range(0, len(texts), 2):
            assert (await gateway.post(*turns(CHAT, *texts[: number + 1])))[0] == 200
        async with asyncio.timeout(LIMIT_S):
            while len(lines((await sessions(store))[0])) < len(texts):  # noqa: ASYNC110 - another task stores them
                await asyncio.sleep(0.01)
        [info] = (await store.sessions()).items
        assert len(await store.heads(info.id)) == 1
        assert [text for _, text in lines([entry.fact for entry in await store.load(info.id)])] == texts
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_conversation_whose_session_was_purged_is_stored_again(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else await open_store(tmp_path / "sessions.db")
    async with serving({"m": [ScriptedModel(["One.", "Two."])]}, store=store) as gateway:
        await gateway.until(200, gateway.key)
        await gateway.post(*turns(CHAT, "first"))
        await sessions(store)
        [info] = (await store.sessions()).items
        await store.drop_session(info.id)
        await gateway.post(*turns(CHAT, "first", "One.", "second"))
        [session] = await sessions(store)
    assert lines(session) == [("user", "first"), ("assistant", "One."), ("user", "second"), ("assistant", "Two.")]
    await store.close()


async def test_answers_arrive_while_the_store_fails_and_are_stored_when_it_works_again(tmp_path: Path) -> None:
    store, folder = BrokenStore(), tmp_path / "drafts"
    async with serving({"m": [ScriptedModel(["One."])]}, store=store, drafts=folder) as gateway:
        await gateway.until(200, gateway.key)
        store.is_broken = True
        status, data, _ = await gateway.post(*turns(CHAT, "first"))
        assert (status, b"One." in data) == (200, True)
    store.is_broken = False
    [path] = folder.iterdir()
    header, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(header.replace(b'"started":"', b'"started":"dead') + b"\n" + rest)
    async with serving({"m": [ScriptedModel([])]}, store=store, drafts=folder):
        [session] = await sessions(store)
    assert lines(session) == [("user", "first"), ("assistant", "One.")]
    assert list(folder.iterdir()) == []


async def test_gateways_that_answer_in_one_session_at_the_same_time_store_both_answers(tmp_path: Path) -> None:
    """The first holds the lease of the session, because its answer is shown while it arrives."""
    address = tmp_path / "sessions.db"
    first_store, second_store = await open_store(address), await open_store(address)
    slow = WaitingModel()
    named = {"x-claude-code-session-id": "same"}
    path, body = turns(MESSAGES, "first")
    secret = await stored_key(first_store)
    async with (
        serving({"m": [slow]}, store=first_store) as first,
        serving({"m": [ScriptedModel(["Two."])]}, store=second_store) as second,
        asyncio.timeout(LIMIT_S),
    ):
        headers = {**named, "x-api-key": secret}
        await first.until(200, secret)
        sending = asyncio.ensure_future(first.post(path, body, headers=headers))
        await slow.asked.wait()
        [info] = await eventually(lambda: _listed(first_store), bool)
        await eventually(lambda: second_store.read_journal(info.id), bool)
        await second.until(200, secret)
        assert (await second.post(path, body, headers=headers))[0] == 200
        sending.cancel()
        await slow.closed.wait()
        entries = await eventually(lambda: second_store.entries(info.id), lambda entries: len(entries) == 4)
        await eventually(lambda: second_store.lease_of(info.id), lambda lease: lease is None)
    assert {type(entry.fact) for entry in entries[2:]} == {Message, StreamFailed}
    await first_store.close()
    await second_store.close()


async def test_an_edited_history_is_a_branch() -> None:
    async with serving({"m": [ScriptedModel(["One.", "Two.", "Three."])]}) as gateway:
        await gateway.post(*turns(CHAT, "first"))
        await sessions(gateway.store)
        await gateway.post(*turns(CHAT, "first", "One.", "second"))
        await sessions(gateway.store)
        await gateway.post(*turns(CHAT, "first", "One.", "edited"))
        await sessions(gateway.store)
        [info] = (await gateway.store.sessions()).items
        async with asyncio.timeout(LIMIT_S):
            while len(await gateway.store.heads(info.id)) < 2:  # noqa: ASYNC110 - another task stores it
                await asyncio.sleep(0.01)
        heads = await gateway.store.heads(info.id)
        branches = [[entry.fact for entry in await gateway.store.load(info.id, head=head)] for head in heads]
    assert [lines(branch)[2] for branch in branches] == [("user", "second"), ("user", "edited")]


async def test_an_edited_history_that_repeats_the_id_of_a_result_gets_a_session_of_its_own() -> None:
    def body(prompt: str, *later: tuple[str, Any]) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen"}
        contents: list[tuple[str, Any]] = [
            ("user", "first"),
            ("assistant", "One."),
            ("user", prompt),
            ("assistant", [call]),
            ("user", [result]),
            *later,
        ]
        return {**request(MESSAGES)[1], "messages": [{"role": role, "content": content} for role, content in contents]}

    answers = ["Done.", "Done again.", "Go on.", "The end."]
    later = [("assistant", "Done again."), ("user", "third"), ("assistant", "Go on."), ("user", "fourth")]
    async with serving({"m": [ScriptedModel(answers)]}) as gateway, asyncio.timeout(LIMIT_S):
        assert (await gateway.post("/v1/messages", body("second")))[0] == 200
        await sessions(gateway.store)
        for count in (0, 2, 4):  # what follows is in the same session
            assert (await gateway.post("/v1/messages", body("edited", *later[:count])))[0] == 200
            both = await eventually(
                lambda: sessions(gateway.store, 2),
                lambda both: sorted(len(lines(session)) for session in both) == [6, 6 + count],  # noqa: B023
            )
    assert {lines(session)[-1][1] for session in both} == {"Done.", "The end."}


async def test_an_upstream_that_fails_before_its_first_content_is_not_shown() -> None:
    slow, store = WaitingModel(), MemoryStore()
    path, body = turns(CHAT, "first")
    async with serving({"m": [LateFailure(), slow]}, store=store) as gateway, asyncio.timeout(LIMIT_S):
        sending = asyncio.ensure_future(gateway.post(path, body))
        [info] = await eventually(lambda: _listed(store), bool)
        batches = await eventually(
            lambda: store.read_journal(info.id),
            lambda batches: any(type(item.delta) is TextDelta for batch in batches for item in batch.deltas),
        )
        sending.cancel()
        await slow.closed.wait()
    assert [item.delta for batch in batches for item in batch.deltas] == [Start("waiting", "r1"), TextDelta("Hello.")]


class LateFailure(WaitingModel):
    """A model that begins, and fails after a time in which an answer is shown."""

    async def _batches(self) -> AsyncIterator[list[Delta]]:
        yield [Start("late", "r0")]
        await asyncio.sleep(0.6)
        yield [Failed(ErrorCode.OVERLOADED, "busy", retryable=True)]


async def test_what_a_server_has_sent_is_stored_before_it_stops_even_if_it_does_not_wait_for_requests(
    tmp_path: Path,
) -> None:
    path, model = tmp_path / "sessions.db", WaitingModel()
    store = await open_store(path)
    secret = await stored_key(store)
    app = gateway({"m": [model]}, store=path)
    url_path, body = turns(CHAT, "first")
    sent = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if model.asked.is_set():
            await asyncio.Event().wait()
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        if b"Hello." in message.get("body", b""):
            sent.set()

    headers = [(b"host", b"127.0.0.1"), (b"x-api-key", secret.encode())]
    scope = {"type": "http", "method": "POST", "path": url_path, "headers": headers, "query_string": b""}
    async with asyncio.timeout(LIMIT_S), app.lifespan():
        answering = asyncio.ensure_future(app(scope, receive, send))
        await sent.wait()
        answering.cancel()  # as uvicorn does after `timeout_graceful_shutdown`, without waiting for the end
    [info] = (await store.sessions()).items
    *_, question, answer = [entry.fact for entry in await store.entries(info.id)]
    assert isinstance(question, Message)
    assert isinstance(answer, StreamFailed)
    assert [part.text for part in answer.parts if isinstance(part, Text)] == ["Hello."]
    assert _files(tmp_path / "sessions.db-gateway-drafts") == []
    await store.close()


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_failure_and_a_disconnected_client_are_recorded() -> None:
    model = WaitingModel()
    failing = ScriptedModel([Failed(ErrorCode.OVERLOADED, "busy", retryable=True)])
    async with serving({"m": [failing], "slow": [model]}) as gateway:
        await gateway.post(*turns(CHAT, "first"))
        path, body = turns(CHAT, "second")
        sending = asyncio.ensure_future(gateway.post(path, {**body, "model": "slow"}))
        async with asyncio.timeout(LIMIT_S):
            await model.asked.wait()
            sending.cancel()
            await model.closed.wait()
        ends = {session[-1].error.error_code: session[-1] for session in await sessions(gateway.store, 2)}
    assert set(ends) == {ErrorCode.OVERLOADED, ErrorCode.CANCELLED}
    assert [part.text for part in ends[ErrorCode.CANCELLED].parts] == ["Hello."]


async def test_recording_can_be_off_for_a_key_or_a_request() -> None:
    store = MemoryStore()
    silent = await stored_key(store, name="silent", records=False)
    async with serving({"m": [ScriptedModel(["One.", "Two."])]}, store=store) as gateway:
        assert (await gateway.post(*turns(CHAT, "first"), headers={"x-api-key": silent}))[0] == 200
        assert (await gateway.post(*turns(CHAT, "first"), headers={"x-bartack-record": "off"}))[0] == 200
        assert (await store.sessions()).items == ()


async def test_a_response_is_found_continued_and_deleted_by_its_id() -> None:
    model = ScriptedModel([assistant("One.", ToolCall("c1", "look", {})), "Two."])
    store = MemoryStore()
    other = await stored_key(store, name="other")
    async with serving({"m": [model]}, store=store) as gateway:
        path, body = request(RESPONSES, stream=False, prompt="first")
        _, data, _ = await gateway.post(path, body)
        response_id = json.loads(data)["id"]  # it can be used at once
        status, shown = await gateway.get(f"{path}/{response_id}")
        assert (status, shown["output"][0]["content"][0]["text"]) == (200, "One.")
        status, _ = await gateway.get(f"{path}/{response_id}", headers={"x-api-key": other})
        assert status == 404
        output = [{"type": "function_call_output", "call_id": "c1", "output": "seen"}]
        status, _, _ = await gateway.post(path, {**body, "input": output, "previous_response_id": response_id})
        assert status == 200
        assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "tool"]
        status, data, _ = await gateway.post(path, {**body, "previous_response_id": "resp_unknown"})
        assert (status, b"not found" in data) == (400, True)
        headers = {"x-api-key": gateway.key}
        async with gateway.http.delete(f"{gateway.url}{path}/{response_id}", headers=headers) as deleted:
            assert (await deleted.json())["deleted"] is True
        assert (await gateway.get(f"{path}/{response_id}"))[0] == 404
