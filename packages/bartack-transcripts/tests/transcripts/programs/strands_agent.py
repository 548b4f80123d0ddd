"""An agent of strands-agents, for lab/interop.py: its session is a folder in HOME. Runs in the environment of strands.

The conversation manager is the one that the session names, as strands demands; a new session has the default one.

python strands_agent.py SESSION PROMPT
"""

import os
import subprocess
import sys

from strands import Agent, tool  # type: ignore[import-not-found]
from strands.agent import conversation_manager  # type: ignore[import-not-found]
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
stored = sessions.read_agent(session, "default")
name = stored.conversation_manager_state["__name__"] if stored is not None else "SlidingWindowConversationManager"
manager = getattr(conversation_manager, name)()
Agent(
    model=model,
    tools=[tool(shell)],
    session_manager=sessions,
    callback_handler=None,
    conversation_manager=manager,
)(prompt)
