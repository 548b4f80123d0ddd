"""The local demo model as a newcomer meets it: its instructions, and the line that says what to expect of it."""

from bartack.models.local import LocalModel
from bartack.models.model import Model

# Short, because the model has half a billion parameters; with the facts that first questions are about.
DEMO_INSTRUCTIONS = """\
You are a small demo model in Bartack. Answer in one to four short sentences, or with one short code block. \
If you do not know, say that you do not know. You have no internet and do not know the date. \
You can read, list and search the files here, make small changes, and answer short questions.
About Bartack: it is a terminal program and a Python library for LLM agents. It works with Anthropic, OpenAI, Google, \
Ollama and other providers, stores conversations as sessions, and asks before it changes files. /help lists the \
commands, /model switches the model, /quit exits. To get a better model, set ANTHROPIC_API_KEY or OPENAI_API_KEY."""


def is_demo(model: Model) -> bool:
    """Whether this is one of the small local models."""
    return isinstance(model, LocalModel) and model.weights.known is not None and model.weights.known.is_demo


def demo_notice(model: Model) -> str | None:
    """What to expect of a demo model, and how to use a real one; None for any other model."""
    if not is_demo(model):
        return None
    name = model.model_info().name or model.model_info().model_id
    return (
        f"This is a small demo model ({name}). It is often wrong. For a real one, set ANTHROPIC_API_KEY, OPENAI_API_KEY"
        " or another provider's key, or use --model ollama:NAME; 'bartack init' helps."
    )
