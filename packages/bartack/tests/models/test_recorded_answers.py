"""Recorded responses through whole models, one vendor for each wire format: framing and decoder fit together."""

import json
from pathlib import Path

import pytest

from bartack.models import connect
from bartack.testing import check_stream
from tests.models.doubles import BytesClient

FOLDERS = {
    "anthropic-messages": "anthropic:m",
    "openai-chat": "openai-chat:m",
    "openai-responses": "openai:m",
    "gemini-generate": "google:m",
    "gemini-interactions": "gemini-interactions:m",
    "bedrock-converse": "bedrock:m",
    "bedrock-invoke": "bedrock-invoke:anthropic.claude-v2",
    "cohere-v2": "cohere:m",
    "ollama-chat": "ollama:m",
    "mistral-chat": "mistral:m",
    "groq-chat": "groq:m",
    "openrouter-chat": "openrouter:m",
}


@pytest.mark.parametrize("folder", FOLDERS)
async def test_recorded_responses_decode_to_messages(folder: str, recordings: Path) -> None:
    files = [
        file
        for name in ("response.sse", "response.ndjson", "response.bin")
        for file in sorted((recordings / folder).glob(f"*/{name}"))
        if (json.loads((file.parent / "meta.json").read_text()).get("http_status") or 200) == 200
    ]
    assert files
    messages = 0
    for file in files[:5]:
        body = file.read_bytes()
        chunks = [body[start : start + 1000] for start in range(0, len(body), 1000)]
        answer = await check_stream(connect(FOLDERS[folder], api_key="a-key", client=BytesClient(chunks)))
        messages += answer.message is not None
    assert messages >= min(len(files), 5) - 1, "at most one of five is a recorded failure"
