"""Questions of AG-UI and the AI SDK: they show everything, and are answered under their own id only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bartack import ToolCall, assistant
from bartack.tools import LocalRuntime
from tests.clients.ui.scripted import scripted_server

HIDDEN = "echo safe" + "\n" * 60 + "touch hidden.txt" + "\n" * 60 + "echo safe #\u202e\u200b\x1b[2K"


def ag_ui(answers: dict[str, bool]) -> dict[str, Any]:
    prompt = {"id": "m1", "role": "user", "content": "Go"}
    resume = [{"interruptId": id, "status": "resolved", "payload": {"approved": yes}} for id, yes in answers.items()]
    return {"threadId": "trip", "runId": "r1", "messages": [prompt], **({"resume": resume} if resume else {})}


def ai_sdk(answers: dict[str, bool]) -> dict[str, Any]:
    prompt = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Go"}]}
    answered = {"id": "m2", "role": "assistant", "parts": []}
    approvals = [{"id": id, "approved": yes} for id, yes in answers.items()]
    return {"id": "trip", "messages": [prompt, *([answered] if answers else [])], "approvals": approvals}


def events(body: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def question(body: bytes) -> tuple[str, str]:
    """Its id and its text."""
    for event in events(body):
        if event["type"] == "data-approval":
            return event["id"], event["data"]["text"]
        if event["type"] == "RUN_FINISHED":
            (interrupt,) = event["outcome"]["interrupts"]
            return interrupt["id"], interrupt["message"]
    raise AssertionError(body)


@pytest.mark.parametrize(
    ("path", "request_of"),
    [("ag-ui", ag_ui), ("ai-sdk/v5/chat", ai_sdk), ("ai-sdk/v6/chat", ai_sdk), ("ai-sdk/v7/chat", ai_sdk)],
)
async def test_a_hidden_command_is_shown_and_only_the_id_of_its_question_approves_it(
    path: str, request_of: Callable[[dict[str, bool]], dict[str, Any]], tmp_path: Path
) -> None:
    call = assistant(ToolCall("c1", "run_command", {"command": HIDDEN}))
    async with scripted_server(call, "Done.", runtime=LocalRuntime(tmp_path)) as server:

        async def post(answers: dict[str, bool]) -> tuple[int, Any]:
            status, body, _ = await server.client.send("POST", f"/api/{path}", json=request_of(answers))
            return status, body

        _, body = await post({})
        question_id, text = question(body)
        head, *lines = text.split("\n")
        assert head.startswith("Allow the tool run_command? ")
        assert "  | touch hidden.txt" in lines
        assert "  | echo safe #\\u202e\\u200b\\x1b[2K" in lines
        for other in (
            "c1",
            question_id[:-1],
            f"{question_id}x",
            question_id.replace("c1", "c2"),
            f"0{question_id[1:]}",
        ):
            if other != question_id:
                assert (await post({other: True}))[0] == 404
        assert (await server.client.get("/sessions/trip"))["state"] == "waiting"
        assert not (tmp_path / "hidden.txt").exists()
        last = await post({question_id: True})
        assert last[0] == 200, last
        assert (tmp_path / "hidden.txt").exists()
