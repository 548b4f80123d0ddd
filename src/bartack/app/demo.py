"""The instructions of the local demo model, and a notice about what to expect from it."""

from bartack.models.local import LocalModel
from bartack.models.model import Model

# Short, because the model has half a billion parameters; with the facts that first questions are about.
_INSTRUCTIONS = """\
You are {title}, a small demo model by {publisher}, in Bartack. You run on this machine; nothing is sent anywhere. \
Answer in one to four short sentences, or with one short code block. \
If you do not know, say that you do not know. You have no internet and do not know the date.
About Bartack: it is a terminal program and a Python library for LLM agents. It works with Anthropic, OpenAI, Google, \
Ollama and other providers, stores conversations as sessions, and asks before it changes files. It is free (MIT \
licence) and needs Python 3.11 or later. /help lists the commands, /model switches the model, /undo takes back the \
last turn, /quit exits. To get a better model, set ANTHROPIC_API_KEY or OPENAI_API_KEY. In a \
clone, `make run` installs and starts it, `make test` tests it.
You can read, list and search the files here, make small changes, and answer short questions."""


def demo_instructions(model: Model) -> str | None:
    """The instructions for a demo model; None for any other model."""
    known = model.weights.known if isinstance(model, LocalModel) else None
    if known is None or not known.is_demo:
        return None
    return _INSTRUCTIONS.format(title=known.title, publisher=known.publisher)


def demo_notice(model: Model) -> str | None:
    """What to expect of a demo model, and how to use a real one; None for any other model."""
    if demo_instructions(model) is None:
        return None
    name = model.model_info().name or model.model_info().model_id
    return (
        f"This is a small demo model ({name}). It is often wrong. For a real one, set ANTHROPIC_API_KEY, OPENAI_API_KEY"
        " or another provider's key, or use --model ollama:NAME; 'bartack init' helps."
    )
