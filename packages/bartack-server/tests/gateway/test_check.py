"""`bartack gateway check`, with a program of our own in place of Claude Code: it runs a call when its block ends."""

import os
import sys
from pathlib import Path

import pytest

from bartack.nouns.errors import BartackError
from bartack_server.gateway.check import check_program

PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys, urllib.request

settings = json.loads(pathlib.Path(os.environ["HOME"], ".claude", "settings.json").read_text())["env"]

def ask(messages):
    body = json.dumps({{"model": settings["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": messages, "stream": True,
                       "tools": [{{"name": "Bash", "input_schema": {{"type": "object"}}}}]}}).encode()
    headers = {{"authorization": "Bearer " + settings["ANTHROPIC_AUTH_TOKEN"]}}
    request = urllib.request.Request(settings["ANTHROPIC_BASE_URL"] + "/v1/messages", body, headers)
    blocks, arguments = {{}}, {{}}
    for line in urllib.request.urlopen(request):
        event = json.loads(line[6:]) if line.startswith(b"data: ") else {{}}
        match event.get("type"):
            case "content_block_start":
                blocks[event["index"]], arguments[event["index"]] = event["content_block"], ""
            case "content_block_delta":
                print(event["delta"].get("text", ""), end="")
                arguments[event["index"]] += event["delta"].get("partial_json", "")
            case "content_block_stop" if blocks[event["index"]]["type"] == "tool_use":
                call = blocks[event["index"]]
                call["input"] = json.loads(arguments[event["index"]])
                subprocess.run(call["input"]["command"], shell=True)
                result = {{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}}
                return [{{"role": "assistant", "content": [call]}}, {{"role": "user", "content": [result]}}]
            case "error":
                print("API error:", event["error"]["message"]) if {reports} else None
    return []

history = [{{"role": "user", "content": sys.argv[2]}}]
while new := ask(history):
    history += new
"""


def installed(folder: Path, *, reports: bool) -> str:
    path = folder / "claude"
    path.write_text(PROGRAM.format(python=sys.executable, reports=reports))
    path.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("reports", [True, False])
async def test_a_program_is_run_and_each_claim_is_checked(tmp_path: Path, reports: bool) -> None:
    findings = await check_program("claude", installed(tmp_path, reports=reports))
    assert [finding.is_true for finding in findings] == [True, True, True, reports], findings


async def test_a_program_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BartackError, match="codex is not installed"):
        await check_program("codex", str(tmp_path))
