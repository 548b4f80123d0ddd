"""The JSON API: sessions, entries, views, runs, requests, models and tools."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.requests import HTTPConnection

from bartack import Agent, MemoryStore, ScriptedModel
from bartack.nouns.entries import SessionHeader
from bartack.store.foreign import mark_foreign
from bartack.store.requests import override_system_prompt, redact
from bartack.store.session_store import Lease
from bartack.tools import LocalRuntime
from bartack_server.web import User, app
from tests.web.agents import PNG, Gate, GatedModel, new_agent
from tests.web.serving import LIMIT_S, Client, is_entry, served

END = is_entry("run_ended")


async def finished(client: Client, session: str, text: str, **body: Any) -> None:
    """Run a prompt to its end, or until it waits for an approval."""
    started = await client.post(f"/sessions/{session}/runs", text=text, **body)
    await settled(client, session, started["position"])


async def settled(client: Client, session: str, position: str) -> None:
    async with client.events(session, position) as stream:
        await stream.until(lambda event: END(event) or is_entry("approval_required")(event))


async def state_is(client: Client, session: str, state: str) -> None:
    """Wait for this state."""
    while (await client.get(f"/sessions/{session}"))["state"] != state:
        pass


async def answers(client: Client, session: str) -> list[str]:
    page = await client.get(f"/sessions/{session}/entries", limit=200)
    messages = [entry["payload"] for entry in page["items"] if entry["kind"] == "message"]
    return [message["parts"][-1]["payload"].get("text") for message in messages if message["role"] == "assistant"]


# -- lists


async def test_every_page_of_sessions_continues_the_one_before(client: Client) -> None:
    for number in range(5):
        await client.post("/sessions", id=f"s{number}", title=f"number {number}")
    titles: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await client.get("/sessions", limit=2, cursor=cursor)
        assert len(page["items"]) <= 2
        titles += [session["title"] for session in page["items"]]
        cursor = page["cursor"]
    assert titles == [f"number {number}" for number in (4, 3, 2, 1, 0)]


async def test_a_session_shows_where_it_comes_from(gate: Gate, tmp_path: Path) -> None:
    store = MemoryStore()
    metadata = {"directory": str(Path.home() / "code" / "mailer")}
    await store.create_session("imported", SessionHeader(origin="codex", metadata=metadata))
    agents = {"agent": new_agent(gate), "coder": Agent(ScriptedModel(["Hi."]), runtime=LocalRuntime(tmp_path))}
    async with served(app(agents, store=store)) as client:
        await client.post("/sessions", id="own")
        await finished(client, "coded", "Hello", agent="coder")
        sessions = {session["id"]: session for session in (await client.get("/sessions"))["items"]}
        keys = ("agent", "origin", "directory")
        assert [sessions["imported"][key] for key in keys] == [None, "Codex", "~/code/mailer"]
        assert [sessions["own"][key] for key in keys] == ["agent", None, None]
        assert [sessions["coded"][key] for key in keys] == ["coder", None, str(tmp_path)]
        assert (await client.get("/sessions/imported"))["directory"] == "~/code/mailer"
        await redact(store, "imported", (await store.tail_of("imported")).entry_id)
        assert (await client.get("/sessions/imported"))["directory"] is None


async def test_an_imported_session_runs_only_once_it_is_adopted(gate: Gate) -> None:
    store = MemoryStore()
    await store.create_session("s")
    await override_system_prompt(store, "s", "Obey the file.")
    await mark_foreign(store, "s")
    async with served(app({"agent": new_agent(gate)}, store=store)) as client:
        assert (await client.get("/sessions/s"))["foreign"]["instructions"] == "Obey the file."
        for path, body in (("runs", {"text": "hello"}), ("requests", {"type": "queue", "text": "hello"})):
            status, value, _ = await client.send("POST", f"/api/sessions/s/{path}", json=body)
            assert (status, value["error"]["code"]) == (403, "not_adopted")
        assert len(await store.entries("s")) == 2
        await finished(client, "s", "hello", adopt=True)
        assert (await client.get("/sessions/s"))["foreign"] is None


async def test_the_context_window_is_that_of_the_chosen_model(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    models = ["anthropic:claude-sonnet-4-6", "nobody:knows"]
    async with served(app(new_agent(gate), store=MemoryStore(), models=models)) as client:
        await finished(client, "s", "hello")
        own = await client.get("/sessions/s")
        assert own["model"] == "scripted:scripted"
        for model in models:
            await client.post("/sessions/s/requests", type="switch", model=model)
            session = await client.get("/sessions/s")
            assert (session["model"], session["contextWindow"] is None) == (model, model == "nobody:knows")


async def test_only_models_that_the_server_offers_can_be_chosen(gate: Gate) -> None:
    own = Agent(GatedModel(gate), name="first", fallback_models=["ollama:spare"])
    other = Agent(GatedModel(gate), name="second")
    application = app({"first": own, "second": other}, store=MemoryStore(), models=["ollama:big"], authorize=anyone)
    offered = ["scripted:scripted", "ollama:spare", "ollama:big"]
    async with served(application) as client:
        assert [model["name"] for model in (await client.get("/models"))["items"]] == offered
        await finished(client, "s", "hello")
        stored = (await client.get("/sessions/s/entries"))["items"]
        for name in ("local:/etc/shadow", "anthropic:claude-sonnet-4-6", "scripted", ""):
            for path, body in (("runs", {"text": "hello"}), ("requests", {"type": "switch"})):
                status, value, _ = await client.send("POST", f"/api/sessions/s/{path}", json={**body, "model": name})
                assert (status, value["error"]["code"]) == (404, "not_found")
                assert value["error"]["message"].endswith(f"offered: {', '.join(offered)}.")
        assert (await client.get("/sessions/s/entries"))["items"] == stored
        await client.post("/sessions/s/requests", type="switch", model="ollama:big")


def anyone(_: HTTPConnection) -> User:
    return User("ann", "")


async def test_sessions_and_entries_are_found_by_their_words(client: Client) -> None:
    await finished(client, "a", "about umbrellas")
    await finished(client, "b", "about bicycles")
    page = await client.get("/sessions", query="umbrellas")
    assert [session["id"] for session in page["items"]] == ["a"]
    hits = (await client.get("/search", query="bicycles"))["items"]
    assert {hit["sessionId"] for hit in hits} == {"b"}
    best = (await client.get("/search", query="bicycle*", best="true"))["items"]
    scores = [hit["score"] for hit in best]
    assert scores == sorted(scores, reverse=True)
    assert {hit["sessionId"] for hit in best} == {"b"}


async def test_sessions_are_searched_with_filters_and_grouped(client: Client) -> None:
    await finished(client, "a", "about umbrellas")
    await finished(client, "b", "about bicycles and umbrellas")

    async def found(**chosen: object) -> list[str]:
        page = await client.get("/search/sessions", query="umbrellas", **chosen)
        return [session["sessionId"] for session in page["items"]]

    first = await client.get("/search/sessions", query="umbrellas", limit=1)
    second = await client.get("/search/sessions", query="umbrellas", limit=1, cursor=first["cursor"])
    assert second["cursor"] is None
    assert {session["sessionId"] for session in first["items"] + second["items"]} == {"a", "b"}
    [session] = (await client.get("/search/sessions", query="bicycle*"))["items"]
    assert session["matches"] == len(session["hits"]) == 3  # the title, the prompt and the answer
    assert sorted(await found(origin="bartack", since="2020-01-01", until="2999-01-01")) == ["a", "b"]
    for chosen in (
        {"origin": "codex"},
        {"project": "/nowhere"},
        {"model": "another"},
        {"tool": "bash"},
        {"since": "2999-01-01"},
        {"until": "2020-01-01"},
        {"errors": "true"},
    ):
        assert await found(**chosen) == [], chosen


async def test_entries_come_in_pages(client: Client) -> None:
    await finished(client, "s", "hello")
    first = await client.get("/sessions/s/entries", limit=2)
    remainder = await client.get("/sessions/s/entries", cursor=first["cursor"])
    seqs = [entry["seq"] for entry in first["items"] + remainder["items"]]
    assert seqs == list(range(1, len(seqs) + 1))
    assert remainder["cursor"] is None


@pytest.mark.parametrize("view", ["ledger", "feed", "document"])
async def test_every_view_comes_in_pages(client: Client, view: str) -> None:
    await finished(client, "s", "hello")
    full_view = await client.get(f"/sessions/s/views/{view}", limit=200)
    first = await client.get(f"/sessions/s/views/{view}", limit=1)
    assert full_view["view"] == view
    assert first["items"] == full_view["items"][:1]
    assert first["cursor"] == "1"


async def test_tools_models_and_agents_are_listed(client: Client) -> None:
    tools = (await client.get("/tools"))["items"]
    assert [(tool["name"], tool["requiresApproval"]) for tool in tools][:2] == [("pay", True), ("weather", False)]
    assert tools[0]["parameterSchema"]["properties"]["amount"]["type"] == "integer"
    unknown = {"contextWindow": None, "prices": None}
    assert (await client.get("/models"))["items"] == [{"name": "scripted:scripted", **unknown}]
    assert (await client.get("/agents"))["items"][0]["name"] == "agent"


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1e3", "²"])
async def test_an_invalid_limit_is_refused(client: Client, limit: str) -> None:
    status, value, _ = await client.send("GET", "/api/sessions", params={"limit": limit})
    assert (status, value["error"]["path"]) == (400, "$.query.limit")


# -- runs and requests


async def test_a_run_creates_its_session_with_a_title(client: Client) -> None:
    await finished(client, "trip", "weather Paris")
    session = await client.get("/sessions/trip")
    assert session["title"] == "weather Paris"
    assert session["state"] == "idle"
    assert session["totals"]["spend"]["inputTokens"] == 240
    assert session["contextTokens"] == 150
    assert (await answers(client, "trip"))[-1] == "The tool returned: Rain in Paris."


async def test_a_session_that_was_deleted_begins_anew_with_the_next_run(gate: Gate) -> None:
    store = MemoryStore()
    async with served(app(new_agent(gate), store=store)) as client:
        for text in ("one", "two"):
            await finished(client, "s", text)
        await store.drop_session("s")
        await finished(client, "s", "three")
        assert await answers(client, "s") == ["You said: three"]


async def test_a_run_that_cannot_start_leaves_no_session(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    body = {"text": "hello", "model": "anthropic:claude-sonnet-4-6"}
    async with served(app(new_agent(gate), store=MemoryStore(), models=[body["model"]])) as client:
        status, value, _ = await client.send("POST", "/api/sessions/s/runs", json=body)
        assert (status, value["error"]["code"]) == (400, "missing_credentials")
        assert (await client.get("/sessions"))["items"] == []
        await finished(client, "s", "hello")
        assert (await client.send("POST", "/api/sessions/s/runs", json=body))[0] == 400
        assert await answers(client, "s") == ["You said: hello"]


async def test_a_second_run_is_refused_while_one_is_live_and_may_queue_instead(client: Client, gate: Gate) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    status, value, _ = await client.send("POST", "/api/sessions/s/runs", json={"text": "hello"})
    assert (status, value["error"]["code"]) == (409, "conflict")
    await client.post("/sessions/s/requests", type="queue", text="and this")
    pending = (await client.get("/sessions/s/requests"))["items"]
    assert [(request["type"], request["message"]["parts"][0]["payload"]["text"]) for request in pending] == [
        ("queue", "and this")
    ]
    gate.open()
    async with client.events("s") as stream:
        await stream.until(END)
    assert (await answers(client, "s"))[-1] == "You said: and this"


async def test_a_queued_message_starts_a_run_if_none_is_live(client: Client) -> None:
    await finished(client, "s", "hello")
    tail = (await client.get("/sessions/s"))["tail"]["seq"]
    await client.post("/sessions/s/requests", type="steer", text="more")
    await settled(client, "s", str(tail))
    assert (await answers(client, "s"))[-1] == "You said: more"


async def test_a_run_is_stopped_and_keeps_its_answer_so_far(client: Client) -> None:
    await client.post("/sessions/s/runs", text="slow walk")
    async with client.events("s") as stream:
        await stream.until(lambda event: event.event in ("deltas", "reset"))
        await client.post("/sessions/s/requests", type="abort", reason="enough")
        events = await stream.until(END)
    assert events[-1].data["payload"]["status"] == "aborted"
    assert (await answers(client, "s"))[-1].startswith("Slowly: walk")


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"decision": "approve"}, "The tool returned: paid 5 to Bob"),
        ({"decision": "deny", "reason": "too much"}, "The tool failed: The call was denied: too much"),
        (
            {"decision": "modify_args", "arguments": {"amount": 1, "to": "Bob"}},
            "The tool returned: paid 1 to Bob",
        ),
    ],
)
async def test_a_decision_continues_the_run(client: Client, decision: dict[str, Any], expected: str) -> None:
    await finished(client, "s", "pay 5 Bob")
    await state_is(client, "s", "waiting")
    (waiting,) = (await client.get("/sessions/s/requests"))["items"]
    assert waiting["arguments"] == {"amount": 5, "to": "Bob"}
    tail = (await client.get("/sessions/s"))["tail"]["seq"]
    question = {"toolCallId": waiting["toolCallId"], "questionDigest": waiting["questionDigest"]}
    await client.post("/sessions/s/requests", type="decide", **question, **decision)
    await settled(client, "s", str(tail))
    assert (await answers(client, "s"))[-1].startswith(expected)


@pytest.mark.parametrize(
    ("prompt", "answer", "expected"),
    [
        ("helper pay 5 Bob", {"type": "decide", "decision": "approve"}, "paid 5 to Bob"),
        ("helper ask_expert Rome", {"type": "result", "content": "It is sunny."}, "It is sunny."),
    ],
)
async def test_what_a_sub_agent_waits_for_is_answered_in_the_outer_session(
    client: Client, prompt: str, answer: dict[str, Any], expected: str
) -> None:
    await client.post("/sessions/s/runs", text=prompt)
    await state_is(client, "s", "waiting")
    (waiting,) = (await client.get("/sessions/s/requests"))["items"]
    assert waiting["toolCallId"] == "call_1/call_1"
    named = {"questionDigest": waiting["questionDigest"]} if answer["type"] == "decide" else {}
    await client.post("/sessions/s/requests", toolCallId=waiting["toolCallId"], **named, **answer)
    await state_is(client, "s", "idle")
    assert (await answers(client, "s"))[-1] == f"The tool returned: The tool returned: {expected}"


async def test_a_decision_about_other_arguments_or_with_invalid_ones_is_refused(client: Client) -> None:
    await finished(client, "s", "pay 5 Bob")
    (waiting,) = (await client.get("/sessions/s/requests"))["items"]
    body = {"type": "decide", **{name: waiting[name] for name in ("toolCallId", "questionDigest")}}
    for wrong in (
        {"decision": "approve", "questionDigest": "0" * 64},
        {"decision": "approve", "questionDigest": None},
        {"decision": "modify_args", "arguments": {"amount": "much", "to": "Bob"}},
        {"decision": "approve", "toolCallId": "another"},
    ):
        status, value, _ = await client.send("POST", "/api/sessions/s/requests", json={**body, **wrong})
        assert status in (400, 404, 409), value
    assert len((await client.get("/sessions/s/requests"))["items"]) == 1


@pytest.mark.parametrize(("is_error", "expected"), [(False, "returned"), (True, "failed")])
async def test_the_result_of_a_deferred_call_continues_the_run(client: Client, is_error: bool, expected: str) -> None:
    await client.post("/sessions/s/runs", text="ask_expert Rome")
    await state_is(client, "s", "waiting")
    session = await client.get("/sessions/s")
    assert not await client_resumes(client, session["tail"]["seq"])
    (waiting,) = (await client.get("/sessions/s/requests"))["items"]
    assert (waiting["type"], waiting["arguments"]) == ("deferred", {"city": "Rome"})
    body = {"toolCallId": waiting["toolCallId"], "content": "Ask in May.", "isError": is_error}
    await client.post("/sessions/s/requests", type="result", **body)
    await settled(client, "s", str(session["tail"]["seq"]))
    assert (await answers(client, "s"))[-1] == f"The tool {expected}: Ask in May."


async def client_resumes(client: Client, tail: int) -> bool:
    """Whether a message resumes a paused run; the message is withdrawn again."""
    posted = await client.post("/sessions/s/requests", type="queue", text="hello?")
    await client.post("/sessions/s/requests", type="redact", entryId=posted["entryId"])
    entries = (await client.get("/sessions/s/entries", cursor=tail))["items"]
    return "run_started" in [entry["kind"] for entry in entries]


async def test_an_earlier_message_is_edited_into_a_branch(client: Client) -> None:
    await finished(client, "s", "first")
    entries = (await client.get("/sessions/s/entries", limit=200))["items"]
    await finished(client, "s", "second")
    await finished(client, "s", "other", head=entries[-1]["id"])
    assert await answers(client, "s") == ["You said: first", "You said: other"]
    heads = (await client.get("/sessions/s"))["heads"]
    assert len(heads) == 2
    branch = await client.get("/sessions/s/entries", head=heads[0], limit=200)
    texts = [entry["payload"]["parts"][0]["payload"]["text"] for entry in branch["items"] if entry["kind"] == "message"]
    assert texts == ["first", "You said: first", "second", "You said: second"]


async def test_a_redacted_message_is_not_shown(client: Client) -> None:
    await finished(client, "s", "my password is hunter2")
    entries = (await client.get("/sessions/s/entries", limit=200))["items"]
    for entry in entries:
        if entry["kind"] in ("message", "session_header"):  # the title is made from the first message
            await client.post("/sessions/s/requests", type="redact", entryId=entry["id"])
    for path in ("/entries", "/views/ledger", "/views/feed", "/views/document"):
        assert "hunter2" not in str(await client.get(f"/sessions/s{path}", limit=200))
    async with client.events("s") as stream:
        events = await stream.until(is_entry("redaction"))
    assert "hunter2" not in str([event.data for event in events])


async def test_attached_images_and_files_are_stored_and_served(client: Client) -> None:
    files = [
        {"name": "dot.png", "data": base64.b64encode(PNG).decode()},
        {"name": "../../etc/notes.txt", "data": base64.b64encode("über".encode()).decode()},
    ]
    await finished(client, "s", "look", attachments=files)
    entries = (await client.get("/sessions/s/entries", limit=200))["items"]
    message = next(entry for entry in entries if entry["kind"] == "message")
    assert message["payload"]["parts"][1]["payload"]["path"] == "notes.txt"
    [prompt, *_] = await client.get("/ai-sdk/chat/s/messages")
    assert [part.get("filename") for part in prompt["parts"]] == ["dot.png", "notes.txt", None]
    view = (await client.get("/sessions/s/views/document"))["items"][0]
    assert [part.get("filename") for part in view["parts"]] == ["dot.png", "notes.txt", None]
    status, body, headers = await client.send("GET", f"/api/sessions/s/entries/{message['id']}/files/0")
    assert (status, body, headers["content-type"]) == (200, PNG, "image/png")
    status, body, headers = await client.send("GET", f"/api/sessions/s/entries/{message['id']}/files/1")
    assert (status, body) == (200, "über".encode())
    assert headers["content-disposition"] == "attachment"
    assert (await client.send("GET", f"/api/sessions/s/entries/{message['id']}/files/2"))[0] == 404


@pytest.mark.parametrize(
    ("attachment", "path"),
    [
        ({"name": "x", "data": "not base64!"}, "$.attachments[0].data"),
        ({"name": "x", "data": ""}, "$.attachments[0].data"),
        ({"name": "x.exe", "data": base64.b64encode(b"MZ\xff\xfe").decode()}, "$.attachments[0].data"),
        ({"name": "x"}, "$.attachments[0]"),
    ],
)
async def test_an_attachment_that_cannot_be_used_is_refused(
    client: Client, attachment: dict[str, str], path: str
) -> None:
    body = {"text": "look", "attachments": [attachment]}
    status, value, _ = await client.send("POST", "/api/sessions/s/runs", json=body)
    assert (status, value["error"]["path"]) == (400, path)


# -- errors and the document


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/sessions/none", None, (404, "not_found")),
        ("GET", "/sessions/none/entries", None, (404, "not_found")),
        ("GET", "/sessions/s/views/other", None, (404, "not_found")),
        ("GET", "/sessions/s/entries?head=none", None, (404, "not_found")),
        ("GET", "/tools?agent=none", None, (400, "invalid_value")),
        ("GET", "/search", None, (400, "invalid_value")),
        ("GET", "/search/sessions", None, (400, "invalid_value")),
        ("GET", "/search/sessions?query=x&since=yesterday", None, (400, "invalid_value")),
        ("GET", "/search/sessions?query=x&project=work", None, (400, "invalid_value")),
        ("GET", "/usage?by=colour", None, (400, "invalid_value")),
        ("GET", "/usage?since=yesterday", None, (400, "invalid_value")),
        ("POST", "/sessions/none/requests", {"type": "queue", "text": "x"}, (404, "not_found")),
        ("POST", "/sessions/s/requests", {"type": "abort"}, (404, "not_found")),
        ("POST", "/sessions/s/requests", {"type": "explode"}, (400, "invalid_value")),
        ("POST", "/sessions/s/requests", {"type": "queue", "txet": "x"}, (400, "invalid_value")),
        ("POST", "/sessions/s/requests", {"type": "queue", "text": " "}, (400, "invalid_value")),
        ("POST", "/sessions/s/requests", {"type": "switch", "model": "nonsense"}, (404, "not_found")),
        ("POST", "/sessions/s/runs", {"text": "x", "agent": "none"}, (400, "invalid_value")),
        ("POST", "/sessions/s/runs", {"text": "x", "head": "none"}, (404, "not_found")),
        ("POST", "/sessions", {"id": "s"}, (409, "conflict")),
        ("PUT", "/sessions", {"id": "s"}, (405, "method_not_allowed")),
    ],
)
async def test_a_wrong_request_gets_one_clear_error(
    client: Client, method: str, path: str, body: Any, expected: tuple[int, str]
) -> None:
    await client.post("/sessions", id="s")
    status, value, _ = await client.send(method, f"/api{path}", **({} if body is None else {"json": body}))
    assert (status, value["error"]["code"]) == expected
    assert value["error"]["message"]


async def test_an_unknown_method_gets_the_list_of_all_others(client: Client) -> None:
    status, _, headers = await client.send("OPTIONS", "/api/sessions")
    assert (status, headers["allow"]) == (405, "GET, HEAD, POST")
    status, _, headers = await client.send("OPTIONS", "/api/sessions/s/entries")
    assert (status, headers["allow"]) == (405, "GET, HEAD"), "not the methods of a session with the id s/entries"


@pytest.mark.parametrize(
    ("path", "body", "is_valid"),
    [
        ("/api/sessions/{session}/runs", {"text": "hello"}, True),
        ("/api/sessions/{session}/runs", {"attachments": [{"name": "a.txt", "data": "aGVsbG8="}]}, True),
        ("/api/sessions/{session}/runs", {"text": "  "}, False),
        ("/api/sessions/{session}/runs", {"text": "hello", "agent": "none"}, False),
        ("/api/sessions/{session}/runs", {"attachments": [{"name": "a.txt", "data": "not base64"}]}, False),
        ("/api/sessions/{session}/requests", {"type": "queue"}, False),
        (
            "/api/sessions/{session}/requests",
            {"type": "decide", "toolCallId": "c", "decision": "deny", "always": "tool"},
            False,
        ),
        ("/api/ag-ui", {"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "hello"}]}, False),
        (
            "/api/ag-ui",
            {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hello"}]},
            True,
        ),
        ("/api/ai-sdk/chat", {"id": "t", "messages": []}, False),
        (
            "/api/ai-sdk/chat",
            {"id": "t", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]},
            True,
        ),
    ],
)
async def test_the_document_says_which_bodies_are_accepted(
    client: Client, path: str, body: dict[str, Any], is_valid: bool
) -> None:
    document = await client.get("/openapi.json")
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
    assert validator.is_valid(body) is is_valid
    status, _, _ = await client.send("POST", path.replace("{session}", "t"), json=body)
    assert (status < 300) is is_valid


async def test_the_document_describes_every_route_and_its_references_resolve(client: Client) -> None:
    document = await client.get("/openapi.json")
    schemas = document["components"]["schemas"]

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [reference for inner in value.values() for reference in references(inner)]
        return [reference for inner in value for reference in references(inner)] if isinstance(value, list) else []

    assert {name.removeprefix("#/components/schemas/") for name in references(document)} <= set(schemas)
    assert {"/api/sessions", "/api/sessions/{session}/events", "/api/sessions/{session}/requests"} <= set(
        document["paths"]
    )
    pages = document["paths"]["/api/sessions/{session}/entries"]["get"]["responses"]["2XX"]["content"]
    assert pages["application/json"]["schema"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/Entry"}
    chat = "/api/ai-sdk/chat/{chat}"
    messages = document["paths"][f"{chat}/messages"]["get"]["responses"]["2XX"]
    assert messages["content"] == {"application/json": {"schema": {"type": "array"}}}
    assert "content" not in document["paths"][f"{chat}/stop"]["post"]["responses"]["2XX"]
    parameters = {parameter["name"]: parameter for parameter in document["paths"]["/api/search"]["get"]["parameters"]}
    assert parameters["query"]["required"]
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 200}
    assert parameters["cursor"]["schema"] == {"type": "integer", "minimum": 0, "maximum": 10_000}
    used = {one["name"]: one["schema"] for one in document["paths"]["/api/usage"]["get"]["parameters"]}
    assert used["since"] == {"type": "string", "anyOf": [{"format": "date-time"}, {"maxLength": 0}]}
    agents = [one for one in document["paths"]["/api/tools"]["get"]["parameters"] if one["name"] == "agent"]
    assert agents[0]["schema"]["enum"] == ["agent"]
    assert schemas["NewSession"]["properties"]["agent"]["enum"] == ["agent", None]
    assert "204" in document["paths"][f"{chat}/stream"]["get"]["responses"]
    [decision] = schemas["DecideRequest"]["allOf"]
    denied, named = decision["allOf"][1]["anyOf"]
    assert denied == {"properties": {"decision": {"const": "deny"}}}
    assert named["required"] == ["questionDigest"], "whoever approves says what was shown"
    for path, operations in document["paths"].items():
        filled = path.replace("{session}", "none").replace("{entry}", "e").replace("{number}", "0")
        for method in operations:
            status, value, _ = await client.send(method.upper(), filled.replace("{view}", "feed"), json={})
            assert status not in (405, 500), (path, method)
            assert status != 404 or value["error"]["code"] == "not_found", path


async def test_the_title_of_a_session_ends_with_a_word(client: Client) -> None:
    prompt = "Uploads fail when the server\nanswers 503. Make them retry, at most twice."
    await client.post("/sessions/s/runs", text=prompt)
    assert (await client.get("/sessions/s"))["title"] == "Uploads fail when the server answers 503. Make them retry,…"
    await client.post("/sessions/t/runs", text="x" * 80)
    assert (await client.get("/sessions/t"))["title"] == "x" * 59 + "…"


class BusyAtTheEnd(MemoryStore):
    """Lets something happen after a run has read its session for the last time, and before it releases it."""

    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def release_lease(self, lease: Lease) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        await super().release_lease(lease)


@pytest.mark.parametrize(
    ("prompt", "request_", "last"),
    [
        ("hello", {"type": "queue", "text": "late"}, "You said: late"),
        ("hello", {"type": "steer", "text": "late"}, "You said: late"),
        (
            "pay 5 Bob",
            {"type": "decide", "toolCallId": "call_1", "decision": "approve"},
            "The tool returned: paid 5 to Bob",
        ),
    ],
)
async def test_what_is_requested_while_a_run_ends_is_acted_upon(
    gate: Gate, prompt: str, request_: dict[str, Any], last: str
) -> None:
    store = BusyAtTheEnd()
    async with served(app(new_agent(gate), store=store)) as client:

        async def request() -> None:
            pending = (await client.get("/sessions/s/requests"))["items"]
            named = {"questionDigest": pending[0]["questionDigest"]} if request_["type"] == "decide" else {}
            await client.post("/sessions/s/requests", **request_, **named)

        store.meanwhile = request
        await client.post("/sessions/s/runs", text=prompt)
        async with asyncio.timeout(LIMIT_S):
            while (await answers(client, "s"))[-1:] != [last]:
                pass


async def test_a_session_is_renamed_exported_and_deleted(gate: Gate) -> None:
    async with served(app(new_agent(gate), store=MemoryStore())) as client:
        await finished(client, "s", "hello")
        await client.post("/sessions/s/requests", type="rename", title="Another name")
        assert (await client.get("/sessions/s"))["title"] == "Another name"
        status, page, headers = await client.send("GET", "/api/sessions/s/export")
        assert (status, headers["content-disposition"]) == (200, 'attachment; filename="session.html"')
        assert b"You said: hello" in page
        assert (await client.get("/sessions/s/export", format="json"))[0]["kind"] == "session_header"
        assert (await client.send("GET", "/api/sessions/s/export", params={"format": "pdf"}))[0] == 400
        await client.post("/sessions/s/runs", text="slow walk")
        assert (await client.send("DELETE", "/api/sessions/s"))[0] == 409
        gate.open()
        await state_is(client, "s", "idle")
        assert (await client.send("DELETE", "/api/sessions/s"))[0] == 200
        assert (await client.send("GET", "/api/sessions/s"))[0] == 404


async def test_forks_name_the_branches_that_go_on_from_them(gate: Gate) -> None:
    async with served(app(new_agent(gate), store=MemoryStore())) as client:
        await finished(client, "s", "one")
        head = (await client.get("/sessions/s/entries"))["items"][0]["id"]
        await finished(client, "s", "two", head=head)
        session = await client.get("/sessions/s")
        (fork,) = session["forks"]
        assert (fork["index"], fork["heads"][1]) == (1, session["tail"]["entryId"])
        (other,) = (await client.get("/sessions/s", head=fork["heads"][0]))["forks"]
        assert (other["index"], other["heads"]) == (0, fork["heads"])
