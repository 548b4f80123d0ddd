"""Every recorded body through its framing: payloads parse, and are the same for the cuts of the real network."""

import json
from itertools import accumulate
from pathlib import Path

import pytest

from bartack.formats.framing import FRAMINGS, Frame, Framed, FramingName, sniff
from tests.formats.framing.framing_bytes import cut, read

FRAMING_OF: dict[str, FramingName] = {
    "response.sse": "sse",
    "response.ndjson": "ndjson",
    "response.chunks.jsonl": "lines",
    "response.json": "json-array",
    "response.bin": "aws",
}


def bodies(recordings: Path, file_name: str) -> list[Path]:
    return sorted(recordings.glob(f"*/*/{file_name}"))


def is_payload(item: object) -> bool:
    return isinstance(item, Frame) and (item.data == b"[DONE]" or json.loads(item.data) is not None)


@pytest.mark.parametrize("file_name", FRAMING_OF)
def test_every_frame_of_every_recorded_body_is_json(recordings: Path, file_name: str) -> None:
    readings = [read(FRAMINGS[FRAMING_OF[file_name]](), path.read_bytes()) for path in bodies(recordings, file_name)]
    assert readings
    assert all(framed and all(map(is_payload, framed)) for framed in readings)


@pytest.mark.parametrize("file_name", FRAMING_OF)
def test_every_recorded_body_is_recognised_by_its_bytes(recordings: Path, file_name: str) -> None:
    for path in bodies(recordings, file_name):
        body = path.read_bytes()
        name = sniff(body)
        assert name is not None, path
        assert read(FRAMINGS[name](), body) == read(FRAMINGS[FRAMING_OF[file_name]](), body), path


def test_chunks_recorded_from_the_network_give_the_same_frames(recordings: Path) -> None:
    transports = sorted(recordings.glob("*/*/transport.json"))
    assert transports
    for transport in transports:
        body = (transport.parent / "response.sse").read_bytes()
        places = accumulate(json.loads(transport.read_bytes())["chunk_lengths"])
        assert read(FRAMINGS["sse"](), *cut(body, places)) == read(FRAMINGS["sse"](), body), transport


@pytest.mark.parametrize("api", ["openai-chat", "anthropic-messages", "openai-responses", "gemini-generate"])
def test_an_error_body_instead_of_events_is_one_frame(recordings: Path, api: str) -> None:
    errors = [path for path in sorted(recordings.glob(f"{api}/*/response.json")) if path.read_bytes()[:1] == b"{"]
    assert errors
    for path in errors:
        laid_out: Framed = read(FRAMINGS["sse"](), json.dumps(json.loads(path.read_bytes()), indent=2).encode())
        for framed in (laid_out, read(FRAMINGS["sse"](), path.read_bytes())):
            assert [json.loads(item.data) for item in framed if isinstance(item, Frame)] == [
                json.loads(path.read_bytes())
            ]
