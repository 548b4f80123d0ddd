"""Every example runs without an API key and prints the expected output."""

import runpy
import sys

import pytest

from lab.repository import ROOT

EXAMPLES = ROOT / "examples"

OUTPUT = {
    "first_agent": ["You said hello.", "status completed, 4 messages sent"],
    "tools": ["1: Paris: rain for 2 day(s)", "2: error:", "3: 3.0", "It rains in Paris, and 1 + 2 = 3."],
    "approval": [
        "approval required: transfer {'amount': 5000}",
        "moved 50",
        "awaiting_human: ['transfer']",
        "not before",
    ],
    "streaming_ui": [
        "[tool_running] (build: running)",
        "running 80 %",
        "it begins again",
        "The docs are built.",
        "[completed]",
    ],
    "structured_output": ["City(name='Paris', country='France', people=2)", "Expected `int`, got `str`"],
    "resume_after_crash": ["paying 7 - killed: True", "The tool returned: Interrupted"],
    "model_switch": [
        "small -> large (chosen)",
        "Hello from the fallback. ModelRef(provider='scripted', model='spare')",
    ],
    "compaction": ["compacted: ", "summary sent to the model: They told each other", "messages in the session: 6"],
    "custom_provider": ["Polly wants a cracker", "failed stream_truncated"],
    "replay_in_tests": ["replayed; calls to the real tool: 1"],
}


@pytest.mark.parametrize("name", OUTPUT)
def test_example_runs_without_an_api_key(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for line in OUTPUT[name]:
        assert line in printed
