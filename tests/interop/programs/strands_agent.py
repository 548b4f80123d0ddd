"""An agent of strands-agents, for `make interop`: its session is a folder in HOME. Runs in the environment of strands.

python strands_agent.py SESSION PROMPT
"""

import os
import subprocess
import sys

from strands import Agent, tool  # type: ignore[import-not-found]
from strands.models.anthropic import AnthropicModel  # type: ignore[import-not-found]
from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]


def shell(command: str) -> str:
    """Run a command.

    Args:
        command: What to run.
    """
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


session, prompt = sys.argv[1:]
model = AnthropicModel(
    client_args={"api_key": "x", "base_url": os.environ["ANTHROPIC_BASE_URL"]}, model_id="claude-mock", max_tokens=4096
)
sessions = FileSessionManager(session_id=session, storage_dir=os.environ["HOME"])
Agent(model=model, tools=[tool(shell)], session_manager=sessions, callback_handler=None)(prompt)
