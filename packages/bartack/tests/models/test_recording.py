"""Recording and replaying HTTP exchanges."""

import json
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import pytest

from bartack.models import HttpRequest, ProviderClient, RecordingClient, connect, replay
from bartack.models.http import HttpClient
from bartack.nouns.deltas import Done, Failed
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import user
from bartack.testing import fault_server, scenarios
from bartack.testing.faults import EVENT_WRITERS
from tests.models.doubles import KEY, BytesClient, read

SAY = EVENT_WRITERS["anthropic-messages"]
WHOLE = (SAY.start(), SAY.text("Grüße"), SAY.finish("stop"))


async def deltas_of(client: ProviderClient, words: str = "Hello") -> list[object]:
    answer = await read(connect("anthropic:m", api_key=KEY, client=client).stream([user(words)]))
    return [delta.delta for delta in answer]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_recording_replays_identically_without_a_network(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    scenario = scenarios("anthropic-messages")[0]
    async with fault_server(scenario) as server:
        client = RecordingClient(HttpClient(), path)
        model = connect("anthropic:m", api_key=KEY, base_url=server.base_url, client=client)
        live = [delta.delta for delta in await read(model.stream([user("Hello")]))]
        await model.aclose()
    player = replay(path)
    assert await deltas_of(player) == live
    await player.aclose()
    assert isinstance(live[-1], Done)


async def test_chunks_keep_their_boundaries_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    chunks = [b"a\xff\x00", "ü".encode()[:1], b"plain", b""]
    async with RecordingClient(BytesClient(chunks), path).send(
        HttpRequest(url="http://h/", body=b"not json")
    ) as response:
        assert [chunk async for chunk in response.chunks] == chunks
    async with replay(path).send(HttpRequest(url="http://h/")) as again:
        assert [chunk async for chunk in again.chunks] == chunks
    kinds = [next(iter(line.keys() - {"exchange", "ms"} - {"headers"}), "") for line in lines(path)]
    assert kinds == ["request", "status", "base64", "base64", "text", "text", "end"]
    assert lines(path)[0]["request"]["body"] == "not json"  # type: ignore[index]


async def test_a_recording_contains_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    chunks = [SAY.start() + b": " + KEY.encode() + b"\n\n", SAY.finish("stop")]
    headers = {"set-cookie": "session=very-secret", "request-id": "req_1"}
    await deltas_of(
        RecordingClient(BytesClient(chunks, headers=headers), path), f"my key is {KEY}, gsk_0123456789abcdef"
    )
    text = path.read_text()
    for secret in (KEY, "gsk_0123456789abcdef", "very-secret"):
        assert secret not in text
    assert "req_1" in text
    assert "anthropic-version" in text
    assert path.stat().st_mode & 0o077 == 0


async def test_secrets_are_masked_in_chunks_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    second_key = "gsk_0123456789abcdef"
    chunks = [
        b"\xff\xe9" + KEY.encode() + b"\x80",
        "ü".encode()[1:] + second_key.encode() + "ü".encode()[:1],
        b"\xff\x00",
    ]
    request = HttpRequest(url="http://h/", secrets=(KEY,))
    async with RecordingClient(BytesClient(chunks), path).send(request) as response:
        assert [chunk async for chunk in response.chunks] == chunks, "the reader gets what was received"
    recorded = [b64decode(str(line["base64"])) for line in lines(path) if "base64" in line]
    assert recorded == [b"\xff\xe9[hidden]\x80", b"\xbc[hidden]\xc3", b"\xff\x00"]


@pytest.mark.parametrize("end", ["complete", "abandoned", "failed"])
async def test_a_secret_that_is_split_between_chunks_is_masked(tmp_path: Path, end: str) -> None:
    path = tmp_path / "tape.jsonl"
    secret = KEY.encode()
    chunks: list[bytes | ModelError] = [
        b"\xff" + secret[:3],
        secret[3:6],
        secret[6:] + b" gsk_0123",
        b"456789abcdef\xe9",
    ]
    failure = [ModelError("reset", code=ErrorCode.CONNECTION_FAILED)] if end == "failed" else []
    request = HttpRequest(url="http://h/", secrets=(KEY,))
    with suppress(ModelError):
        async with RecordingClient(BytesClient([*chunks, *failure]), path).send(request) as response:
            received = [await anext(response.chunks) for _ in chunks]
            assert received == chunks, "the reader gets what was received"
            if end != "abandoned":
                await anext(response.chunks, None)
    async with replay(path).send(request) as again:
        recorded = [await anext(again.chunks) for _ in chunks]
    assert recorded == [b"\xff[hidden]", b"", b" [hidden]", b"\xe9"]
    assert lines(path)[-1]["end"] == end


async def test_failures_are_recorded_and_replayed(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    lost = ModelError(f"reset, {KEY}", code=ErrorCode.CONNECTION_FAILED)
    live = await deltas_of(RecordingClient(BytesClient([WHOLE[0], lost]), path))
    assert KEY not in path.read_text()
    again = await deltas_of(replay(path))
    assert isinstance(live[-1], Failed)
    assert again[-1] == live[-1]
    path = tmp_path / "early.jsonl"
    await deltas_of(RecordingClient(BytesClient([lost]), path))
    early = (await deltas_of(replay(path)))[-1]
    assert isinstance(early, Failed)
    assert early.error_code is ErrorCode.CONNECTION_FAILED


async def test_several_exchanges_share_a_file_and_are_replayed_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    client = BytesClient(WHOLE)
    recorder = RecordingClient(client, path)
    first = await deltas_of(recorder, "one")
    client.chunks, client.status = [b'{"error":{"type":"overloaded_error","message":"busy"}}'], 529
    second = await deltas_of(recorder, "two")
    player = replay(path)
    assert await deltas_of(player) == first
    assert (await deltas_of(player))[-1] == second[-1]
    assert len(player.requests) == 2
    (_, none_left) = await deltas_of(player)
    assert isinstance(none_left, Failed)
    assert "2 responses" in none_left.message


async def test_an_abandoned_response_is_recorded_as_far_as_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    stream = connect("anthropic:m", api_key=KEY, client=RecordingClient(BytesClient(WHOLE), path)).stream([user("x")])
    await anext(stream)
    await stream.aclose()
    assert lines(path)[-1]["end"] == "abandoned"
    last = (await deltas_of(replay(path)))[-1]
    assert isinstance(last, Failed)
    assert last.error_code is ErrorCode.STREAM_TRUNCATED


def test_an_existing_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    RecordingClient(BytesClient(), path)
    with pytest.raises(FileExistsError):
        RecordingClient(BytesClient(), path)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "{}",
        '{"exchange":0}',
        '{"exchange":0,"base64":"!"}',
        '{"exchange":0,"end":"failed","code":"?"}',
    ],
)
def test_an_invalid_recording_is_rejected_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_text('{"exchange":0,"status":200,"headers":{}}\n\n' + line + "\n")
    with pytest.raises(PartValidationError) as refused:
        replay(path)
    assert refused.value.path == "$[1]"
