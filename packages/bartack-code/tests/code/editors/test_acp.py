"""`bartack acp` speaks the protocol on stdout, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_S = 600.0  # seconds; only a hang takes this long


def request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


def test_the_command_serves_an_editor_until_it_closes_stdin(tmp_path: Path) -> None:
    program = "from bartack.cli import main; import sys; sys.exit(main())"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    arguments = ["acp", "--model", "local", "--store", f"sqlite:{tmp_path / 'sessions.db'}"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = [
            request(1, "initialize", protocolVersion=1),
            request(2, "session/new", cwd=str(tmp_path), mcpServers=[]),
            request(3, "session/list"),
            request(4, "no/such/method"),
        ]
        replies = []
        for line in lines:
            process.stdin.write(line)
            process.stdin.flush()
            replies.append(json.loads(process.stdout.readline()))
        output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    assert output == ""
    assert [reply["id"] for reply in replies] == [1, 2, 3, 4]
    assert replies[0]["result"]["protocolVersion"] == 1
    assert replies[1]["result"]["sessionId"]
    assert replies[2]["result"]["sessions"] == []  # a session is stored with its first prompt
    assert replies[3]["error"]["code"] == -32601
    assert "Traceback" not in errors
