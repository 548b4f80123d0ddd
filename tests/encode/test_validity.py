"""The judge of request bodies judges what is known: every recorded request was accepted, so it has no faults."""

import json
from pathlib import Path

import pytest

from tests.encode.validity import faults
from tests.recordings.oracle_openai import CHAT_APIS
from tests.recordings.plain import case_dirs, recordings_root

FOLDERS = {
    "anthropic-messages": ("anthropic-messages", ""),
    "bedrock-converse": ("bedrock-converse", ""),
    "bedrock-invoke": ("bedrock-invoke", ""),
    "cohere-v2": ("cohere-v2", ""),
    "gemini-generate": ("gemini-generate", ""),
    "gemini-interactions": ("gemini-interactions", ""),
    "ollama-chat": ("ollama-chat", ""),
    "openai-responses": ("openai-responses", ""),
    "openai-compat-responses": ("openai-responses", "openai-compat"),
    **{api: ("openai-chat", api.removesuffix("-chat")) for api in CHAT_APIS},
}
CASES = [
    case
    for api in FOLDERS
    for folder in (api, f"{api}-requests")
    for case in case_dirs(folder)
    if (case / "request.json").is_file()
]


def was_accepted(case: Path) -> bool:
    status = json.loads((case / "meta.json").read_bytes())["http_status"]
    return not isinstance(status, int) or status < 400


ACCEPTED = [case for case in CASES if was_accepted(case)]


@pytest.mark.skipif(not ACCEPTED, reason=f"no recordings at {recordings_root()}; WEFT_RECORDINGS names their folder")
@pytest.mark.parametrize("api", FOLDERS)
def test_a_request_that_was_accepted_has_no_faults(api: str) -> None:
    format, provider = FOLDERS[api]
    for case in ACCEPTED:
        if case.parent.name.removesuffix("-requests") == api:
            body = json.loads((case / "request.json").read_bytes())
            model = str(json.loads((case / "meta.json").read_bytes()).get("model") or "")
            found = faults(
                format, body, model=str(body.get("model") or body.get("modelId") or model), provider=provider
            )
            assert found == [], case
