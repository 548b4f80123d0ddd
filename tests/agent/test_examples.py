"""Every example runs with no key and says what it promises."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SAYS = {
    "first_agent": ["You said hello.", "status completed, 4 messages were sent"],
    "tools": ["1: Paris: rain for 2 day(s)", "2: error:", "3: 3.0", "It rains in Paris, and 1 + 2 = 3."],
    "approval": ["may it run? transfer {'amount': 5000}", "moved 50", "awaiting_human: ['transfer']", "not before"],
    "streaming_ui": ["[tool_running] (build: running)", "running 80 %", "All is built.", "[completed]"],
    "structured_output": ["City(name='Paris', country='France', people=2)", "Expected `int`, got `str`"],
    "resume_after_crash": ["paying 7 - killed: True", "The tool said: interrupted"],
    "model_switch": ["small -> large (chosen)", "Here I am. ModelRef(provider='scripted', model='spare')"],
    "compaction": ["compacted: ", "the model is told: They told each other", "the session still holds 6 messages"],
    "custom_provider": ["Polly wants a cracker", "failed stream_truncated"],
    "replay_in_tests": ["replayed; the real tool was called 1 time(s)"],
}


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_with_no_key(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    for line in SAYS[name]:
        assert line in said
