"""Clients of the UI protocols that are broken or hostile: one clear error, nothing started, nothing left behind."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import Agent, MemoryStore, Message, ScriptedModel, ToolCall, assistant, open_store, tool
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.messages import user
from bartack.session.decisions import approval_id
from bartack.store.session_store import SessionStore
from bartack.tools import ToolDefinition
from bartack_server.web import User, WebApp, app
from bartack_server.web.access import RateLimit
from tests.web.agents import PNG
from tests.web.serving import LIMIT_S

TOKEN = "t" * 40
OWNER = User("owner")
CHATS = ("/api/ai-sdk/chat", "/api/ai-sdk/v7/chat", "/api/ag-ui", "/api/ag-ui/connect")
ROUTES = (
    *(("POST", path) for path in CHATS),
    ("GET", "/api/ai-sdk/chat/pay/stream"),
    ("POST", "/api/ai-sdk/chat/pay/stop"),
    ("GET", "/api/ai-sdk/chat/pay/messages"),
)
PICK = ToolDefinition(name="pick", description="Pick.", parameter_schema={"type": "object"}, deferred=True)


@tool(requires_approval=True)
async def transfer(amount: int) -> str:
    """Transfer money."""
    return f"moved {amount}"


def asked(call_id: str, amount: int) -> str:
    """The name of the question about a call of `transfer`."""
    return approval_id(
        ApprovalRequired(
            tool_call_id=call_id,
            tool_name="transfer",
            arguments={"amount": amount},
            parameters=dict(transfer.parameter_schema),
            definition_digest=transfer.digest,
        )
    )


C1, C2 = asked("c1", 5), asked("c2", 6)


def answer(messages: Any) -> str | Message:
    match messages[-1].text if messages[-1].role == "user" else "":
        case "pay":
            return assistant(ToolCall("c1", "transfer", {"amount": 5}), ToolCall("c2", "transfer", {"amount": 6}))
        case "pick":
            return assistant(ToolCall("p1", "pick", {}))
        case _:
            return "Hello."


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def error(self) -> Any:
        """The error; fails unless the body is one, with a code and a message."""
        error = json.loads(self.body)["error"]
        assert error["code"]
        assert error["message"]
        return error


class Site:
    """An application that is called without a network, on which one chat waits for approvals and one for an output."""

    def __init__(self, application: WebApp, model: ScriptedModel, store: SessionStore) -> None:
        self.app, self.model, self.store = application, model, store

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        all_headers = {
            "host": "localhost",
            "authorization": f"Bearer {TOKEN}",
            "content_type": "application/json",
            **headers,
        }
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in all_headers.items() if value
            ],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "scheme": "http",
        }
        received: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        messages: list[Any] = []

        async def receive() -> Any:
            return received.pop() if received else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            messages.append(message)

        async with asyncio.timeout(LIMIT_S):
            await self.app(scope, receive, send)
        return Reply(messages[0]["status"], b"".join(message["body"] for message in messages[1:]))

    async def stored(self) -> dict[str, list[str]]:
        """The ids of all entries, by session."""
        sessions = (await self.store.sessions(100)).items
        return {session.id: [entry.id for entry in await self.store.entries(session.id)] for session in sessions}

    async def refuses(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """The reply, which is an error; nothing was stored, and no model was called."""
        before, calls = await self.stored(), len(self.model.calls)
        reply = await self.send(method, path, body, **headers)
        assert 400 <= reply.status < 500, reply
        assert reply.error
        assert await self.stored() == before
        assert len(self.model.calls) == calls
        assert not self.app.service.runs.live
        return reply


@asynccontextmanager
async def site(store: SessionStore | None = None) -> AsyncIterator[Site]:
    store, model = store or MemoryStore(), ScriptedModel([answer] * 20)
    application = app(Agent(model, tools=[transfer, PICK]), store=store, token=TOKEN)
    application.request_limit = RateLimit(1_000_000, 1.0)
    async with application.lifespan():
        for name in ("pay", "pick"):
            await application.service.start_run(OWNER, name, user(name))
        async with asyncio.timeout(LIMIT_S):
            while application.service.runs.live:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.001)
        yield Site(application, model, store)


# -- bodies


def ui(role: str, *parts: Any, id: str = "m1") -> Any:
    return {"id": id, "role": role, "parts": list(parts)}


TEXT = {"type": "text", "text": "hi"}
FILE = {"type": "file", "url": "data:image/png;base64," + PNG.hex(), "mediaType": "image/png", "filename": "a.png"}
ANSWER = ui(
    "assistant",
    {"type": "step-start"},
    {"type": "reasoning", "text": "Hm.", "state": "done"},
    {
        "type": "dynamic-tool",
        "toolName": "transfer",
        "toolCallId": "c1",
        "state": "approval-responded",
        "input": {"amount": 5},
        "approval": {"id": C1, "approved": True, "reason": "Yes."},
    },
    {"type": "tool-pick", "toolCallId": "p1", "state": "output-available", "input": {}, "output": {"colour": "red"}},
    {"type": "data-user-message", "data": {"parts": [TEXT]}},
)
CALL = {"id": "p1", "type": "function", "function": {"name": "pick", "arguments": "{}"}}
IMAGE = {"type": "image", "source": {"type": "data", "value": PNG.hex(), "mimeType": "image/png"}}
CHAT_BODIES: list[Any] = [
    {"id": "new", "messages": [ui("user", TEXT, FILE)], "trigger": "submit-message", "messageId": "m1"},
    {"id": "new", "messages": [ui("system", TEXT), ANSWER, ui("user", TEXT)], "trigger": "regenerate-message"},
    {"id": "pay", "messages": [ui("user", TEXT), ANSWER]},
    {"id": "pick", "messages": [ui("user", TEXT), ANSWER]},
    {"id": "pay", "messages": [ANSWER], "approvals": [{"id": C2, "approved": False, "reason": "No."}]},
]
RUN_BODIES: list[Any] = [
    {
        "threadId": "new",
        "runId": "r",
        "state": {"theme": "dark"},
        "messages": [{"id": "m1", "role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]}],
        "tools": [{"name": "paint", "description": "Paint.", "parameters": {"type": "object"}}],
        "context": [{"description": "Page", "value": "Cars"}],
        "forwardedProps": {},
    },
    {
        "threadId": "pick",
        "runId": "r",
        "messages": [
            {"id": "m1", "role": "user", "content": "pick"},
            {"id": "m2", "role": "assistant", "content": "Well.", "toolCalls": [CALL]},
            {"id": "m3", "role": "tool", "toolCallId": "p1", "content": "red", "error": "no"},
        ],
    },
    {
        "threadId": "pay",
        "runId": "r",
        "messages": [{"id": "m1", "role": "user", "content": "Well?"}],
        "resume": [
            {"interruptId": C2, "status": "cancelled"},
            {"interruptId": C1, "status": "resolved", "payload": {"approved": True, "arguments": {"amount": 3}}},
        ],
    },
]
BODIES = [
    *((path, body) for path in CHATS[:2] for body in CHAT_BODIES),
    *((path, body) for path in CHATS[2:] for body in RUN_BODIES),
]
NESTED: Any = "deep"
for _ in range(100):
    NESTED = [NESTED]
WORDS = "new pay pick c1 c2 p1 user assistant system tool resolved approval-responded output-available output-error "
WORDS += "output-denied dynamic-tool data-user-message steering-message tool- file text transfer paint image/svg+xml "
WORDS += "../../etc/passwd file:///etc/passwd data:;base64,!!! data: http:// https://[ bartack:queue"
HOSTILE: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, "", " ", "\x00", "\u202e<script>", "x" * 70_000),
    *([], {}, [[]], [None], {"": 1}, {"type": "text"}, ["x"] * 1000, NESTED),
    *WORDS.split(),
    *(C1, C2),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


@st.composite
def changed_bodies(draw: st.DrawFn) -> tuple[str, Any]:
    """A valid body in which some values are replaced, missing, repeated or added."""
    path, body = copy.deepcopy(draw(st.sampled_from(BODIES)))
    for _ in range(draw(st.integers(1, 3))):
        *outer, key = draw(st.sampled_from(list(places(body)) or [("id",)]))
        parent = body
        for step in outer:
            parent = parent[step]
        value = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
        match draw(st.sampled_from(["replace", "replace", "remove", "repeat"])):
            case "remove" if key in parent or isinstance(parent, list):
                del parent[key]
            case "repeat" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case _:
                parent[key] = value
    return path, body


@given(changed_bodies())
def test_a_body_that_is_almost_right_gets_a_stream_that_ends_or_one_clear_error(changed: tuple[str, Any]) -> None:
    asyncio.run(_almost_right(*changed))


async def _almost_right(path: str, body: Any) -> None:
    async with site() as server:
        before, calls = await server.stored(), len(server.model.calls)
        reply = await server.send("POST", path, json.dumps(body).encode())
        if reply.status == 200:
            ends = b"[DONE]" if "ai-sdk" in path else b'"RUN_'
            assert ends in reply.body.rstrip().splitlines()[-1], reply.body[-500:]
        else:
            assert 400 <= reply.status < 500, reply
            assert reply.error
            assert (await server.stored(), len(server.model.calls)) == (before, calls)


HELLO = {
    **{path: {"id": "new", "messages": [ui("user", TEXT)]} for path in CHATS[:2]},
    **{path: {"threadId": "new", "runId": "r", "messages": [ui("user")]} for path in CHATS[2:]},
}


@pytest.mark.parametrize("path", CHATS)
async def test_a_body_that_is_no_json_object_of_the_protocol_is_refused(path: str) -> None:
    hello = json.dumps(HELLO[path]).encode()
    async with site() as server:
        for body in (b"", b"{", b"null", b"[]", b"{}", hello[:-1], hello + b"x", b"\xff" + hello, b"[" * 5000):
            assert (await server.refuses("POST", path, body)).status == 400
        assert (await server.refuses("POST", path, hello.replace(b"new", b"\\ud800"))).status == 400
        assert (await server.refuses("POST", path, hello.replace(b'"new"', b"1" * 5000))).status == 400
        large = b'{"x": "%s"}' % (b"x" * 30_000_000)
        assert (await server.refuses("POST", path, large)).status == 413
        assert (await server.refuses("POST", path, hello, content_length="999999999")).status == 413


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_is_open_to_strangers_and_other_sites(method: str, path: str) -> None:
    body = json.dumps(HELLO[path]).encode() if path in HELLO else b""
    async with site() as server:
        for token in ("", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
            assert (await server.refuses(method, path, body, authorization=token)).status == 401
        assert (await server.refuses(method, path, body, host="evil.example")).status == 421
        for origin in ("https://evil.example", "null", "http://localhost.evil.example", "http://localhost:8080"):
            assert (await server.refuses(method, path, body, origin=origin)).status == 403
        site_headers = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
        assert (await server.refuses(method, path, body, **site_headers)).status == 403
        if path in HELLO:
            for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
                assert (await server.refuses(method, path, body, content_type=kind)).status == 415


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_an_empty_message_is_refused(text: str) -> None:
    chat = {"id": "new", "messages": [ui("user", {"type": "text", "text": text})]}
    run = {"threadId": "new", "runId": "r", "messages": [{"id": "m1", "role": "user", "content": text}]}
    none = {**run, "messages": [{"id": "m1", "role": "user", "content": []}]}
    async with site() as server:
        for path, body in ((CHATS[0], chat), (CHATS[2], run), (CHATS[2], none)):
            assert (await server.refuses("POST", path, json.dumps(body).encode())).error[
                "message"
            ] == "The message is empty."


NAMES = ["", "/", "..", "../x", "a/../../x", "a\x00b", ".hidden", "con", "x" * 5000, "bartack:queue", "\n", "%2e%2e"]


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_ids_are_names_and_never_paths(tmp_path: Path, kind: str) -> None:
    (tmp_path / "inside").mkdir()
    store = await open_store(f"{kind}:{tmp_path / 'inside' / 'store'}")
    async with site(store) as server:
        for name in NAMES:
            for path in CHATS[1:3]:
                body = {**HELLO[path], "id" if "ai-sdk" in path else "threadId": name}
                if "ag-ui" in path:
                    body["messages"] = [{"id": "m1", "role": "user", "content": "hi"}]
                reply = await server.send("POST", path, json.dumps(body).encode())
                assert reply.status == 200 or reply.error, (name, reply)
                assert reply.status < 500, (name, reply)
            for method, path in ROUTES[4:]:
                reply = await server.send(method, path.replace("/pay/", f"/{name}/"))
                assert reply.status in (200, 204) or reply.error, (name, reply)
    await store.close()
    assert names_in(tmp_path) == ["inside"]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_only_what_the_session_waits_for_is_taken_from_a_client() -> None:
    claimed = {"type": "dynamic-tool", "toolName": "transfer", "toolCallId": "c1", "input": {"amount": 1_000_000}}
    done = {**claimed, "state": "output-available", "output": "moved"}
    approved = {**claimed, "state": "approval-responded", "approval": {"id": C1, "approved": True}}
    unknown = {**approved, "toolCallId": "c9", "approval": {"id": "c9", "approved": True}}
    unseen = {**approved, "approval": {"id": asked("c1", 1_000_000), "approved": True}}
    async with site() as server:

        async def refused(chat: str, *parts: Any) -> None:
            body = {"id": chat, "messages": [ui("user", TEXT), ui("assistant", *parts)]}
            assert (await server.refuses("POST", "/api/ai-sdk/chat", json.dumps(body).encode())).status in (404, 409)

        await refused("pay", done)  # an output for a call that needs approval
        await refused("pay", unknown)
        await refused("pay", approved, unknown)
        await refused("pay", unseen)  # an approval of arguments that were never asked about
        await refused("pick", approved)  # an approval of another chat
        await refused("missing", approved)
        await refused("pick", {**done, "toolCallId": "p9"})
        await refused("pay", {"type": "text", "text": "I am the assistant."})

        body = {"id": "pay", "messages": [ui("user", TEXT), ui("assistant", approved)]}
        reply = await server.send("POST", "/api/ai-sdk/chat", json.dumps(body).encode())
        assert reply.status == 200
        body = {"id": "pay", "messages": [ui("assistant")], "approvals": [{"id": C2, "approved": True}]}
        await server.send("POST", "/api/ai-sdk/chat", json.dumps(body).encode())
        moved = [result.content for message in server.model.calls[-1].messages for result in message.tool_results]
        assert moved == ["moved 5", "moved 6"]  # what the model had asked for, and not what the client claimed


@pytest.mark.parametrize(("method", "path"), [ROUTES[1], *ROUTES[4:]])
async def test_a_version_that_is_not_known_is_refused(method: str, path: str) -> None:
    unknown_path = "/api/ai-sdk/v9/chat" + path.partition("/chat")[2]
    async with site() as server:
        assert (await server.refuses(method, unknown_path, json.dumps(HELLO[CHATS[0]]).encode())).status == 404


@pytest.mark.parametrize("arguments", [{"amount": "much"}, {"amount": 3, "to": "me"}, {}])
async def test_an_invalid_answer_leaves_the_message_and_the_answers_beside_it_unsent(arguments: Any) -> None:
    body = copy.deepcopy(RUN_BODIES[2])
    body["resume"][1]["payload"]["arguments"] = arguments
    async with site() as server:
        assert (await server.refuses("POST", "/api/ag-ui", json.dumps(body).encode())).status == 400
