"""Runs belong to the server: they survive its restart, its crash, and continue on another server of the same store."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.store.postgres_server import address
from tests.web.agents import GATE, Gate
from tests.web.serving import Client, is_entry, server_process
from tests.web.test_api import answers, state_is

END = is_entry("run_ended")
WHOLE = f"Slowly: walk {GATE} and the rest of the answer."


def has_begun(event: object) -> bool:
    return getattr(event, "event", "") in ("deltas", "reset")


async def begun(client: Client, session: str = "s") -> str:
    """Start a slow answer; the position of its first deltas."""
    await client.post(f"/sessions/{session}/runs", text="slow walk")
    async with client.events(session) as stream:
        return (await stream.until(has_begun))[-1].id


async def test_a_run_continues_after_its_server_was_killed_in_mid_answer(tmp_path: Path, gate: Gate) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with server_process(store, gate) as first, first.client() as client:
        position = await begun(client)
        first.kill(signal.SIGKILL)
        await first.ended()
    gate.open()
    async with server_process(store, gate) as second, second.client() as client:
        async with client.events("s", position) as stream:
            events = await stream.until(END)
        kinds = [event.data["kind"] for event in events if event.event == "entry"]
        assert kinds[0] == "stream_failed", "the part of the answer that had arrived is kept"
        assert await answers(client, "s") == [WHOLE]


async def test_a_server_that_is_asked_to_stop_lets_its_runs_end(tmp_path: Path, gate: Gate) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with server_process(store, gate) as first, first.client() as client:
        await client.post("/sessions/s/runs", text="slow walk")
        async with client.events("s") as stream:
            await stream.until(has_begun)
            first.kill(signal.SIGTERM)
            async for _ in stream:  # the server ends live streams first
                pass
        status, value, _ = await client.send("POST", "/api/sessions/t/runs", json={"text": "hello"})
        assert (status, value["error"]["code"]) == (503, "overloaded")
        gate.open()
        assert await first.ended() == 0
    async with server_process(store, gate) as second, second.client() as client:
        assert await answers(client, "s") == [WHOLE]
        entries = (await client.get("/sessions/s/entries", limit=200))["items"]
        assert [entry["kind"] for entry in entries].count("run_started") == 1


@pytest.mark.parametrize("is_patient", [False, True])
async def test_a_run_that_outlasts_the_patience_of_its_server_is_suspended_and_resumed(
    tmp_path: Path, gate: Gate, is_patient: bool
) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with server_process(store, gate, drain_s=600 if is_patient else 0.2) as first, first.client() as client:
        await client.post("/sessions/s/runs", text="slow walk")
        async with client.events("s") as stream:
            position = (await stream.until(has_begun))[-1].id
            first.kill(signal.SIGTERM)
            async for _ in stream:  # until the server has begun to drain
                pass
        if is_patient:
            first.kill(signal.SIGTERM)  # the second signal suspends at once
        assert await first.ended() == 0
    gate.open()
    async with server_process(store, gate) as second, second.client() as client:
        async with client.events("s", position) as stream:
            events = await stream.until(END)
        kinds = [event.data["kind"] for event in events if event.event == "entry"]
        assert "run_ended" not in kinds[:-1]
        assert await answers(client, "s") == [WHOLE]


async def test_an_approval_that_waits_survives_a_restart(tmp_path: Path, gate: Gate) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with server_process(store, gate) as first, first.client() as client:
        await client.post("/sessions/s/runs", text="pay 5 Bob")
        await state_is(client, "s", "waiting")
        first.kill(signal.SIGTERM)
        await first.ended()
    async with server_process(store, gate) as second, second.client() as client:
        (waiting,) = (await client.get("/sessions/s/requests"))["items"]
        entries = (await client.get("/sessions/s/entries", limit=200))["items"]
        assert [entry["kind"] for entry in entries].count("run_started") == 1, "nothing to resume before a decision"
        async with client.events("s", str(entries[-1]["seq"])) as stream:
            named = {name: waiting[name] for name in ("toolCallId", "questionDigest")}
            await client.post("/sessions/s/requests", type="decide", decision="approve", **named)
            await stream.until(END)
        assert await answers(client, "s") == [None, "The tool returned: paid 5 to Bob"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_servers_serve_the_same_live_session(tmp_path: Path, gate: Gate, kind: str) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}" if kind == "sqlite" else address(str(tmp_path))
    async with (
        server_process(store, gate) as first_server,
        server_process(store, gate) as two,
        first_server.client() as first,
        two.client() as second,
    ):
        position = await begun(first)
        resumed = asyncio.create_task(second.send("GET", "/api/ai-sdk/v6/chat/s/stream"))
        async with second.events("s", position) as stream:
            await second.post("/sessions/s/requests", type="queue", text="and you?")
            while (await second.get("/sessions"))["items"][0]["viewers"] < 2:
                pass
            gate.open()
            events = await stream.until(END)
        chunks = [line.removeprefix(b"data: ") for line in (await resumed)[1].split(b"\n\n")[1:-2]]
        assert "".join(json.loads(chunk).get("delta", "") for chunk in chunks) == f"{WHOLE}You said: and you?"
        texts = [event.data["payload"]["parts"][0]["payload"]["text"] for event in events if is_entry("message")(event)]
        assert texts == [WHOLE, "and you?", "You said: and you?"]
        assert await answers(first, "s") == await answers(second, "s")
        starts = (await second.get("/sessions/s/entries", limit=200))["items"]
        assert [entry["kind"] for entry in starts].count("run_started") == 1


async def test_another_server_takes_over_the_runs_of_one_that_was_killed(tmp_path: Path, gate: Gate) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    async with server_process(store, gate) as first_server, first_server.client() as first:
        position = await begun(first)
        async with server_process(store, gate) as two, two.client() as second:
            first_server.kill(signal.SIGKILL)
            await first_server.ended()
            gate.open()
            await second.post("/sessions/s/requests", type="queue", text="are you there?")  # resumes it at once
            async with second.events("s", position) as stream:
                await stream.until(END)
            assert (await answers(second, "s")) == [WHOLE, "You said: are you there?"]
