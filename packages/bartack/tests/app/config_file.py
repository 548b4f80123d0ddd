"""A configuration file for tests."""

from pathlib import Path

from bartack.app.settings import config_path

__all__ = ["FULL", "write_config"]

FULL = """
model = "openai-compatible:m"
store = "sqlite:~/sessions.db"
instructions = "Be brief."
thinking = true

[approval]
greet = "always"

[model_settings]
max_tokens = 7
"""


def write_config(text: str) -> Path:
    """Write the configuration file of the user."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
