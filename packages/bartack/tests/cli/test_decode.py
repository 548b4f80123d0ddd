"""`bartack decode` and `bartack schema`, run as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bartack.formats.framing import FRAMINGS
from bartack.nouns import wire
from tests.sample_session import SESSION


def bartack(*words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "bartack.cli", *words], input=stdin, capture_output=True, check=False, timeout=300
    )


def lines(done: "subprocess.CompletedProcess[bytes]") -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def chat(*deltas: dict[str, Any], finish: str | None = "stop") -> bytes:
    chunks = [{"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if finish is not None:
        chunks.append({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks)


HELLO = chat({"content": "Hel"}, {"content": "lo"})
CUT = chat({"content": "Hel"}, finish=None)


def test_a_file_gives_one_line_of_json(tmp_path: Path) -> None:
    file = tmp_path / "hello.sse"
    file.write_bytes(HELLO)
    done = bartack("decode", str(file))
    assert (done.returncode, done.stderr) == (0, b"")
    (line,) = lines(done)
    assert line.keys() == {"file", "message", "error"}
    assert (line["file"], line["error"]) == (str(file), None)
    assert [part["payload"]["text"] for part in line["message"]["parts"]] == ["Hello"]
    assert bartack("decode", str(file)).stdout == done.stdout


def test_one_truncated_stream_among_several_files_fails_the_command(tmp_path: Path) -> None:
    """D-3.5"""
    for name, body in (("a", HELLO), ("b", CUT)):
        (tmp_path / name).write_bytes(body)
    done = bartack("decode", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 1
    good, bad = lines(done)
    assert good["error"] is None
    assert (bad["message"], bad["error"]["errorCode"]) == (None, "stream_truncated")


def test_every_delta_can_be_printed() -> None:
    done = bartack("decode", "-", "--deltas", stdin=HELLO)
    assert done.returncode == 0
    assert [line["kind"] for line in lines(done)] == ["start", "text", "text", "done"]
    assert {line["file"] for line in lines(done)} == {"-"}


def test_a_format_that_cannot_be_detected_must_be_named() -> None:
    body = b'data: {"say": "hello"}\n\n'
    done = bartack("decode", "-", stdin=body)
    assert done.returncode == 1
    assert b"--format" in done.stderr
    assert lines(done)[0]["error"]["errorCode"] == "invalid_config"
    with_format = bartack("decode", "-", "--format", "openai-chat", stdin=HELLO.replace(b'"choices"', b'"choices" '))
    assert with_format.returncode == 0


@pytest.mark.parametrize("words", [["--format", "nope"], ["--framing", "nope"]])
def test_an_unknown_name_is_rejected_with_the_known_ones(words: list[str]) -> None:
    done = bartack("decode", "-", *words)
    assert done.returncode == 2
    assert b"openai-chat" in done.stderr or all(name.encode() in done.stderr for name in FRAMINGS)
    assert b"Traceback" not in done.stderr


def test_a_missing_file_is_reported_in_one_line() -> None:
    done = bartack("decode", "no-such-file")
    assert done.returncode == 1
    assert done.stderr == b"bartack: no-such-file: No such file or directory\n"


def test_control_characters_of_a_path_are_removed() -> None:
    name = "\x1b]0;title\x07no\x9b\u202efile"
    done = bartack("decode", name)
    assert done.stderr == b"bartack: nofile: No such file or directory\n"
    assert lines(done)[0]["file"] == name
    assert all(sign.isprintable() for sign in done.stdout.decode().strip())


def test_a_file_name_that_is_not_utf_8_is_shown_as_far_as_possible(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9"
    path.write_bytes(HELLO)
    done = bartack("decode", str(path))
    assert (done.returncode, lines(done)[0]["file"]) == (0, str(tmp_path / "caf\ufffd"))


def test_the_framing_can_be_named() -> None:
    payloads = b"".join(line.removeprefix(b"data: ") + b"\n" for line in HELLO.split(b"\n\n") if line)
    assert bartack("decode", "-", "--framing", "lines", "--format", "openai-chat", stdin=payloads).returncode == 0


def test_stored_entries_validate_against_the_printed_schema() -> None:
    """D-2.4.1"""
    done = bartack("schema")
    assert done.returncode == 0
    schema = json.loads(done.stdout)
    check = jsonschema.Draft202012Validator({"$ref": "#/$defs/Entry", **schema})
    for entry in SESSION:
        check.validate(json.loads(wire.encode(entry)))
    assert not check.is_valid({"id": "e1"})


def test_the_schema_of_one_type_contains_what_it_refers_to() -> None:
    message = json.loads(bartack("schema", "Message").stdout)
    assert message["$ref"] == "#/$defs/Message"
    assert {"Message", "Text", "Usage"} <= message["$defs"].keys()
    assert "AgentConfig" not in message["$defs"]  # not reachable from a message
    done = bartack("schema", "Nope")
    assert done.returncode == 2
    assert done.stderr.startswith(b"bartack: Unknown type 'Nope'.")


def test_the_vendor_decides_about_what_vendors_do_differently() -> None:
    """Vercel counts the reasoning of Google's models apart from the other output."""
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    event = {"id": "c1", "model": "google/gemini-3", "choices": [choice], "usage": usage}
    body = b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(event).encode()

    def output_tokens(*options: str) -> int:
        (line,) = lines(bartack("decode", "-", *options, stdin=body))
        count: int = line["message"]["meta"]["usage"]["outputTokens"]
        return count

    assert (output_tokens(), output_tokens("--provider", "vercel")) == (7, 10)
